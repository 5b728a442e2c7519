"""Examples: features by name, as records of TFRecord files hold them (``pipeline``'s
``tfrecords``).

Messages with the names and field numbers of ``example.proto`` and ``feature.proto``, and with the
methods that protobuf gives messages; over the wire format of ``protobuf.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import protobuf as pb


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
