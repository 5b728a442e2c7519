"""Nested Python values as JSON with named tensors, and back. Data only: no code, no classes.

    None True 1 2.5 "text"       themselves
    {"key": value}               a dict whose keys are all texts
    ["tag", ...]                 everything else, by the tags below

``encode`` gives names to tensors and arrays: the path to them, so that a flat dict of tensors keeps
its names. ``decode`` doubts what it reads. Knows Tensor; knows no file and no bytes of tensors.
"""

from __future__ import annotations

import base64
import binascii
import enum
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from ..backends.null import NullArray
from ..core import Size, Tensor, device, dtypes
from ..errors import DTypeError, SerializationError
from .layout import KIND_NAMES, KINDS, METADATA
from .sharing import unique

DEPTH = 64  # levels of nesting, when saving and when loading


@dataclass
class Encoded:
    """``tree`` is for JSON; ``arrays`` holds the memory of every tensor and array, by name."""

    tree: Any = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def encode(obj: Any) -> Encoded:
    """Take ``obj`` apart. ``SerializationError`` names the place of what cannot be saved."""
    encoder = _Encoder()
    encoder.out.tree = encoder.value(obj, (), 0)
    return encoder.out


def decode(tree: Any, give: Callable[[str, str], Any], where: str) -> Any:
    """Build what ``encode`` took apart. ``give(kind, name)`` returns the named tensor or array;
    ``kind`` is ``"tensor"``, ``"leaf"`` (a tensor that requires grad) or ``"array"``."""
    try:
        return _Decoder(give).value(tree, 0)
    except SerializationError as error:
        raise SerializationError(f"{where}: structure: {error}") from None
    except (LookupError, TypeError, ValueError, OverflowError, DTypeError) as error:
        raise SerializationError(
            f"{where}: structure: damaged, or written by a newer version: {error}"
        ) from None


# --- taking apart --------------------------------------------------------------------------------


def _show(path: tuple) -> str:
    return "obj" + "".join(f"[{key!r}]" for key in path)


class _Encoder:
    def __init__(self) -> None:
        self.out = Encoded()
        self.names: dict[int, str] = {}  # by id of tensors and arrays that have been met
        self.alive: list[Any] = []  # keeps those ids from being used again

    def value(self, obj: Any, path: tuple, depth: int) -> Any:
        kind = type(obj)
        if obj is None or kind is bool or kind is str:
            return obj
        if kind is int:
            return obj if -(1 << 63) <= obj < 1 << 64 else ["int", hex(obj)]
        if kind is float:
            return obj if math.isfinite(obj) else ["float", repr(obj)]
        if depth > DEPTH:
            raise SerializationError(
                f"save: {_show(path[:4])}...: more than {DEPTH} containers inside each other; does "
                "one contain itself?"
            )
        if isinstance(obj, Tensor):
            return ["leaf" if obj.requires_grad else "tensor", self.array(obj, path)]
        if kind in _TAKE:
            return _TAKE[kind](self, obj, path, depth + 1)
        if isinstance(obj, np.ndarray):
            return ["array", self.array(obj, path)]
        if isinstance(obj, np.generic) and obj.dtype in KIND_NAMES:
            return ["scalar", KIND_NAMES[obj.dtype], obj.tobytes().hex()]
        if isinstance(obj, PurePath):
            return ["path", str(obj)]
        raise SerializationError(f"save: {_show(path)} is {_said(obj)}")

    def array(self, obj: Any, path: tuple) -> str:
        """Name the memory of a tensor or an array."""
        if id(obj) in self.names:
            return self.names[id(obj)]
        array = obj.array if isinstance(obj, Tensor) else obj
        if isinstance(array, NullArray):
            raise SerializationError(
                f"save: {_show(path)} is a tensor on the meta device: it has a shape and no data. "
                "Give the module memory first (module.to_empty(device='cpu')) and fill it"
            )
        array = np.asarray(array)
        native = array.dtype.newbyteorder("<") if array.dtype.kind in "iufc" else array.dtype
        if native not in KIND_NAMES:
            raise SerializationError(
                f"save: {_show(path)} is an array of {array.dtype}; numbers and truth values can "
                "be saved. Convert it, for example with .tolist()"
            )
        name = _plain(".".join(map(str, path)) if path else "tensor")
        name = unique(name, {METADATA, *self.out.arrays} if name == METADATA else self.out.arrays)
        self.out.arrays[name] = array.astype(native, copy=False)
        self.names[id(obj)] = name
        self.alive.append(obj)
        return name

    def each(self, items: Any, path: tuple, depth: int) -> list:
        return [self.value(v, (*path, i), depth) for i, v in enumerate(items)]

    def pairs(self, items: dict, path: tuple, depth: int) -> list:
        return [[self.key(k, path), self.value(v, (*path, k), depth)] for k, v in items.items()]

    def key(self, key: Any, path: tuple) -> Any:
        if isinstance(key, (str, int, float, bytes, tuple, type(None))):
            return self.value(key, (*path, key), DEPTH - 4)
        raise SerializationError(
            f"save: {_show(path)} has a key that is {_said(key)}. Keys may be texts, numbers, "
            "bytes and tuples of those"
        )

    def mapping(self, obj: dict, path: tuple, depth: int) -> Any:
        if all(type(k) is str for k in obj):
            return {k: self.value(v, (*path, k), depth) for k, v in obj.items()}
        return ["dict", self.pairs(obj, path, depth)]

    def ordered(self, obj: OrderedDict, path: tuple, depth: int) -> Any:
        out = ["OrderedDict", self.pairs(obj, path, depth)]
        versions = getattr(obj, "_metadata", None)  # what a module notes beside its state
        if versions is not None:
            out.append(self.value(versions, (*path, "_metadata"), depth))
        return out


