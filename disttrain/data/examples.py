"""Examples: features by name, as records of TFRecord files hold them (``pipeline``'s
``tfrecords``).

Messages with the names and field numbers of ``example.proto`` and ``feature.proto``, and with the
methods that protobuf gives messages; over the wire format of ``protobuf.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import protobuf as pb
from ..errors import ConfigError, DTypeError, SerializationError, ShapeError


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


def _indented(value: Any, by: int = 2) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in repr(value).splitlines())


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
            f'{self._word} {{\n  key: "{n}"\n  value {{\n{_indented(v, 4)}  }}\n}}\n'
            for n, v in self._values.items()
        )


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


# --- as arrays ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FixedLenFeature:
    """A feature of ``shape``. ``dtype`` (its name, or what has one): string, float32 or int64."""

    shape: Any
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature of any number of values of ``shape``; in a batch they are filled up."""

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


_LISTS = {"string": BytesList, "float32": FloatList, "int64": Int64List}


def parse(data: bytes, features: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of one ``Example``; texts as arrays of ``bytes``."""
    try:
        found = Example.FromString(data).features.feature
    except (SerializationError, IndexError, ValueError) as error:
        told = f"Could not parse example input, value: {data[:32]!r}: {error}"
        raise ConfigError(told) from None
    return {name: _array(found.get(name), name, want) for name, want in features.items()}


def parse_batch(rows: Iterable[bytes], features: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of several, stacked; sequences are filled up to the longest."""
    parsed = [parse(data, features) for data in rows]
    return {k: _stacked([row[k] for row in parsed], want) for k, want in features.items()}


def _array(found: Feature | None, name: str, want: Any) -> np.ndarray:
    word = want.dtype if isinstance(want.dtype, str) else want.dtype.name
    if word not in _LISTS:
        raise DTypeError(f"Feature: {name}: dtype {word} given; {', '.join(_LISTS)} can be parsed")
    kind, shape = (object if word == "string" else word), [int(n) for n in want.shape]
    there = None if found is None else found.WhichOneof()
    if there not in (None, _LISTS[word].word):
        raise DTypeError(f"Key: {name}.  Data types don't match. Expected type: {word}, but the "
                         f"example has {there}")  # fmt: skip
    values = np.array(getattr(found, there).value if there else [], kind)
    if isinstance(want, FixedLenSequenceFeature):
        return values.reshape([-1, *shape])
    if not there:
        if want.default_value is None:
            raise ConfigError(f"Feature: {name} (data type: {word}) is required but could not be "
                              "found.")  # fmt: skip
        return np.broadcast_to(np.asarray(want.default_value, kind), shape).copy()
    if values.size != int(np.prod(shape, dtype=int)):
        raise ShapeError(f"Key: {name}.  Can't parse serialized Example: {values.size} values "
                         f"given, which have not the shape {shape}")  # fmt: skip
    return values.reshape(shape)


def _stacked(arrays: list, want: Any) -> np.ndarray:
    if not isinstance(want, FixedLenSequenceFeature):
        return np.stack(arrays)
    longest = max(len(a) for a in arrays)
    empty = b"" if arrays[0].dtype == object else 0
    out = np.empty((len(arrays), longest, *arrays[0].shape[1:]), arrays[0].dtype)
    out.fill(empty if want.default_value is None else want.default_value)
    for row, a in zip(out, arrays, strict=True):
        row[: len(a)] = a
    return out


# --- tensors as messages (``tensor.proto``) -------------------------------------------------------
def tensor_bytes(array: np.ndarray, kind: int) -> bytes:
    """A ``TensorProto`` whose type has the number ``kind``."""
    sizes = b"".join(pb.nested(2, pb.integer(1, n) if n else b"") for n in array.shape)
    if array.dtype == object:
        body = b"".join(pb.nested(8, v) for v in array.reshape(-1).tolist())
    else:
        body = pb.nested(4, array.tobytes())
    return pb.integer(1, kind) + pb.nested(2, sizes) + body


def tensor_of(data: bytes, kind: int, dtype: Any) -> np.ndarray:
    """The array of a ``TensorProto`` whose type has the number ``kind``, and is ``dtype`` here."""
    shape: list[int] = []
    texts: list[Any] = []
    raw = b""
    for field, value in pb.fields(data):
        if isinstance(value, int):
            if field == 1 and value != kind:
                raise DTypeError(f"Type mismatch between the parsed tensor (type {value}) and what "
                                 f"was asked for (type {kind})")  # fmt: skip
        elif field == 2:
            dims = [v for _, v in pb.fields(value) if isinstance(v, bytes)]
            shape = [int(dict(pb.fields(v)).get(1, 0)) for v in dims]
        elif field == 4:
            raw = value
        elif field == 8:
            texts.append(value)
    if np.dtype(dtype) == object:
        return np.array([*texts, None], object)[:-1].reshape(shape)
    return np.frombuffer(raw, dtype).copy().reshape(shape) if raw else np.zeros(shape, dtype)
