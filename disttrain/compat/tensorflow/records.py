"""``tf.io``'s records and ``tf.train.Example``: messages with TensorFlow's names over the wire format.

Field numbers are those of TensorFlow's ``example.proto``, ``feature.proto`` and ``tensor.proto``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import protobuf as pb
from ...errors import SerializationError
from ...metrics import RecordWriter
from ...tfrecord import opened
from .data import invalid
from .tensor import convert, wrap
from .types import DType, as_dtype


# --- messages -------------------------------------------------------------------------------------
class Message:
    """A message: ``parts`` gives its bytes, ``take`` reads a field."""

    def take(self, field: int, value: Any) -> None:
        """Read a field."""
        raise NotImplementedError

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:  # noqa: N802
        """The message as bytes."""
        raise NotImplementedError

    def MergeFromString(self, data: bytes) -> int:  # noqa: N802
        """Read bytes over what is there."""
        for field, value in pb.fields(bytes(data)):
            self.take(field, value)
        return len(data)

    ParseFromString = MergeFromString

    @classmethod
    def FromString(cls, data: bytes) -> Any:  # noqa: N802
        """The message of bytes."""
        out = cls()
        out.MergeFromString(data)
        return out

    def __eq__(self, other: object) -> bool:
        mine = self.SerializeToString(deterministic=True)
        return type(other) is type(self) and mine == other.SerializeToString(deterministic=True)

    __hash__ = None  # type: ignore[assignment]


class _List(Message):
    """A list of values of one kind."""

    word = ""

    def __init__(self, value: Iterable = ()) -> None:
        self.value: list = []
        self.value.extend(self.checked(v) for v in value)

    def checked(self, value: Any) -> Any:
        """A value, or a TypeError."""
        return value

    def __repr__(self) -> str:
        return "".join(f"value: {_text(v)}\n" for v in self.value)


def _text(value: Any) -> str:
    return '"' + repr(value)[2:-1] + '"' if isinstance(value, bytes) else repr(value)


class BytesList(_List):
    """Texts."""

    word = "bytes_list"

    def checked(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"{value!r} has type {type(value)}, but expected one of: bytes")
        return value

    def take(self, field: int, value: Any) -> None:
        self.value.append(value)

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        return b"".join(pb.nested(1, v) for v in self.value)


class FloatList(_List):
    """Numbers of 32 bits."""

    word = "float_list"

    def checked(self, value: Any) -> float:
        return float(np.float32(value))

    def take(self, field: int, value: Any) -> None:
        self.value.extend(np.frombuffer(value, "<f4").tolist())

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        return pb.nested(1, np.array(self.value, "<f4").tobytes()) if self.value else b""


class Int64List(_List):
    """Whole numbers."""

    word = "int64_list"

    def checked(self, value: Any) -> int:
        if isinstance(value, (float, np.floating, str, bytes)):
            raise TypeError(f"{value!r} has type {type(value)}, but expected one of: int")
        return int(value)

    def take(self, field: int, value: Any) -> None:
        self.value.extend([pb.signed(value)] if isinstance(value, int) else pb.unpacked(value))

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        return pb.integers(1, self.value) if self.value else b""


_KINDS = (BytesList, FloatList, Int64List)


class Feature(Message):
    """One of the three lists."""

    def __init__(self, **lists: Any) -> None:
        self._kind, self._list = "", BytesList()
        for kind in _KINDS:
            if lists.get(kind.word) is not None:
                self._kind, self._list = kind.word, lists.pop(kind.word)
        if any(v is not None for v in lists.values()):
            raise ValueError(f'Protocol message Feature has no "{next(iter(lists))}" field.')

    def WhichOneof(self, name: str = "kind") -> str | None:  # noqa: N802
        """Which list it has."""
        return self._kind or None

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Does it have this list?"""
        return self._kind == name

    def _of(self, kind: Any) -> Any:
        return self._list if self._kind == kind.word else kind()

    bytes_list = property(lambda self: self._of(BytesList))
    float_list = property(lambda self: self._of(FloatList))
    int64_list = property(lambda self: self._of(Int64List))

    def take(self, field: int, value: Any) -> None:
        kind = _KINDS[field - 1]
        self._kind, self._list = kind.word, kind.FromString(value)

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        if not self._kind:
            return b""
        number = [kind.word for kind in _KINDS].index(self._kind) + 1
        return pb.nested(number, self._list.SerializeToString())

    def __repr__(self) -> str:
        return f"{self._kind} {{\n{_indented(self._list)}}}\n" if self._kind else ""