def _plain(name: str) -> str:
    """``name`` without what UTF-8 cannot hold."""
    return name.encode("utf-8", "replace").decode("utf-8")


_TAKE: dict[type, Callable[[_Encoder, Any, tuple, int], Any]] = {
    dict: _Encoder.mapping,
    OrderedDict: _Encoder.ordered,
    list: lambda e, v, p, d: ["list", *e.each(v, p, d)],
    tuple: lambda e, v, p, d: ["tuple", *e.each(v, p, d)],
    set: lambda e, v, p, d: ["set", *(e.key(x, p) for x in v)],
    frozenset: lambda e, v, p, d: ["frozenset", *(e.key(x, p) for x in v)],
    Size: lambda e, v, p, d: ["Size", *map(int, v)],
    bytes: lambda e, v, p, d: ["bytes", base64.b64encode(v).decode()],
    bytearray: lambda e, v, p, d: ["bytearray", base64.b64encode(v).decode()],
    complex: lambda e, v, p, d: ["complex", e.value(v.real, p, d), e.value(v.imag, p, d)],
    dtypes.dtype: lambda e, v, p, d: ["dtype", v.name],
    device: lambda e, v, p, d: ["device", str(v)],
}


def _said(obj: Any) -> str:
    """What ``obj`` is, and what to save in its place."""
    kind = type(obj).__qualname__
    article = f"a {kind}; only data can be saved (numbers, texts, containers, tensors, arrays). "
    if isinstance(obj, type) or callable(getattr(obj, "__code__", None)):
        return f"the class {obj.__qualname__}; code is not saved. Save its name, or leave it out"
    if hasattr(obj, "state_dict"):
        return article + "Save its .state_dict(), and give that to .load_state_dict() later"
    if is_dataclass(obj):
        return article + "Save dataclasses.asdict(it)"
    if isinstance(obj, enum.Enum):
        return article + "Save its .value or its .name"
    if isinstance(obj, tuple) and hasattr(obj, "_asdict"):
        return article + "Save its ._asdict()"
    if isinstance(obj, dict):
        return article + "Save dict(it)"
    if isinstance(obj, (list, tuple)):
        return article + "Save list(it)"
    if isinstance(obj, (str, int, float)):
        base = next(t for t in (str, int, float) if isinstance(obj, t))
        return article + f"Save {base.__name__}(it)"
    if callable(obj):
        return article + "Code is not saved: save a name or the numbers it was made from"
    if hasattr(obj, "__dict__"):
        return article + "Save vars(it), or the values you need"
    return article + "Save the values it is made of"


# --- putting together ----------------------------------------------------------------------------


class _Decoder:
    def __init__(self, give: Callable[[str, str], Any]) -> None:
        self.give = give

    def value(self, node: Any, depth: int) -> Any:
        if depth > DEPTH + 8:
            raise SerializationError("nested too deeply")
        if type(node) is dict:
            return {k: self.value(v, depth + 1) for k, v in node.items()}
        if type(node) is not list:
            return node
        tag, *rest = node
        if type(tag) is not str:
            raise SerializationError(f"a tag is needed, {tag!r:.60} found")
        if tag in ("tensor", "leaf", "array"):
            return self.give(tag, _text(*rest))
        if tag in _BUILD:
            return _BUILD[tag](self, rest, depth + 1)
        raise SerializationError(f"unknown tag {tag!r:.60}; written by a newer version?")

    def each(self, nodes: list, depth: int) -> list:
        return [self.value(n, depth) for n in nodes]

    def pairs(self, nodes: list, depth: int) -> list:
        return [(self.value(k, depth), self.value(v, depth)) for k, v in nodes]

    def ordered(self, pairs: list, versions: Any = None, *, depth: int) -> OrderedDict:
        out = OrderedDict(self.pairs(pairs, depth))
        if versions is not None:
            out._metadata = self.value(versions, depth)  # type: ignore[attr-defined]
        return out


def _text(value: Any) -> str:
    if type(value) is not str:
        raise SerializationError(f"a text is needed, {value!r:.60} found")
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise SerializationError(f"bytes: {error}") from None


def _float(value: Any) -> float:
    if value not in ("nan", "inf", "-inf"):
        raise SerializationError(f"float {value!r:.60}")
    return float(value)


def _scalar(code: Any, digits: Any) -> np.generic:
    return np.frombuffer(bytes.fromhex(_text(digits)), KINDS[_text(code)], 1)[0]


def _size(values: list) -> Size:
    if not all(type(v) is int for v in values):
        raise SerializationError("Size: whole numbers are needed")
    return Size(values)


_BUILD: dict[str, Callable[[_Decoder, list, int], Any]] = {
    "dict": lambda s, r, d: dict(s.pairs(*r, d)),
    "OrderedDict": lambda s, r, d: s.ordered(*r, depth=d),
    "list": lambda s, r, d: s.each(r, d),
    "tuple": lambda s, r, d: tuple(s.each(r, d)),
    "set": lambda s, r, d: set(s.each(r, d)),
    "frozenset": lambda s, r, d: frozenset(s.each(r, d)),
    "Size": lambda s, r, d: _size(r),
    "bytes": lambda s, r, d: _bytes(*r),
    "bytearray": lambda s, r, d: bytearray(_bytes(*r)),
    "complex": lambda s, r, d: complex(*s.each(r, d)),
    "int": lambda s, r, d: int(_text(*r), 16),
    "float": lambda s, r, d: _float(*r),
    "dtype": lambda s, r, d: dtypes.BY_NAME[_text(*r)],
    "device": lambda s, r, d: device(_text(*r)),
    "scalar": lambda s, r, d: _scalar(*r),
    "path": lambda s, r, d: Path(_text(*r)),
}
