"""``tf.data``: TensorFlow's names over pipelines. What a stage does, ``disttrain.data.pipeline``
says.

Functions given are called with TensorFlow's tensors for each element, as Python runs them: they are
not traced, so they may read numbers, and their side effects happen each time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...data.pipeline import AUTOTUNE, Pipeline, PipelineSpec, views
from ...data.pipeline import TensorSpec as PlainSpec
from ...data.pipeline.elements import lift, map_leaves, paired
from ...errors import ShapeError
from ...keyed import streams
from ..publish import MissingName, lacking
from .dispatch import plain
from .errors import invalid
from .tensor import convert, wrap
from .types import TensorShape, TensorSpec, as_dtype

CONSTANTS = {"AUTOTUNE": AUTOTUNE, "INFINITE_CARDINALITY": -1, "UNKNOWN_CARDINALITY": -2}
_ERRORS = {"missing": "NotFoundError", "damaged": "DataLossError"}


class DatasetSpec(PipelineSpec):
    """What a dataset in an element is made of."""

    dataset_shape: Any

    def __init__(self, element_spec: Any, dataset_shape: Any = ()) -> None:
        vars(self).update(element_spec=element_spec, dataset_shape=TensorShape(dataset_shape))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r}, {self.dataset_shape!r})"


def _spec_given(spec: Any) -> PlainSpec:
    kind, sizes = spec.dtype, TensorShape(spec.shape).dims
    text, sizes = kind.inner is None, None if sizes is None else tuple(sizes)
    return PlainSpec(sizes, kind.name if text else np.dtype(kind.as_numpy_dtype))


# How a dataset is spread over workers.
AutoShardPolicy: Any = enum.IntEnum(
    "AutoShardPolicy", {"OFF": -1, "AUTO": 0, "FILE": 1, "DATA": 2, "HINT": 3}
)


class Options(views.Settings):
    """What may be chosen of a dataset. What concerns speed alone has no effect."""

    def __init__(self) -> None:
        spread = SimpleNamespace(auto_shard_policy=AutoShardPolicy.AUTO, num_devices=None)
        parts = {w: SimpleNamespace() for w in (
            "experimental_optimization", "threading", "autotune")}  # fmt: skip
        super().__init__(experimental_distribute=spread, deterministic=None,
                         experimental_deterministic=None, **parts)  # fmt: skip


class OwnedIterator(views.ViewIterator):
    """One pass through a dataset; a ``tf.train.Checkpoint`` keeps its position."""

    next = views.ViewIterator.__next__

    def get_next(self, name: str | None = None) -> Any:
        """The next element; ``OutOfRangeError`` at the end."""
        try:
            return self.__next__()
        except StopIteration:
            raise invalid("End of sequence", "OutOfRangeError") from None


class NumpyIterator(views.ArrayIterator, OwnedIterator):
    """Elements as numpy's arrays, numbers and ``bytes``."""


