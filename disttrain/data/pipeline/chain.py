"""The methods that add a stage to a pipeline. ``Pipeline`` has the sources and the uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...errors import ConfigError
from ..dataset import IterableDataset, rng_of
from . import batching, caching, combining, elementwise, shuffling, threads
from .elements import Nested, lower
from .specs import UNKNOWN
from .stage import Stage

AUTOTUNE = -1
_FIRST_SEED = 87654321  # beside a seed that stands alone

Self = TypeVar("Self", bound="Chain")


@dataclass(frozen=True)
class Options:
    """How a pipeline is spread over ranks: ``auto_shard`` (AUTO, DATA: each takes its rows of each
    batch; FILE: each takes its files, or elements of the source; OFF: each takes all)."""

    auto_shard: str = "AUTO"
    deterministic: bool = True


def count_of(value: Any, name: str, least: int = 1) -> int:
    """``value`` as a whole number of at least ``least``."""
    try:
        number = int(value)
        if isinstance(value, bool) or number != value:
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigError(f"Pipeline: {name}={value!r} given; a whole number is needed") from None
    if number < least:
        raise ConfigError(f"Pipeline: {name}={number} given; {least} or more is needed")
    return number


def seeds_of(seed: Any) -> tuple[int, int]:
    """A pair of seeds: given, or of one number, or drawn from the rank's generator."""
    if seed is None:
        drawn = rng_of(None).integers(1, 1 << 62, 2)
        return int(drawn[0]), int(drawn[1])
    if isinstance(seed, tuple):
        return int(seed[0]), int(seed[1])
    return _FIRST_SEED, int(seed)


def _threads(count: Any) -> int:
    asked = count_of(count, "num_parallel_calls", AUTOTUNE)
    if asked == 0:
        raise ConfigError("Pipeline: num_parallel_calls=0 given; 1 or more, or AUTOTUNE, is needed")
    return cores() if asked == AUTOTUNE else asked


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