def _indented(value: Any) -> str:
    return "".join(f"  {line}\n" for line in repr(value).splitlines())


class FeatureList(Message):
    """Features of the same kind, step by step."""

    def __init__(self, feature: Iterable[Feature] = ()) -> None:
        self.feature = list(feature)

    def take(self, field: int, value: Any) -> None:
        self.feature.append(Feature.FromString(value))

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        return b"".join(pb.nested(1, f.SerializeToString()) for f in self.feature)


class _Map(Message):
    """Messages by name."""

    def __init__(self, word: str, kind: Any, values: dict | None) -> None:
        self._word, self._kind = word, kind
        self._values: dict[str, Any] = dict(values or {})

    def take(self, field: int, value: Any) -> None:
        entry = dict(pb.fields(value))
        name: Any = entry.get(1, b"")
        self._values[name.decode()] = self._kind.FromString(entry.get(2, b""))

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        names = sorted(self._values) if deterministic else list(self._values)
        return b"".join(
            pb.nested(1, pb.string(1, n) + pb.nested(2, self._values[n].SerializeToString()))
            for n in names
        )

    def __repr__(self) -> str:
        return "".join(
            f'{self._word} {{\n  key: "{n}"\n  value {{\n{_indented(_Lines(_indented(v)))}  }}\n}}\n'
            for n, v in self._values.items()
        )


class _Lines:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Features(_Map):
    """Features by name."""

    def __init__(self, feature: dict[str, Feature] | None = None) -> None:
        super().__init__("feature", Feature, feature)

    feature = property(lambda self: self._values)


class FeatureLists(_Map):
    """Feature lists by name."""

    def __init__(self, feature_list: dict[str, FeatureList] | None = None) -> None:
        super().__init__("feature_list", FeatureList, feature_list)

    feature_list = property(lambda self: self._values)


class Example(Message):
    """What a record usually is: features by name."""

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()

    def take(self, field: int, value: Any) -> None:
        if field == 1:
            self.features.MergeFromString(value)

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        return pb.nested(1, self.features.SerializeToString(deterministic))

    def __repr__(self) -> str:
        return f"features {{\n{_indented(self.features)}}}\n"


class SequenceExample(Message):
    """Features of the whole, and of each step."""

    def __init__(
        self, context: Features | None = None, feature_lists: FeatureLists | None = None
    ) -> None:
        self.context = context or Features()
        self.feature_lists = feature_lists or FeatureLists()

    def take(self, field: int, value: Any) -> None:
        (self.context if field == 1 else self.feature_lists).MergeFromString(value)

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        lists = self.feature_lists.SerializeToString(deterministic)
        return pb.nested(1, self.context.SerializeToString(deterministic)) + pb.nested(2, lists)


# --- tf.io ----------------------------------------------------------------------------------------
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
    return np.array(getattr(found, word).value, object if kind.inner is None else kind.as_numpy_dtype)


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
    wanted, sizes, texts, raw = as_dtype(out_type), [], [], b""
    for field, value in pb.fields(convert(serialized).numpy()):
        if field == 1 and value != wanted.as_datatype_enum:
            raise invalid(f"Type mismatch between parsed tensor ({as_dtype(value).name}) and dtype "
                          f"({wanted.name})")  # fmt: skip
        if field == 2 and isinstance(value, bytes):
            sizes = [dict(pb.fields(v)).get(1, 0) for f, v in pb.fields(value) if f == 2]
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
MESSAGES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (BytesList, Example, Feature, FeatureList, FeatureLists, Features, FloatList,
                 Int64List, SequenceExample)
}  # fmt: skip
