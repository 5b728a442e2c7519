"""Pipeline: a chain of stages over a stream of elements, from a source to what training takes."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ...errors import ConfigError
from ...tfrecord import records
from . import batching, caching, combining, elementwise, shuffling, sources
from .chain import Chain, Options, seeds_of
from .elements import flatten, lift, lower, map_leaves
from .iteration import PipelineIterator, check, fresh
from .specs import INFINITE, TEXT, TensorSpec
from .stage import Stage, raw_call

Self = TypeVar("Self", bound="Pipeline")


class Pipeline(Chain):
    """A stream of elements (tensors, texts, and tuples and dicts of them) as a chain of stages.

    Nothing runs before an element is asked for, and no more than buffers hold is kept. Each
    ``iter(pipeline)`` begins anew; several may be on their way at once. A function given gets the
    parts of a tuple as its arguments. Errors come where their elements would have; the elements
    after them can be asked for. ``state_dict()`` of an iterator, or of the pipeline for its last
    one, is the position, with what buffers hold.

    Names and meanings are those of TensorFlow's ``tf.data.Dataset``, and orders of ``shuffle`` of a
    seed are the same.
    """

    _resumed: dict[str, Any] | None = None

    # --- sources ----------------------------------------------------------------------------------

    @classmethod
    def from_tensors(cls: type[Self], tensors: Any) -> Self:
        """One element."""
        return cls(sources.Listed([lower(tensors)]))

    @classmethod
    def from_tensor_slices(cls: type[Self], tensors: Any) -> Self:
        """The rows of arrays of the same first size; of a data frame."""
        if hasattr(tensors, "columns"):
            tensors = tensors.to_numpy()
        return cls(sources.Slices(tensors))

    @classmethod
    def from_generator(
        cls: type[Self], generator: Callable[..., Iterable], output_signature: Any = None,
        args: Sequence = (),
    ) -> Self:  # fmt: skip
        """What ``generator(*args)`` gives, called anew for each pass; ``output_signature``: a
        structure of ``TensorSpec``, to which elements are converted and by which they are checked.
        A position is reached by passing over what came before it."""
        make = functools.partial(generator, *args) if args else generator
        return cls(sources.Generated(make, output_signature))

    @classmethod
    def range(cls: type[Self], *args: Any, dtype: Any = np.int64) -> Self:
        """Whole numbers, as Python's ``range``."""
        return cls(sources.Range(range(*[int(a) for a in args]), dtype))

    @classmethod
    def counter(cls: type[Self], start: Any = 0, step: Any = 1, dtype: Any = np.int64) -> Self:
        """``start``, ``start + step`` ... without end."""
        return cls(sources.Counted(start, step, dtype))

    @classmethod
    def list_files(
        cls: type[Self], file_pattern: Any, shuffle: bool | None = None, seed: Any = None
    ) -> Self:
        """The names of the files that match, shuffled anew in each pass, unless
        ``shuffle=False``."""
        found = sources.matching(file_pattern)
        out = cls.from_tensor_slices(found)
        return out.shuffle(len(found), seed) if shuffle is None or shuffle else out

    @classmethod
    def from_files(
        cls: type[Self],
        filenames: Any,
        reader: Callable[[str, int], Iterator[tuple[Any, int]]],
        spec: Any = None,
        num_parallel_reads: Any = None,
    ) -> Self:
        """What ``reader(path, place)`` finds in the files, as pairs of an element and the place
        after it; ``filenames`` are texts, or a pipeline of them. ``num_parallel_reads``: so many
        files in turn, each read by a thread. ``spec``: of the elements (None: texts)."""
        names = filenames
        if not isinstance(names, Pipeline):
            names = cls.from_tensor_slices(np.atleast_1d(lower(filenames)))
        told = TensorSpec((), TEXT) if spec is None else spec
        if num_parallel_reads is None:
            return cls(sources.Files(names.stage, reader, told))

        def one(name: Any) -> Pipeline:
            return Pipeline(sources.Files(sources.Listed([lower(name)]), reader, told))

        return cls(names.interleave(one, num_parallel_reads, 1, num_parallel_reads).stage)

    @classmethod
    def text_lines(
        cls: type[Self], filenames: Any, compression: str = "", num_parallel_reads: Any = None
    ) -> Self:
        """The lines of the files, as bytes. ``compression``: "", "GZIP" or "ZLIB"."""
        read = functools.partial(sources.lines, compression=compression)
        return cls.from_files(filenames, read, None, num_parallel_reads)

    @classmethod
    def tfrecords(
        cls: type[Self], filenames: Any, compression: str = "", num_parallel_reads: Any = None
    ) -> Self:
        """The records of TFRecord files, as bytes."""
        read = functools.partial(records, compression=compression)
        return cls.from_files(filenames, read, None, num_parallel_reads)

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
    def zip(cls: type[Self], *pipelines: Any, structure: Any = None) -> Self:
        """Tuples (or the structure given) of one element of each; ends with the shortest."""
        tree = pipelines[0] if len(pipelines) == 1 else pipelines or structure
        for p in flatten(tree)[0]:
            if not isinstance(p, Pipeline):
                raise TypeError(
                    f"Invalid input to `zip`: {type(p).__name__} given; pipelines are needed"
                )
        return cls(combining.Zipped(map_leaves(lambda p: p.stage, tree)))

    @classmethod
    def choose_from_datasets(
        cls: type[Self],
        datasets: Sequence,
        choice_dataset: Pipeline,
        stop_on_empty_dataset: bool = True,
    ) -> Self:
        """An element of the one whose number ``choice_dataset`` gives."""
        if not datasets:
            raise ValueError("Invalid `datasets`. `datasets` should not be empty.")
        stages = [d.stage for d in datasets]
        return cls(combining.Chosen(choice_dataset.stage, stages, stop_on_empty_dataset))

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
        if not datasets:
            raise ValueError("Invalid `datasets`. `datasets` should not be empty.")
        given = [1.0] * len(datasets) if weights is None else np.asarray(weights, float).tolist()
        if len(given) != len(datasets) or min(given) < 0 or not max(given) > 0:
            raise ConfigError(
                f"Pipeline.sample_from_datasets: {len(datasets)} datasets, weights {weights} "
                "given; one weight of 0 or more for each is needed, not all 0"
            )
        choice = shuffling.Indices(given, seeds_of(seed), rerandomize_each_iteration)
        stages = [d.stage for d in datasets]
        return cls(combining.Chosen(choice, stages, stop_on_empty_dataset))

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

    def __len__(self) -> int:
        count = self.cardinality()
        if count < 0:
            told = "infinite" if count == INFINITE else "unknown"
            raise TypeError(
                f"Pipeline: its length is {told}; cardinality() says so without an error"
            )
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
