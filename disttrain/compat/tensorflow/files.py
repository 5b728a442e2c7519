"""``tf.train``, ``tf.io`` and ``tf.summary``: checkpoints of variables, models, optimizers and
iterators, files of records, examples as tensors, event files for TensorBoard.

Over ``disttrain.distributed.objects``, ``data.examples`` and ``metrics``. A checkpoint ``prefix``
is the one file ``prefix.index``; TensorFlow's own files are not read. Every event is on disk at
once, so there is nothing to flush.
"""

from __future__ import annotations

import os
from collections import namedtuple
from typing import Any

import numpy as np

import disttrain as dt

from ...data import examples
from ...data.pipeline.elements import as_leaf
from ...distributed.objects import LATE, CheckpointManager, ObjectCheckpoint, listing
from ...metrics import RecordWriter, current
from ...tfrecord import opened
from ..tables import passing
from .data import DatasetV2, OwnedIterator
from .tensor import convert
from .types import as_dtype
from .variable import Variable

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_given, _shown, _told = DatasetV2.given, DatasetV2.shown, DatasetV2.told


class Checkpoint(ObjectCheckpoint):
    """Objects with names, to be saved and restored together."""

    suffix = ".index"
    failed = DatasetV2.failed

    def is_iterator(self, value: Any) -> bool:
        return isinstance(value, OwnedIterator)

    def is_leaf(self, value: Any) -> bool:
        return self.is_iterator(value) or (hasattr(value, "assign") and hasattr(value, "shape"))

    def children(self, value: Any) -> Any:
        if not hasattr(value, "get_config"):
            return super().children(value)
        late = LATE.get() and not getattr(value, "built", True)
        return () if late else enumerate(value.variables)

    def held(self, value: Any) -> Any:
        array = as_leaf(value.numpy())
        return dt.tensor(array) if array.dtype != object else array

    def assign(self, value: Any, new: Any) -> None:
        value.assign(convert(new) if isinstance(value, Variable) else new)

    def count(self, more: bool) -> int:
        if self.save_counter is None:
            self.save_counter = Variable(np.int64(0), trainable=False, name="save_counter")
        self.save_counter.assign_add(int(more))
        return int(self.save_counter.numpy())

    def prepare(self) -> None:
        """Optimizers of Keras get their variables, which the checkpoint may have."""
        parts = list(vars(self).values())
        models = [p for p in parts if hasattr(p, "trainable_variables") and hasattr(p, "layers")]
        for part in parts:
            if models and hasattr(part, "apply_gradients") and not part.built:
                part.build(models[0].trainable_variables)


def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Names and shapes of what is in a checkpoint."""
    return [(f"{name}{_VALUE}", shape) for name, shape in Checkpoint.shapes(ckpt_dir_or_file)]


def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """The value of one variable, as numpy's."""
    return Checkpoint.value(ckpt_dir_or_file, name.removesuffix(_VALUE)).numpy()[()]


TRAIN: dict[str, Any] = {
    **{word: getattr(examples, word) for word in (
        "BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList",
        "Int64List", "SequenceExample")},
    **{word: passing(word, "checkpoint_dir latest_filename=None", fn) for word, fn in (
        ("latest_checkpoint", Checkpoint.latest), ("get_checkpoint_state", listing))},
    **{f.__name__: f for f in (Checkpoint, CheckpointManager, list_variables, load_variable)},
}  # fmt: skip
TFRecordOptions = namedtuple("TFRecordOptions", ["compression_type"], defaults=[None])


class TFRecordWriter(RecordWriter):
    """Writes records into a file."""

    def __init__(self, path: Any, options: Any = None) -> None:
        kind = getattr(options, "compression_type", options) or ""
        super().__init__(opened(os.fspath(path), "wb", kind))

    def write(self, record: Any) -> None:
        """Write one record."""
        super().write(convert(record).numpy())


def VarLenFeature(dtype: Any) -> Any:  # noqa: N802  (a class there)
    """Refused: it would be a sparse tensor."""
    raise NotImplementedError(
        "tf.io.VarLenFeature gives sparse tensors, which are not there; use "
        "tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True), which gives dense ones"
    )


def _parsed(word: str, parse: Any) -> Any:
    def function(serialized: Any, features: dict) -> dict[str, Any]:
        with _told():
            return dict(_shown(parse(_given(serialized).tolist(), features)))

    return passing(word, "serialized features _example_names=None _name=None", function)


def serialize_tensor(tensor: Any, name: str | None = None) -> Any:
    """A ``TensorProto`` as bytes."""
    t = convert(tensor)
    kind = object if t.dtype.inner is None else t.dtype.as_numpy_dtype
    return _shown(examples.tensor_bytes(np.asarray(t.numpy(), kind), t.dtype.as_datatype_enum))


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Any:
    """The tensor of ``serialize_tensor``."""
    kind, data = as_dtype(out_type), _given(serialized).item()
    with _told():
        return _shown(examples.tensor_of(data, kind.as_datatype_enum, kind.as_numpy_dtype))


IO: dict[str, Any] = {
    "FixedLenFeature": examples.FixedLenFeature,
    "FixedLenSequenceFeature": examples.FixedLenSequenceFeature,
    "parse_single_example": _parsed("parse_single_example", examples.parse),
    "parse_example": _parsed("parse_example", examples.parse_batch),
    **{f.__name__: f for f in (TFRecordOptions, TFRecordWriter, VarLenFeature, serialize_tensor,
                               parse_tensor)},
}  # fmt: skip


def _written(word: str, text: str) -> Any:
    def function(name: str, data: Any, step: Any = None, *how: Any) -> bool:
        rate, step, how = ((step,), how[0], how[1:]) if word == "audio" else ((), step, how)
        return current.write(word, name, convert(data)._value, step, *rate, *how)

    return passing(word, text, function)


SUMMARY: dict[str, Any] = {
    **{word: _written(word, text) for word, text in {
        "scalar": "name data step=None _description=None",
        "text": "name data step=None _description=None",
        "histogram": "name data step=None buckets=None _description=None",
        "image": "name data step=None max_outputs=3 _description=None",
        "audio": "name data sample_rate step=None max_outputs=3 _encoding=None _description=None",
        "write": "tag tensor step=None _metadata=None _name=None"}.items()},
    "SummaryWriter": current.Writer, "create_file_writer": passing(
        "create_file_writer", "logdir _max_queue=None _flush_millis=None filename_suffix=None "
        "_name=None _experimental_trackable=False", current.writer_of),
    "create_noop_writer": current.Writer, "flush": lambda writer=None, name=None: None,
    "record_if": lambda x: current.held(current.RECORD, x),
    "should_record_summaries": current.recording,
}  # fmt: skip
SUMMARY_EXPERIMENTAL: dict[str, Any] = {
    "get_step": current.STEP.get, "set_step": current.STEP.set,
    "summary_scope": lambda name, *_, **__: current.held(
        current.NAMES, (*current.NAMES.get(), name)),
}  # fmt: skip
