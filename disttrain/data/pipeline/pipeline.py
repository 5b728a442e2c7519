"""Pipeline: a chain of stages over a stream of elements, from a source to what training takes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...errors import ConfigError
from ..dataset import IterableDataset, rng_of
from . import batching, caching, combining, elementwise, shuffling, sources, threads
from .elements import Nested, flatten, lift, lower, map_leaves
from .iteration import PipelineIterator, check, fresh
from .specs import INFINITE, TEXT, UNKNOWN, TensorSpec
from .stage import Stage, call, probe, raw_call

AUTOTUNE = -1
_FIRST_SEED = 87654321  # beside a seed that stands alone

Self = TypeVar("Self", bound="Pipeline")


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


class Pipeline(IterableDataset, Nested):
    """A stream of elements (tensors, texts, and tuples and dicts of them) as a chain of stages.

    Nothing runs before an element is asked for, and no more than buffers hold is kept. Each
    ``iter(pipeline)`` begins anew; several may be on their way at once. A function given gets the
    parts of a tuple as its arguments. Errors come where their elements would have; the elements after
    them can be asked for. ``state_dict()`` of an iterator, or of the pipeline for its last one, is
    the position, with what buffers hold.

    Names and meanings are those of TensorFlow's ``tf.data.Dataset``; orders of ``shuffle(seed=...)``
    are the same.
    """

    _resumed: dict[str, Any] | None = None

    def __init__(self, stage: Stage, options: Options | None = None) -> None:
        self.stage, self._options = stage, options or Options()
        self._last: Any = None

    def _then(self: Self, stage: Stage) -> Self:
        return type(self)(stage, self._options)

    # --- sources ----------------------------------------------------------------------------------

    @classmethod
    def from_tensors(cls: type[Self], tensors: Any) -> Self:
        """One element."""
        return cls(sources.Listed([lower(tensors)]))

    @classmethod
    def from_tensor_slices(cls: type[Self], tensors: Any) -> Self:
        """The rows of arrays of the same first size."""
        return cls(sources.Slices(tensors))

    @classmethod
    def from_generator(
        cls: type[Self], generator: Callable[[], Iterable], output_signature: Any = None
    ) -> Self:
        """What ``generator()`` gives, called anew for each pass; ``output_signature``: a structure of
        ``TensorSpec``, to which elements are converted and by which they are checked. A position is
        reached by passing over what came before it."""
        return cls(sources.Generated(generator, output_signature))

    @classmethod
    def range(cls: type[Self], *args: Any, dtype: Any = np.int64) -> Self:
        """Whole numbers, as Python's ``range``."""
        return cls(sources.Range(range(*[int(a) for a in args]), dtype))

    @classmethod
    def list_files(
        cls: type[Self], file_pattern: Any, shuffle: bool | None = None, seed: Any = None
    ) -> Self:
        """The names of the files that match, shuffled anew in each pass unless ``shuffle=False``."""
        found = sources.matching(file_pattern)
        out = cls.from_tensor_slices(found)
        return out.shuffle(len(found), seed) if shuffle is None or shuffle else out

    @classmethod
    def from_files(
        cls: type[Self],
        filenames: Any,
        reader: Callable[[str, int], Iterator[tuple[Any, int]]],
        spec: Any = TensorSpec((), TEXT),
    ) -> Self:
        """What ``reader(path, place)`` finds in the files, as pairs of an element and the place after
        it; ``filenames`` are texts, or a pipeline of them."""
        if not isinstance(filenames, Pipeline):
            filenames = cls.from_tensor_slices(np.atleast_1d(lower(filenames)))
        return cls(sources.Files(filenames.stage, reader, spec))

    @classmethod
    def text_lines(cls: type[Self], filenames: Any) -> Self:
        """The lines of the files, as bytes."""
        return cls.from_files(filenames, sources.lines)

    @classmethod
    def random(cls: type[Self], seed: Any = None, rerandomize_each_iteration: bool = False) -> Self:
        """Random 32-bit numbers without end."""
        seeds = seeds_of(seed)
        stage = shuffling.Numbers(seeds, rerandomize_each_iteration)
        return cls(stage)

    @classmethod
    def load(cls: type[Self], path: str) -> Self:
        """What ``save`` has written."""
        return cls(caching.Stored(os.path.join(path, "elements")))

    @classmethod
    def zip(cls: type[Self], *pipelines: Any) -> Self:
        """Tuples (or the structure given) of one element of each; ends with the shortest."""
        tree = pipelines[0] if len(pipelines) == 1 else pipelines
        for p in flatten(tree)[0]:
            if not isinstance(p, Pipeline):
                raise TypeError(f"Pipeline.zip: {type(p).__name__} given; pipelines are needed")
        return cls(combining.Zipped(map_leaves(lambda p: p.stage, tree)))

    @classmethod
    def choose_from_datasets(
        cls: type[Self], datasets: Sequence, choice_dataset: Pipeline, stop_on_empty: bool = True
    ) -> Self:
        """An element of the one whose number ``choice_dataset`` gives."""
        if not datasets:
            raise ConfigError("Pipeline.choose_from_datasets: no datasets given")
        stages = [d.stage for d in datasets]
        return cls(combining.Chosen(choice_dataset.stage, stages, stop_on_empty))

    @classmethod
    def sample_from_datasets(
        cls: type[Self],
        datasets: Sequence,
        weights: Any = None,
        seed: Any = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool = True,
    ) -> Self:
        """An element of one drawn with ``weights`` (None: equal ones)."""
        given = [1.0] * len(datasets) if weights is None else np.asarray(weights, float).tolist()
        if not datasets or len(given) != len(datasets) or min(given) < 0 or not max(given) > 0:
            raise ConfigError(
                f"Pipeline.sample_from_datasets: {len(datasets)} datasets, weights {weights} "
                "given; one weight of 0 or more for each is needed, not all 0"
            )
        choice = shuffling.Indices(given, seeds_of(seed), rerandomize_each_iteration)
        stages = [d.stage for d in datasets]
        return cls(combining.Chosen(choice, stages, stop_on_empty_dataset))

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

    def ignore_errors(self: Self, log: Callable[[Exception], None] | None = None) -> Self:
        """Without the elements that raise an error; ``log`` is told each."""
        return self._then(elementwise.Rejecting(self.stage, log))

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
        """As ``batch``, of elements filled up to ``padded_shapes`` (None or -1: to the largest of
        the batch) with ``padding_values`` (None: zeros, empty texts)."""
        size, pad = count_of(batch_size, "batch_size"), (padded_shapes, padding_values)
        return self._then(batching.Batched(self.stage, size, bool(drop_remainder), pad))

    def ragged_batch(self: Self, batch_size: Any, *args: Any, **options: Any) -> Self:
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

        def reduce(bucket: Any, group: Pipeline) -> Pipeline:
            at, size = int(bucket), sizes[int(bucket)]
            if no_padding:
                return group.batch(size, drop_remainder)
            shapes = padded_shapes
            if pad_to_bucket_boundary:
                if at == len(edges):
                    raise ConfigError("Pipeline.bucket_by_sequence_length: an element longer than "
                                      "the last boundary, to which it was to be padded")  # fmt: skip
                told = self.element_spec if shapes is None else shapes
                shapes = batching.bounded(told, edges[at] - 1)
            return group.padded_batch(size, shapes, padding_values, drop_remainder)

        return self.group_by_window(key, reduce, window_size_func=lambda k: sizes[int(k)])

    # --- pipelines together -----------------------------------------------------------------------

    def concatenate(self: Self, dataset: Pipeline) -> Self:
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
        size = self.cardinality() if buffer_size is None else count_of(buffer_size, "buffer_size")
        if size < 1:
            size = 1 if size == 0 else 1 << 62
        again = reshuffle_each_iteration is not False
        return self._then(shuffling.Shuffled(self.stage, size, seeds_of(seed), again))

    def prefetch(self: Self, buffer_size: Any) -> Self:
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

    # --- uses -------------------------------------------------------------------------------------

    def apply(self, transformation_func: Callable[[Any], Any]) -> Any:
        """``transformation_func(self)``."""
        return transformation_func(self)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """``reduce_func(state, element) -> state`` over all elements."""
        carried = lower(initial_state)
        begun = self.stage.begin()
        try:
            while True:
                args = (lift(carried), lift(begun.next()))
                new = lower(raw_call(reduce_func, args))
                carried = elementwise.like(carried, new, "reduce")
        except StopIteration:
            return lift(carried)
        finally:
            begun.close()

    def get_single_element(self) -> Any:
        """The one element."""
        found = list(self.take(2))
        if len(found) != 1:
            told = "no element" if not found else "more than one element"
            raise ConfigError(f"Pipeline.get_single_element: {told}; exactly one is needed")
        return found[0]

    def save(self, path: str) -> None:
        """Write all elements into the folder ``path``, for ``load``."""
        caching.save(self.stage, os.path.join(path, "elements"))

    def options(self) -> Options:
        """How it is spread over ranks."""
        return self._options

    def with_options(self: Self, options: Options) -> Self:
        """The same with other options."""
        return type(self)(self.stage, options)

    def distribute(self: Self, num_ranks: int, rank: int) -> Self:
        """The part of one rank of several, as ``options().auto_shard`` says. The elements are
        batches of all ranks together, unless it is FILE or OFF."""
        policy = self._options.auto_shard
        if policy == "OFF" or num_ranks == 1:
            return self
        if policy == "FILE":
            return self.shard(num_ranks, rank)
        return self._then(batching.Shared(self.stage, num_ranks, rank))

    @property
    def element_spec(self) -> Any:
        """What the elements look like. Functions of the program are called with zeros, or with the
        first element, to see what they return."""
        return self.stage.spec()

    def cardinality(self) -> int:
        """How many elements there are; INFINITE (-1), UNKNOWN (-2)."""
        return self.stage.cardinality()

    def __len__(self) -> int:
        count = self.cardinality()
        if count < 0:
            told = "infinite" if count == INFINITE else "unknown"
            raise TypeError(f"Pipeline: its length is {told}; cardinality() says so without an error")
        return count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> PipelineIterator:
        return self._begun(lift)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Elements as numpy arrays and numbers, and ``bytes``."""
        return self._begun(lambda element: map_leaves(_as_numpy, element))

    def _begun(self, shown: Callable[[Any], Any]) -> PipelineIterator:
        out = PipelineIterator(self.stage.begin(), shown)
        state, self._resumed = self._resumed, None
        if state is not None:
            out.load_state_dict(state)
        self._last = weakref.ref(out)
        return out

    def state_dict(self) -> dict[str, Any]:
        """The position of the iterator that was begun last, which must be there still."""
        if self._resumed is not None:
            return self._resumed
        last = None if self._last is None else self._last()
        if last is None and self._last is not None:
            raise ConfigError("Pipeline.state_dict: its last iterator is gone; keep it while its "
                              "position may be asked for: it = iter(pipeline)")  # fmt: skip
        return fresh() if last is None else last.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next iterator goes on there; after a whole pass a new one begins."""
        check(state_dict)
        self._resumed = None if state_dict["finished"] else state_dict

    def packed(self) -> dict[str, Any]:
        """As data, where it is a list of elements."""
        if not isinstance(self.stage, sources.Listed):
            raise ConfigError("Pipeline: elements that are pipelines of functions cannot be saved "
                              "or kept; use flat_map before")  # fmt: skip
        return {"elements": self.stage.elements}

    def __repr__(self) -> str:
        return f"<Pipeline of {type(self.stage).__name__}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}


def _as_numpy(leaf: Any) -> Any:
    if isinstance(leaf, Pipeline):
        return leaf
    array = leaf if isinstance(leaf, np.ndarray) else leaf.cpu().numpy()
    return array[()] if array.ndim == 0 else array


Stage.nested = staticmethod(lambda elements: Pipeline(sources.Listed(elements)))
