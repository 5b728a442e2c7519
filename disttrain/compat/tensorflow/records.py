"""``tf.io``: files of records, examples as tensors, tensors as texts. The messages are those of
``disttrain.data.examples``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data import examples
from ...metrics import RecordWriter
from ...tfrecord import opened
from .data import DatasetV2
from .tensor import convert
from .types import as_dtype

given, shown, told = DatasetV2.given, DatasetV2.shown, DatasetV2.told


@dataclass(frozen=True)
class TFRecordOptions:
    """How records are compressed."""

    compression_type: str | None = None


class TFRecordWriter(RecordWriter):
    """Writes records into a file."""

    def __init__(self, path: Any, options: Any = None) -> None:
        kind = getattr(options, "compression_type", options) or ""
        super().__init__(opened(os.fspath(path), "wb", kind))

    def write(self, record: Any) -> None:
        """Write one record."""
        super().write(convert(record).numpy())

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class VarLenFeature:
    """Refused: it would be a sparse tensor."""

    def __init__(self, dtype: Any) -> None:
        raise NotImplementedError(
            "tf.io.VarLenFeature gives sparse tensors, which are not there; use "
            "tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True), which gives dense ones"
        )


def parse_single_example(
    serialized: Any, features: dict, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """The tensors of one ``Example``."""
    with told():
        return dict(shown(examples.parse(given(serialized).item(), features)))


def parse_example(
    serialized: Any, features: dict, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """The tensors of several, stacked."""
    with told():
        return dict(shown(examples.parse_batch(given(serialized).tolist(), features)))


def serialize_tensor(tensor: Any, name: str | None = None) -> Any:
    """A ``TensorProto`` as bytes."""
    t = convert(tensor)
    kind = object if t.dtype.inner is None else t.dtype.as_numpy_dtype
    return shown(examples.tensor_bytes(np.asarray(t.numpy(), kind), t.dtype.as_datatype_enum))


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Any:
    """The tensor of ``serialize_tensor``."""
    kind, data = as_dtype(out_type), given(serialized).item()
    with told():
        return shown(examples.tensor_of(data, kind.as_datatype_enum, kind.as_numpy_dtype))


IO: dict[str, Any] = {
    "FixedLenFeature": examples.FixedLenFeature,
    "FixedLenSequenceFeature": examples.FixedLenSequenceFeature,
    **{f.__name__: f for f in (TFRecordOptions, TFRecordWriter, VarLenFeature, parse_single_example,
                               parse_example, serialize_tensor, parse_tensor)},
}  # fmt: skip
