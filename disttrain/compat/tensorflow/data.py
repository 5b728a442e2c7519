"""``tf.data``: TensorFlow's names over pipelines. What a stage does, ``disttrain.data.pipeline``
says.

Functions given are called with TensorFlow's tensors for each element, as Python runs them: they are
not traced, so they may read numbers, and their side effects happen each time.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...data.pipeline import AUTOTUNE, Pipeline, PipelineSpec
from ...data.pipeline import TensorSpec as PlainSpec
from ...data.pipeline.elements import flatten, lift, map_leaves
from ...errors import DisttrainError, SerializationError
from ...graphs import outside
from ...graphs.streams import drawn
from ..publish import MissingName, lacking
from . import random as streams
from .errors import NAMES
from .tensor import GRAPH, convert, wrap
from .types import TensorShape, TensorSpec, as_dtype

INFINITE_CARDINALITY, UNKNOWN_CARDINALITY = -1, -2


# --- elements on both sides -----------------------------------------------------------------------
def shown(value: Any) -> Any:
    """An element of a pipeline as TensorFlow's."""
    return map_leaves(_shown, value)


def _shown(leaf: Any) -> Any:
    if isinstance(leaf, Pipeline):
        return DatasetV2(leaf)
    if isinstance(leaf, bytes):
        return wrap(np.array(leaf, object))
    return wrap(lift(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype != object else leaf)


def given(value: Any) -> Any:
    """What a program gives as an element, for a pipeline."""
    return map_leaves(_given, value)


def _given(leaf: Any) -> Any:
    return leaf.pipeline if isinstance(leaf, DatasetV2) else convert(leaf)._value


def _taken(leaf: Any) -> Any:
    return _given(leaf) if hasattr(leaf, "_value") or hasattr(leaf, "_as_tensor") else leaf


def _called(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with outside():  # elements are made as they come, in a traced loop, too
            return given(fn(*[shown(a) for a in args]))

    return call


def _plain(value: Any) -> Any:
    return value.numpy().tolist() if hasattr(value, "numpy") else value


def _shapes(shapes: Any) -> Any:
    if isinstance(shapes, dict):
        return {k: _shapes(v) for k, v in shapes.items()}
    if isinstance(shapes, TensorShape):
        return None if shapes.rank is None else shapes.as_list()
    if isinstance(shapes, tuple) and not all(n is None or isinstance(n, int) for n in shapes):
        return tuple(_shapes(s) for s in shapes)
    return _plain(shapes)


def invalid(message: str, name: str = "InvalidArgumentError") -> Exception:
    """An error of ``tf.errors``."""
    found: Exception = NAMES[name](None, None, message)
    return found


def _words(error: Exception) -> str:
    return str(error).replace("Pipeline", "Dataset").replace("a pipeline", "a dataset")


@contextlib.contextmanager
def told(same: type[BaseException] | tuple = ()) -> Iterator[None]:
    """Errors of pipelines as ``tf.errors``; those of ``same`` stay."""
    try:
        yield
    except same:
        raise
    except SerializationError as error:
        raise invalid(_words(error), "DataLossError") from error
    except DisttrainError as error:
        raise invalid(_words(error)) from error
    except FileNotFoundError as error:
        raise invalid(f"{error.filename}; No such file or directory", "NotFoundError") from error


# --- specifications and options -------------------------------------------------------------------
class DatasetSpec:
    """What a dataset in an element is made of."""

    def __init__(self, element_spec: Any, dataset_shape: Any = ()) -> None:
        self.element_spec, self.dataset_shape = element_spec, TensorShape(dataset_shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetSpec) and self.element_spec == other.element_spec

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r}, {self.dataset_shape!r})"


def _spec_shown(spec: Any) -> Any:
    if isinstance(spec, PipelineSpec):
        return DatasetSpec(map_leaves(_spec_shown, spec.element_spec))
    return TensorSpec(TensorShape(spec.shape), as_dtype(spec.dtype))


def _spec_given(spec: Any) -> PlainSpec:
    kind, shape = spec.dtype, TensorShape(spec.shape)
    sizes = None if shape.rank is None else tuple(shape.as_list())
    return PlainSpec(sizes, kind.name if kind.inner is None else np.dtype(kind.as_numpy_dtype))


class AutoShardPolicy(enum.IntEnum):
    """How a dataset is spread over workers."""

    OFF, AUTO, FILE, DATA, HINT = -1, 0, 1, 2, 3