class Chain(IterableDataset, Nested):
    """A stage and the ways to add others."""

    def __init__(self, stage: Stage, options: Options | None = None) -> None:
        self.stage, self._options = stage, options or Options()
        self._last: Any = None

    def _then(self: Self, stage: Stage) -> Self:
        return type(self)(stage, self._options)

    @property
    def element_spec(self) -> Any:
        """What the elements look like. Functions of the program are called with zeros, or with the
        first element, to see what they return."""
        return self.stage.spec()

    def cardinality(self) -> int:
        """How many elements there are; INFINITE (-1), UNKNOWN (-2)."""
        return self.stage.cardinality()

    # --- elements one by one ----------------------------------------------------------------------

    def map(
        self: Self, map_func: Callable[..., Any], num_parallel_calls: Any = None,
        deterministic: bool | None = None,
    ) -> Self:  # fmt: skip
        """``map_func`` of each element; by so many threads (AUTOTUNE: one for each processor), in
        order unless ``deterministic=False``."""
        if num_parallel_calls is None:
            return self._then(elementwise.Mapped(self.stage, map_func))
        ordered = self._options.deterministic if deterministic is None else deterministic
        count = _threads(num_parallel_calls)
        return self._then(threads.ParallelMapped(self.stage, map_func, count, ordered))

    def filter(self: Self, predicate: Callable[..., Any]) -> Self:
        """The elements of which ``predicate`` is true."""
        return self._then(elementwise.Filtered(self.stage, predicate))

    def take_while(self: Self, predicate: Callable[..., Any]) -> Self:
        """The elements before the first of which ``predicate`` is false."""
        return self._then(elementwise.TakenWhile(self.stage, predicate))

    def take(self: Self, count: Any) -> Self:
        """The first ``count`` elements (-1: all)."""
        n = count_of(count, "count", -(1 << 62))
        return self._then(elementwise.Part(self.stage, 0, None if n < 0 else n))

    def skip(self: Self, count: Any) -> Self:
        """What follows the first ``count`` elements (-1: nothing)."""
        n = count_of(count, "count", -(1 << 62))
        if n < 0:
            return self._then(elementwise.Part(self.stage, 0, 0))
        return self._then(elementwise.Part(self.stage, n, None))

    def shard(self: Self, num_shards: Any, index: Any) -> Self:
        """Every ``num_shards``-th element, from ``index``."""
        n, i = count_of(num_shards, "num_shards"), count_of(index, "index", 0)
        if i >= n:
            raise ConfigError(f"Pipeline.shard: index {i} of {n} shards given")
        return self._then(elementwise.Part(self.stage, i, None, n))

    def enumerate(self: Self, start: Any = 0) -> Self:
        """Pairs of a number and the element."""
        return self._then(elementwise.Enumerated(self.stage, int(start)))

    def scan(self: Self, initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> Self:
        """The outputs of ``scan_func(state, element) -> (state, output)``."""
        return self._then(elementwise.Scanned(self.stage, initial_state, scan_func))

    def unbatch(self: Self) -> Self:
        """The rows of each element."""
        return self._then(elementwise.Unbatched(self.stage))

    def unique(self: Self) -> Self:
        """Each element once."""
        return self._then(elementwise.Unique(self.stage))

    def ignore_errors(self: Self, log_warning: bool = False) -> Self:
        """Without the elements that raise an error; ``log_warning``: warn of each."""
        return self._then(elementwise.Rejecting(self.stage, log_warning))

    def assert_cardinality(self: Self, expected_cardinality: Any) -> Self:
        """With so many elements, else an error."""
        return self._then(elementwise.Checked(self.stage, int(expected_cardinality)))

    # --- elements together ------------------------------------------------------------------------

    def batch(self: Self, batch_size: Any, drop_remainder: bool = False) -> Self:
        """``batch_size`` elements stacked."""
        size = count_of(batch_size, "batch_size")
        return self._then(batching.Batched(self.stage, size, bool(drop_remainder)))

    def padded_batch(
        self: Self,
        batch_size: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Self:
        """As ``batch``, of elements filled up to ``padded_shapes`` (lists, tensors, tuples of sizes
        or of shapes; None or -1: to the largest of the batch) with ``padding_values`` (None: zeros,
        empty texts)."""
        size, pad = count_of(batch_size, "batch_size"), (padded_shapes, padding_values)
        return self._then(batching.Batched(self.stage, size, bool(drop_remainder), pad))

    def ragged_batch(
        self: Self, batch_size: Any, drop_remainder: bool = False, row_splits_dtype: Any = None
    ) -> Self:
        """Refused: there are no ragged tensors."""
        raise ConfigError(
            "Pipeline.ragged_batch: there are no ragged tensors here; padded_batch makes tensors "
            "of rows of several lengths, and bucket_by_sequence_length with little padding"
        )

    def rebatch(self: Self, batch_size: Any, drop_remainder: bool = False) -> Self:
        """Batches cut and joined to ``batch_size`` rows, or to several sizes in turn."""
        told = np.atleast_1d(np.asarray(batch_size)).tolist()
        sizes = [count_of(n, "batch_size") for n in told]
        return self._then(batching.Rebatched(self.stage, sizes, bool(drop_remainder)))

    def window(
        self: Self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: bool = False
    ) -> Self:
        """Pipelines of ``size`` elements (every ``stride``-th); they begin ``shift`` apart (None:
        ``size``)."""
        n, step = count_of(size, "size"), count_of(stride, "stride")
        moved = n if shift is None else count_of(shift, "shift")
        return self._then(batching.Windowed(self.stage, n, moved, step, bool(drop_remainder)))

    def group_by_window(
        self: Self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: Any = None,
        window_size_func: Callable[[Any], Any] | None = None,
    ) -> Self:
        """``reduce_func(key, pipeline)`` of up to ``window_size`` elements of the same key."""
        if (window_size is None) == (window_size_func is None):
            raise ConfigError("Pipeline.group_by_window: one of window_size and window_size_func "
                              "is needed")  # fmt: skip
        size = window_size_func or (lambda key: window_size)
        return self._then(batching.Grouped(self.stage, key_func, reduce_func, size))

    def bucket_by_sequence_length(
        self: Self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Self:
        """Padded batches of elements of similar length: bucket ``i`` has those below
        ``bucket_boundaries[i]``, ``bucket_batch_sizes[i]`` at a time."""
        edges, sizes = list(bucket_boundaries), list(bucket_batch_sizes)
        if len(sizes) != len(edges) + 1:
            raise ConfigError(f"Pipeline.bucket_by_sequence_length: {len(sizes)} batch sizes given "
                              f"for {len(edges)} boundaries; one more is needed")  # fmt: skip

        def key(*args: Any) -> int:
            length = int(element_length_func(*args))
            return int(np.searchsorted(edges, length, side="right"))

        def reduce(bucket: Any, group: Chain) -> Chain:
            at, size = int(bucket), sizes[int(bucket)]
            if no_padding:
                return group.batch(size, drop_remainder)
            shapes = padded_shapes
            if pad_to_bucket_boundary:
                if at == len(edges):
                    raise ConfigError(
                        "Pipeline.bucket_by_sequence_length: an element longer than the last "
                        "boundary, to which it was to be padded"
                    )
                told = self.element_spec if shapes is None else shapes
                shapes = batching.bounded(told, edges[at] - 1)
            return group.padded_batch(size, shapes, padding_values, drop_remainder)

        return self.group_by_window(key, reduce, window_size_func=lambda k: sizes[int(k)])

    # --- pipelines together -----------------------------------------------------------------------

    def concatenate(self: Self, dataset: Chain) -> Self:
        """The elements of ``dataset`` after these."""
        return self._then(combining.Concatenated(self.stage, dataset.stage))

    def repeat(self: Self, count: Any = None) -> Self:
        """``count`` times (None, -1: without end)."""
        n = -1 if count is None else count_of(count, "count", -(1 << 62))
        return self._then(combining.Repeated(self.stage, n))

    def flat_map(self: Self, map_func: Callable[..., Any]) -> Self:
        """The elements of the pipelines that ``map_func`` makes, one after the other."""
        return self._then(combining.Interleaved(self.stage, map_func, 1, 1, where="flat_map"))

    def interleave(
        self: Self,
        map_func: Callable[..., Any],
        cycle_length: Any = None,
        block_length: Any = 1,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
    ) -> Self:
        """``block_length`` elements in turn of ``cycle_length`` (None: one for each processor)
        pipelines that ``map_func`` makes of elements; with ``num_parallel_calls`` they are made
        ahead, each by a thread. The order is the same."""
        auto = cycle_length is None or int(cycle_length) == AUTOTUNE
        cycle = cores() if auto else count_of(cycle_length, "cycle_length")
        block = count_of(block_length, "block_length")
        wrap = None
        if num_parallel_calls is not None and _threads(num_parallel_calls):
            wrap = lambda stage: threads.Prefetched(stage, block)  # noqa: E731
        return self._then(combining.Interleaved(self.stage, map_func, cycle, block, wrap))

    # --- buffers ----------------------------------------------------------------------------------

    def shuffle(
        self: Self, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: bool = True
    ) -> Self:
        """In random order, each drawn from the ``buffer_size`` elements that are next (None, or the
        cardinality: all). ``seed``: a number, or a pair; None: drawn from the rank's generator."""
        if buffer_size is None or buffer_size == UNKNOWN:
            count = self.cardinality()
            size = max(count, 1) if count >= 0 else 1 << 62
        else:
            size = count_of(buffer_size, "buffer_size")
        again = reshuffle_each_iteration is not False
        return self._then(shuffling.Shuffled(self.stage, size, seeds_of(seed), again))

    def prefetch(self: Self, buffer_size: Any = AUTOTUNE) -> Self:
        """Up to ``buffer_size`` elements (AUTOTUNE: 2) made ahead by a thread."""
        size = count_of(buffer_size, "buffer_size", AUTOTUNE)
        if size == 0:
            return self._then(self.stage)
        return self._then(threads.Prefetched(self.stage, 2 if size == AUTOTUNE else size))

    def cache(self: Self, filename: str = "") -> Self:
        """Kept in memory, or in a file, by the first pass that reads to the end."""
        if not filename:
            return self._then(caching.Cached(self.stage))
        return self._then(caching.FileCached(self.stage, os.fspath(filename)))

    def rejection_resample(
        self: Self, class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None,
        seed: Any = None,
    ) -> Self:  # fmt: skip
        """Pairs of class and element, some left out, so that the classes come as ``target_dist``
        says; ``initial_dist``: how they come now (None: counted)."""
        target = np.asarray(lower(target_dist), np.float64)
        initial = None if initial_dist is None else np.asarray(lower(initial_dist), np.float64)
        kinds = shuffling.Classes(class_func)
        stage = shuffling.Resampled(self.stage, kinds, target, initial, seeds_of(seed))
        return self._then(stage)
