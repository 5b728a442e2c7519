"""``tf.io``: files of records, examples as tensors, tensors as texts (``tensor.proto``)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import protobuf as pb
from ...data.examples import BytesList, Example, Feature, FloatList, Int64List
from ...errors import SerializationError
from ...metrics import RecordWriter
from ...tfrecord import opened
from .data import invalid
from .tensor import convert, wrap
from .types import DType, as_dtype


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
        super().write(record.numpy() if hasattr(record, "numpy") else record)

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature of so many values."""

    shape: Any
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature of any number of values of a shape; in a batch they are filled up."""

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class VarLenFeature:
    """Refused: it would be a sparse tensor."""

    def __init__(self, dtype: Any) -> None:
        raise NotImplementedError(
            "tf.io.VarLenFeature gives sparse tensors, which are not there; use "
            "tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True), which gives dense ones"
        )


_LIST_OF = {"string": BytesList, "float32": FloatList, "int64": Int64List}


def _values(found: Feature | None, name: str, want: Any, kind: DType) -> np.ndarray | None:
    if found is None or not found.WhichOneof():
        return None
    word = _LIST_OF[kind.name].word
    if found.WhichOneof() != word:
        raise invalid(f"Key: {name}.  Data types don't match. Expected type: {kind.name}, but the "
                      f"example has {found.WhichOneof()}")  # fmt: skip
    return np.array(
        getattr(found, word).value, object if kind.inner is None else kind.as_numpy_dtype
    )


def _feature(found: Feature | None, name: str, want: Any) -> np.ndarray:
    kind, shape = as_dtype(want.dtype), [int(n) for n in want.shape]
    values = _values(found, name, want, kind)
    if isinstance(want, FixedLenSequenceFeature):
        values = np.zeros(0, kind.as_numpy_dtype) if values is None else values
        return values.reshape([-1, *shape])
    if values is None:
        if want.default_value is None:
            raise invalid(f"Feature: {name} (data type: {kind.name}) is required but could not be "
                          "found.")  # fmt: skip
        default = convert(want.default_value, kind).numpy()
        return np.broadcast_to(np.asarray(default), shape).copy()
    size = int(np.prod(shape, dtype=int))
    if values.size != size:
        raise invalid(f"Key: {name}.  Can't parse serialized Example: {values.size} values given; "
                      f"the shape {shape} needs {size}")  # fmt: skip
    return values.reshape(shape)


def _example(data: bytes) -> Example:
    try:
        found: Example = Example.FromString(data)
    except (SerializationError, IndexError, ValueError, UnicodeDecodeError) as error:
        raise invalid(f"Could not parse example input, value: {data[:32]!r}: {error}") from None
    return found


def _tensor(array: np.ndarray) -> Any:
    return wrap(array) if array.dtype == object else convert(array)


def parse_single_example(
    serialized: Any, features: dict, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """The tensors of one ``Example``."""
    found = _example(convert(serialized).numpy()).features.feature
    return {k: _tensor(_feature(found.get(k), k, want)) for k, want in features.items()}


def parse_example(
    serialized: Any, features: dict, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """The tensors of several, stacked; sequences are filled up."""
    rows = [_example(data).features.feature for data in convert(serialized).numpy().tolist()]
    return {
        k: _tensor(_stacked([_feature(row.get(k), k, want) for row in rows], want))
        for k, want in features.items()
    }


def _stacked(arrays: list, want: Any) -> np.ndarray:
    if isinstance(want, FixedLenSequenceFeature):
        longest = max((len(a) for a in arrays), default=0)
        empty = b"" if arrays[0].dtype == object else 0
        fill = empty if want.default_value is None else want.default_value
        more = [np.full((longest - len(a), *a.shape[1:]), fill, a.dtype) for a in arrays]
        arrays = [np.concatenate(pair) for pair in zip(arrays, more, strict=True)]
    return np.stack(arrays)


def serialize_tensor(tensor: Any, name: str | None = None) -> Any:
    """A ``TensorProto`` as bytes."""
    t = convert(tensor)
    array = np.asarray(t.numpy())
    sizes = b"".join(pb.nested(2, pb.integer(1, n) if n else b"") for n in array.shape)
    head = pb.integer(1, t.dtype.as_datatype_enum) + pb.nested(2, sizes)
    if t.dtype.inner is None:
        body = b"".join(pb.nested(8, v) for v in array.reshape(-1).tolist())
    else:
        body = pb.nested(4, array.tobytes())
    return wrap(np.array(head + body, object))


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Any:
    """The tensor of ``serialize_tensor``."""
    wanted, raw = as_dtype(out_type), b""
    sizes: list[Any] = []
    texts: list[Any] = []
    for field, value in pb.fields(convert(serialized).numpy()):
        if field == 1 and value != wanted.as_datatype_enum:
            raise invalid(f"Type mismatch between parsed tensor ({as_dtype(value).name}) and dtype "
                          f"({wanted.name})")  # fmt: skip
        if field == 2 and isinstance(value, bytes):
            sizes = [
                dict(pb.fields(v)).get(1, 0) for f, v in pb.fields(value) if isinstance(v, bytes)
            ]
        elif field == 4 and isinstance(value, bytes):
            raw = value
        elif field == 8:
            texts.append(value)
    if wanted.inner is None:
        return wrap(np.array(texts, object).reshape(sizes))
    return convert(np.frombuffer(raw, wanted.as_numpy_dtype).reshape(sizes).copy())


IO: dict[str, Any] = {
    "TFRecordOptions": TFRecordOptions, "TFRecordWriter": TFRecordWriter,
    "FixedLenFeature": FixedLenFeature, "FixedLenSequenceFeature": FixedLenSequenceFeature,
    "VarLenFeature": VarLenFeature, "parse_single_example": parse_single_example,
    "parse_example": parse_example, "serialize_tensor": serialize_tensor,
    "parse_tensor": parse_tensor,
}  # fmt: skip