class Options:
    """What may be chosen of a dataset. What concerns speed alone has no effect."""

    def __init__(self) -> None:
        policy = AutoShardPolicy.AUTO
        self.experimental_distribute = SimpleNamespace(auto_shard_policy=policy, num_devices=None)
        self.experimental_optimization, self.threading = SimpleNamespace(), SimpleNamespace()
        self.autotune = SimpleNamespace()
        self.deterministic = self.experimental_deterministic = None

    def merge(self, options: Options) -> Options:
        """``options`` over these."""
        out = Options()
        for mine in (self, options):
            vars(out).update({k: v for k, v in vars(mine).items() if v is not None})
        return out


# --- datasets -------------------------------------------------------------------------------------
class OwnedIterator:
    """One pass through a dataset; a ``tf.train.Checkpoint`` keeps its position."""

    def __init__(self, dataset: DatasetV2, begin: Callable[[Pipeline], Any] = iter) -> None:
        self._dataset, self._begin = dataset, begin
        self._iterator = begin(dataset.pipeline)

    def __iter__(self) -> OwnedIterator:
        return self

    def __next__(self) -> Any:
        if GRAPH.get() is not None:
            return drawn(self.get_next, self.element_spec)
        with told():
            return shown(next(self._iterator))

    next = __next__

    def get_next(self, name: str | None = None) -> Any:
        """The next element; ``OutOfRangeError`` at the end."""
        try:
            return self.__next__()
        except StopIteration:
            raise invalid("End of sequence", "OutOfRangeError") from None

    @property
    def element_spec(self) -> Any:
        """What an element looks like."""
        return self._dataset.element_spec

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        found: dict[str, Any] = self._iterator.state_dict()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there, from anywhere."""
        self._iterator.close()
        self._iterator = self._begin(self._dataset.pipeline)
        self._iterator.load_state_dict(state)


class NumpyIterator(OwnedIterator):
    """Elements as numpy's arrays, numbers and ``bytes``."""

    def __init__(self, dataset: DatasetV2) -> None:
        super().__init__(dataset, Pipeline.as_numpy_iterator)

    def __next__(self) -> Any:
        with told():
            return map_leaves(
                lambda x: DatasetV2(x) if isinstance(x, Pipeline) else x, next(self._iterator)
            )


class DatasetV2:
    """A dataset: a pipeline under TensorFlow's names."""

    def __init__(self, pipeline: Pipeline, kind: str = "", options: Options | None = None) -> None:
        self.pipeline, self._kind, self._options = pipeline, kind, options or Options()

    def __iter__(self) -> OwnedIterator:
        return OwnedIterator(self)

    def as_numpy_iterator(self) -> NumpyIterator:
        """Elements as numpy's."""
        return NumpyIterator(self)

    def __len__(self) -> int:
        count = self.pipeline.cardinality()
        if count < 0:
            what = "is infinite" if count == INFINITE_CARDINALITY else "length is unknown"
            raise TypeError(f"The dataset {what}.")
        return count

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "pipeline":
            raise AttributeError(name)
        raise MissingName(lacking(f"tensorflow.data.Dataset.{name}", DatasetV2))

    def __repr__(self) -> str:
        return f"<_{self._kind}Dataset element_spec={self.element_spec!r}>"

    @property
    def element_spec(self) -> Any:
        """What an element looks like."""
        return map_leaves(_spec_shown, self.pipeline.element_spec)

    def cardinality(self, name: str | None = None) -> Any:
        """How many elements, as a tensor."""
        return convert(np.int64(self.pipeline.cardinality()))

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> DatasetV2:
        """The rows of tensors."""
        if hasattr(tensors, "columns"):  # a data frame
            tensors = tensors.to_numpy()
        found = given(tensors)
        shapes = [tuple(leaf.shape) for leaf in flatten(found)[0]]
        if () in shapes:
            raise ValueError("Unbatching a tensor is only supported for rank >= 1")
        other = next((s[0] for s in shapes if s[0] != shapes[0][0]), None)
        if other is not None:
            raise ValueError(f"Dimensions {shapes[0][0]} and {other} are not compatible")
        return DatasetV2(Pipeline.from_tensor_slices(found), "TensorSlice")

    @staticmethod
    def from_generator(
        generator: Callable[..., Any], output_types: Any = None, output_shapes: Any = None,
        args: Any = None, output_signature: Any = None, name: str | None = None,
    ) -> DatasetV2:  # fmt: skip
        """What ``generator(*args)`` gives, as ``output_signature`` says."""
        if not callable(generator):
            raise TypeError("`generator` must be a Python callable.")
        if output_signature is None:
            if output_types is None:
                raise TypeError("To specify the output signature you need to provide either the "
                                "`output_signature` argument or the `output_types` argument."
                                )  # fmt: skip
            output_signature = _signature(output_types, output_shapes)
        held = [convert(a).numpy() for a in args or ()]
        rows = lambda: (map_leaves(_taken, row) for row in generator(*held))  # noqa: E731
        made = Pipeline.from_generator(rows, map_leaves(_spec_given, output_signature))
        return DatasetV2(made, "FlatMap")

    @staticmethod
    def range(*args: Any, output_type: Any = "int64", name: str | None = None) -> DatasetV2:
        """Whole numbers."""
        kind = as_dtype(output_type).as_numpy_dtype
        return DatasetV2(Pipeline.range(*map(_plain, args), dtype=kind), "Range")

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> DatasetV2:
        """An element of each."""
        tree = datasets if datasets is not None else args[0] if len(args) == 1 else args
        for d in flatten(tree)[0]:
            if not isinstance(d, DatasetV2):
                raise TypeError(
                    "Invalid input to `zip`. Inputs are expected to be (nested) structures of "
                    f"`tf.data.Dataset` objects but encountered object of type {type(d)}."
                )
        return DatasetV2(Pipeline.zip(given(tree)), "Zip")

    def reduce(self, initial_state: Any, reduce_func: Any, name: str | None = None) -> Any:
        """``reduce_func(state, element)`` over all."""
        with told():
            return shown(self.pipeline.reduce(given(initial_state), _called(reduce_func)))

    def apply(self, transformation_func: Any) -> Any:
        """``transformation_func(self)``."""
        return transformation_func(self)

    def get_single_element(self, name: str | None = None) -> Any:
        """The one element."""
        with told():
            return shown(self.pipeline.get_single_element())

    def save(self, path: Any, *args: Any, **options: Any) -> None:
        """Write all elements into a folder."""
        with told():
            self.pipeline.save(os.fspath(path))

    def options(self) -> Options:
        """Its options."""
        return self._options

    def with_options(self, options: Options, name: str | None = None) -> DatasetV2:
        """The same with other options."""
        return DatasetV2(self.pipeline, "Options", self._options.merge(options))