class DatasetV2(views.View):
    """A dataset: a pipeline under TensorFlow's names."""

    noun, iterator, arrays = "dataset", OwnedIterator, NumpyIterator
    unused = ("num_parallel_calls", "deterministic", "synchronous", "use_unbounded_threadpool",
              "buffer_size", "name")  # fmt: skip
    elements = views.View.elements | {
        "padding_values", "target_dist", "initial_dist", "file_pattern", "filenames"}  # fmt: skip
    give_leaf: Any = staticmethod(lambda leaf: convert(leaf)._value)
    seed: Any = staticmethod(lambda own: streams.seeds().pair(own))
    failed: Any = staticmethod(lambda kind, message: invalid(
        message, _ERRORS.get(kind, "InvalidArgumentError")))  # fmt: skip

    def __init__(self, pipeline: Pipeline, title: str = "", options: Any = None) -> None:
        super().__init__(pipeline, title, options or Options())

    @staticmethod
    def show_leaf(leaf: Any) -> Any:
        if isinstance(leaf, bytes):
            return wrap(np.array(leaf, object))
        return wrap(lift(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype != object else leaf)

    @staticmethod
    def show_spec(spec: Any) -> Any:
        if isinstance(spec, PipelineSpec):
            return DatasetSpec(spec.element_spec)
        return TensorSpec(TensorShape(spec.shape), as_dtype(spec.dtype))

    @staticmethod
    def parameter(name: str, value: Any) -> Any:
        if name in ("padded_shapes", "datasets"):
            return value
        if name == "dtype":
            return as_dtype(value).as_numpy_dtype
        found = plain(value)
        if isinstance(found, str) and name in ("batch_size", "count", "size", "buffer_size"):
            raise TypeError(f"Cannot convert {found!r} to EagerTensor of dtype int64")
        return found.decode() if isinstance(found, bytes) else found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "pipeline":
            raise AttributeError(name)
        raise MissingName(lacking(f"tensorflow.data.Dataset.{name}", DatasetV2))

    def __repr__(self) -> str:
        return f"<_{self.title}Dataset element_spec={self.element_spec!r}>"

    def cardinality(self, name: str | None = None) -> Any:
        """How many elements, as a tensor."""
        return convert(np.int64(self.pipeline.cardinality()))

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
                raise TypeError(
                    "To specify the output signature you need to provide either the "
                    "`output_signature` argument or the `output_types` argument."
                )
            spec = lambda kind, shape: TensorSpec(shape, kind)  # noqa: E731
            output_signature = paired(spec, output_types, output_shapes)
        signature, held = map_leaves(_spec_given, output_signature), map(convert, args or ())
        rows = Pipeline.from_generator(generator, signature, [t.numpy() for t in held])
        return DatasetV2(rows, "FlatMap")


views.offer(DatasetV2, """counter random load map filter interleave flat_map scan take_while take
    skip shard unbatch unique ignore_errors batch padded_batch window rebatch group_by_window cache
    rejection_resample concatenate repeat shuffle prefetch""", from_tensors="Tensor",
    list_files="Shuffle", choose_from_datasets="DirectedInterleave", enumerate="Zip",
    sample_from_datasets="DirectedInterleave", ragged_batch="Batch",
    bucket_by_sequence_length="GroupByWindow")  # fmt: skip
for _word, _title, _how in (
    ("from_tensor_slices", "TensorSlice", {"same": ShapeError}),
    ("range", "Range", {"dtype": "output_type"}), ("zip", "Zip", {"structure": "datasets"}),
):  # fmt: skip
    setattr(DatasetV2, _word, staticmethod(views.offered(DatasetV2, _word, _title, **_how)))
# By its module other libraries know a dataset of TensorFlow.
DatasetV2.__module__ = "tensorflow.python.data.ops.dataset_ops"

EXPERIMENTAL: dict[str, Any] = {
    **CONSTANTS, "AutoShardPolicy": AutoShardPolicy,
    "assert_cardinality": lambda expected_cardinality: lambda d: DatasetV2(
        d.pipeline.assert_cardinality(plain(expected_cardinality)), "AssertCardinality"),
    "shuffle_and_repeat": lambda size, count=None, seed=None: (
        lambda d: d.shuffle(size, seed).repeat(count)),
    "map_and_batch": lambda fn, size, num_parallel_batches=None, drop_remainder=False, calls=None: (
        lambda d: d.map(fn, calls).batch(size, drop_remainder)),
    "prefetch_to_device": lambda device, buffer_size=None: lambda d: d.prefetch(buffer_size),
    "Counter": getattr(DatasetV2, "counter"), "enumerate_dataset": views.applied("enumerate"),  # noqa: B009
    **{word: getattr(DatasetV2, word) for word in (
        "cardinality", "get_single_element", "save", "load", "sample_from_datasets",
        "choose_from_datasets")},
    **{word: views.applied(word) for word in (
        "bucket_by_sequence_length", "group_by_window", "ignore_errors", "rejection_resample",
        "scan", "take_while", "unbatch", "unique")},
}  # fmt: skip
NAMED: dict[str, Any] = {
    **CONSTANTS, "Dataset": DatasetV2, "DatasetSpec": DatasetSpec, "Iterator": OwnedIterator,
    "NumpyIterator": NumpyIterator, "Options": Options,
    **{name: views.offered(DatasetV2, word, title, name, compression="compression_type")
       for word, title, name in (("tfrecords", "TFRecord", "TFRecordDataset"),
                                 ("text_lines", "TextLine", "TextLineDataset"))},
}  # fmt: skip