def _signature(types: Any, shapes: Any) -> Any:
    if isinstance(types, tuple):
        return tuple(_signature(t, shapes and shapes[i]) for i, t in enumerate(types))
    if isinstance(types, dict):
        return {k: _signature(t, shapes and shapes[k]) for k, t in types.items()}
    return TensorSpec(shapes, types)


# --- what is the pipeline's under the same name ---------------------------------------------------
_ELEMENTS = {"tensors", "initial_state", "padding_values", "target_dist", "initial_dist",
             "file_pattern", "filenames"}  # fmt: skip
_UNUSED = ("num_parallel_calls", "deterministic", "synchronous", "use_unbounded_threadpool",
           "buffer_size", "name")  # fmt: skip


def _parameter(name: str, value: Any) -> Any:
    if name.endswith(("_func", "predicate")):
        if not callable(value):
            raise ValueError(
                f"Argument `func` must be a callable. Received func={value} (of type {type(value)})"
            )
        return _called(value)
    if isinstance(value, DatasetV2):
        return value.pipeline
    if name == "datasets":
        if not value:
            raise ValueError("Invalid `datasets`. `datasets` should not be empty.")
        return [d.pipeline for d in value]
    if name in _ELEMENTS:
        return given(value)
    if name == "padded_shapes":
        return _shapes(value)
    if name == "dtype":
        return as_dtype(value).as_numpy_dtype
    found = _plain(value)
    if isinstance(found, str) and name in ("batch_size", "count", "size", "buffer_size"):
        raise TypeError(f"Cannot convert {found!r} to EagerTensor of dtype int64")
    return found.decode() if isinstance(found, bytes) else found


def _same(word: str, kind: str, name: str = "", **others: str) -> Callable[..., Any]:
    """A method (or a function, of a source) with the parameters of the pipeline's ``word``, called
    ``name``; ``others``: parameters of other names. TensorFlow's of speed are taken and unused."""
    native = getattr(Pipeline, word)
    mine = list(inspect.signature(native).parameters.values())
    mine = [p.replace(name=others.get(p.name, p.name)) for p in mine if p.name != "self"]
    names = {p.name for p in mine}
    more = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
            for n in _UNUSED if n not in names]  # fmt: skip
    signature = inspect.Signature([*mine, *more])
    needed = {p.name for p in mine if p.default is p.empty}
    back = {theirs: ours for ours, theirs in others.items()}

    def make(fn: Any, options: Options | None, args: tuple, kwargs: dict) -> DatasetV2:
        bound = signature.bind(*args, **kwargs).arguments
        values = {back.get(k, k): _parameter(k, v) for k, v in bound.items()
                  if k in names and (v is not None or k in needed)}  # fmt: skip
        if "seed" in names:
            values["seed"] = streams._current().pair(values.get("seed"))
        with told(FileNotFoundError):
            return DatasetV2(fn(**values), kind, options)

    def method(self: DatasetV2, *args: Any, **kwargs: Any) -> DatasetV2:
        return make(getattr(self.pipeline, word), self._options, args, kwargs)

    def source(*args: Any, **kwargs: Any) -> DatasetV2:
        return make(native, None, args, kwargs)

    found: Any = source if inspect.ismethod(native) else method
    found.__name__ = found.__qualname__ = name or word
    found.__doc__ = native.__doc__
    return found


for _word, _kind in {
    "from_tensors": "Tensor", "counter": "Counter", "list_files": "Shuffle",
    "random": "Random", "load": "Load",
    "choose_from_datasets": "DirectedInterleave", "sample_from_datasets": "DirectedInterleave",
    "map": "Map", "filter": "Filter", "interleave": "Interleave", "flat_map": "FlatMap",
    "scan": "Scan", "take_while": "TakeWhile", "take": "Take", "skip": "Skip", "shard": "Shard",
    "enumerate": "Zip", "unbatch": "Unbatch", "unique": "Unique", "ignore_errors": "IgnoreErrors",
    "batch": "Batch", "padded_batch": "PaddedBatch", "ragged_batch": "Batch", "window": "Window",
    "rebatch": "Rebatch", "group_by_window": "GroupByWindow", "cache": "Cache",
    "bucket_by_sequence_length": "GroupByWindow", "rejection_resample": "RejectionResample",
    "concatenate": "Concatenate", "repeat": "Repeat", "shuffle": "Shuffle", "prefetch": "Prefetch",
}.items():  # fmt: skip
    _made = _same(_word, _kind)
    _alone = inspect.ismethod(getattr(Pipeline, _word))
    setattr(DatasetV2, _word, staticmethod(_made) if _alone else _made)
# By its module other libraries know a dataset of TensorFlow.
DatasetV2.__module__ = "tensorflow.python.data.ops.dataset_ops"


# --- tf.data.experimental -------------------------------------------------------------------------
def _applied(word: str) -> Callable[..., Any]:
    """A function that returns what ``Dataset.apply`` takes."""
    return lambda *args, **kwargs: lambda dataset: getattr(dataset, word)(*args, **kwargs)


def assert_cardinality(expected_cardinality: Any) -> Any:
    """Sees to it that there are so many elements."""
    count = _plain(expected_cardinality)
    return lambda d: DatasetV2(d.pipeline.assert_cardinality(count), "AssertCardinality")


CONSTANTS = {"AUTOTUNE": AUTOTUNE, "INFINITE_CARDINALITY": INFINITE_CARDINALITY,
             "UNKNOWN_CARDINALITY": UNKNOWN_CARDINALITY}  # fmt: skip

EXPERIMENTAL: dict[str, Any] = {
    **CONSTANTS, "AutoShardPolicy": AutoShardPolicy, "assert_cardinality": assert_cardinality,
    "shuffle_and_repeat": lambda size, count=None, seed=None: (
        lambda d: d.shuffle(size, seed).repeat(count)
    ),
    "map_and_batch": lambda fn, size, num_parallel_batches=None, drop_remainder=False, calls=None: (
        lambda d: d.map(fn, calls).batch(size, drop_remainder)
    ),
    "prefetch_to_device": lambda device, buffer_size=None: lambda d: d.prefetch(buffer_size),
    "cardinality": DatasetV2.cardinality, "get_single_element": DatasetV2.get_single_element,
    "save": DatasetV2.save, "Counter": getattr(DatasetV2, "counter"),  # noqa: B009
    "enumerate_dataset": _applied("enumerate"),
    **{word: getattr(DatasetV2, word) for word in (
        "load", "sample_from_datasets", "choose_from_datasets")},
    **{word: _applied(word) for word in (
        "bucket_by_sequence_length", "group_by_window", "ignore_errors", "rejection_resample",
        "scan", "take_while", "unbatch", "unique")},
}  # fmt: skip

NAMED: dict[str, Any] = {
    **CONSTANTS, "Dataset": DatasetV2, "DatasetSpec": DatasetSpec, "Iterator": OwnedIterator,
    "NumpyIterator": NumpyIterator, "Options": Options,
    "TFRecordDataset": _same("tfrecords", "TFRecord", "TFRecordDataset",
                             compression="compression_type"),
    "TextLineDataset": _same("text_lines", "TextLine", "TextLineDataset",
                             compression="compression_type"),
}  # fmt: skip
