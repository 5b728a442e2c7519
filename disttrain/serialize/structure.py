"""Nested Python values as JSON with named tensors. Data only: no code; classes by name.

    None True 1 2.5 "text"       themselves
    {"key": value}               a dict whose keys are all texts
    ["tag", ...]                 everything else, by the tags below
    ["global", "module:name"]    a class or a function
    ["object", n, ...]           an object of a class (see ``objects``), number n
    ["def", n, container]        a container that is met again, as ["ref", n]
    ["typed", n, type, shape, x] a numpy array of texts, dates or objects, number n: its bytes x, or
                                 a list of its elements

``encode`` gives names to tensors and arrays: the path to them, so that a flat dict of tensors keeps
its names. ``decoding`` has the way back. Knows Tensor; knows no file and no bytes of tensors.
"""

from __future__ import annotations

import base64
import enum
import math
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from ..backends.array_kinds import ArrayKind
from ..backends.device.array import DeviceArray, Hosted
from ..core import Size, Tensor
from ..core.attributes import own_attributes
from ..core.types import dtypes
from ..core.types.device import device
from ..errors import SerializationError
from ..ops.functions.creation.sparse_gradients import SparseGradient
from ..ops.functions.sparse.compressed import CompressedTensor
from ..ops.functions.sparse.coo import SparseTensor
from ..ops.functions.sparse.structured import Structured
from .layout import KIND_NAMES, METADATA
from .objects import MAKE, name_of, take_apart
from .sharing import unique

DEPTH = 100  # levels of nesting, when saving and when loading
WORDS = "USMm"  # kinds of numpy arrays that are kept as bytes: texts, times
_NUMBERS = (int, float, str, bool)
FACTORIES = {f.__name__: f for f in (list, dict, set, int, float, str, tuple, bool)}


@dataclass
class Encoded:
    """``tree`` is for JSON; ``arrays`` holds the memory of every tensor and array, by name."""

    tree: Any = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def encode(obj: Any) -> Encoded:
    """Take ``obj`` apart. ``SerializationError`` names the place of what cannot be saved."""
    try:
        first = _Encoder(set())
        first.out.tree = first.value(obj, (), 0)
        if not first.again:
            return first.out
        second = _Encoder(first.again)  # knows now what is met more than once
        second.out.tree = second.value(obj, (), 0)
        return second.out
    except RecursionError:
        raise SerializationError("save: obj is nested too deeply") from None


def _show(path: tuple) -> str:
    return "obj" + "".join(f"[{key!r}]" for key in path)


class _Encoder:
    def __init__(self, shared: set[int]) -> None:
        """``shared``: ids of the containers that are met more than once."""
        self.out, self.shared = Encoded(), shared
        self.names: dict[int, str] = {}  # by id of tensors and arrays that have been met
        self.numbers: dict[int, int] = {}  # by id of objects and containers that have been met
        self.again: set[int] = set()  # ids of containers that have been met more than once
        self.hosted = Hosted()
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
                f"save: {_show(path[:4])}...: more than {DEPTH} containers inside each other"
            )
        if kind is Tensor and not own_attributes(obj):
            return self.plain(obj, path)
        if kind in _TAKE:
            return self.container(obj, path, depth) if kind in _MUTABLE else (
                _TAKE[kind](self, obj, path, depth + 1))  # fmt: skip
        if isinstance(obj, np.ndarray):
            if obj.dtype.kind in f"O{WORDS}":
                return self.typed(obj, path, depth + 1)
            return ["array", self.array(obj, path)]
        if isinstance(obj, np.generic) and obj.dtype in KIND_NAMES:
            return ["scalar", KIND_NAMES[obj.dtype], obj.tobytes().hex()]
        if isinstance(obj, np.generic) and obj.dtype.kind in WORDS:
            return ["item", self.typed(np.asarray(obj), path, depth + 1)]
        if isinstance(obj, PurePath):
            return ["path", str(obj)]
        try:
            return self.object(obj, path, depth + 1)
        except _NotData as error:
            raise SerializationError(f"save: {_show(path)} is {error}") from None

    def container(self, obj: object, path: tuple, depth: int) -> Any:
        """One that may be met again: the same one must then be loaded, not an equal one."""
        number = self.numbers.get(id(obj))
        if number is not None:
            self.again.add(id(obj))
            return ["ref", number]
        number = self.note(obj)
        node = _TAKE[type(obj)](self, obj, path, depth + 1)
        return ["def", number, node] if id(obj) in self.shared else node

    def note(self, obj: object) -> int:
        number = self.numbers[id(obj)] = len(self.numbers)
        self.alive.append(obj)
        return number

    def object(self, obj: object, path: tuple, depth: int) -> Any:
        """Anything that is no container and no number: a class, a function, an object."""
        if isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)):
            return self.named(obj)
        kept = isinstance(obj, (Structured, SparseGradient))
        if isinstance(obj, Tensor) and not (kept or obj.is_quantized or _is_placed(obj)):
            return self.tensor(obj, path, depth)
        if id(obj) in self.numbers:
            return ["ref", self.numbers[id(obj)]]
        if isinstance(obj, (SparseTensor, SparseGradient)):
            return self.sparse(obj, path, depth)
        if isinstance(obj, CompressedTensor):
            return self.compressed(obj, path, depth)
        if isinstance(obj, enum.Enum):
            return ["enum", self.named(type(obj)), obj.name]
        if isinstance(obj, types.MethodType):
            return ["method", self.value(obj.__self__, path, depth), obj.__name__]
        parts = _of(take_apart, obj)
        if isinstance(parts, str):
            return ["global", parts]
        if parts.cls in _NUMBERS and parts.how == MAKE and not (parts.kwargs or parts.state):
            return self.value(parts.cls(*parts.args), path, depth)  # it says that it is one
        number = self.note(obj)
        self.alive.append(parts)
        inner = (parts.args, parts.kwargs, parts.state, parts.items, parts.pairs)
        try:
            nodes = [self.value(part, path, depth) for part in inner]
        except SerializationError as error:
            if not hasattr(obj, "state_dict") or "state_dict" in str(error):
                raise
            raise SerializationError(
                f"{error}. It is in a {type(obj).__qualname__}; save that one's .state_dict()"
            ) from None
        return ["object", number, parts.how, self.named(parts.cls), *nodes]

    def named(self, thing: Any) -> list:
        return ["global", _of(name_of, thing)]

    def plain(self, obj: Tensor, path: tuple) -> list:
        """The numbers of a tensor; of one on the meta device, its type and shape."""
        if not obj.is_meta:
            place = [] if obj.array.__class__ is np.ndarray else [str(obj.device)]
            return ["leaf" if obj.requires_grad else "tensor", self.array(obj, path), *place]
        if id(obj) in self.numbers:
            return ["ref", self.numbers[id(obj)]]
        return ["meta", self.note(obj), obj.dtype.name, obj.requires_grad, *map(int, obj.shape)]

    def tensor(self, obj: Tensor, path: tuple, depth: int) -> list:
        """One of a class of its own, for example a Parameter, or with attributes of its own."""
        own = own_attributes(obj)
        node = self.plain(obj, path)
        return ["subclass", self.named(type(obj)), node, self.value(own, path, depth)]

    def compressed(self, obj: CompressedTensor, path: tuple, depth: int) -> list:
        """Where the lines of a matrix begin, the other numbers of places, and the values there."""
        number, flags = self.note(obj), [str.__str__(obj.layout), obj.requires_grad]
        starts, others = (part for _, part in obj._shown())
        parts = self.each((starts, others, obj._values(), obj.shape), path, depth)
        return ["compressed", number, *flags, *parts]

    def sparse(self, obj: SparseTensor | SparseGradient, path: tuple, depth: int) -> list:
        """The places of a sparse tensor and the values there."""
        number, flags = self.note(obj), [obj.is_coalesced(), obj.requires_grad]
        parts = self.each((obj._indices(), obj._values(), obj.shape), path, depth)
        return ["sparse", number, *flags, *parts]

    def typed(self, obj: np.ndarray, path: tuple, depth: int) -> list:
        """An array of what is no number."""
        if id(obj) in self.numbers:
            return ["ref", self.numbers[id(obj)]]
        number, shape = self.note(obj), list(obj.shape)
        if obj.dtype.kind == "O":
            elements = ["list", *self.each(obj.ravel().tolist(), path, depth)]
            return ["typed", number, "O", shape, elements]
        flat = np.ascontiguousarray(obj).reshape(-1).view(np.uint8)
        return ["typed", number, obj.dtype.str, shape, ["array", self.array(flat, path)]]

    def array(self, obj: Any, path: tuple) -> str:
        """Name the memory of a tensor or an array."""
        if id(obj) in self.names:
            return self.names[id(obj)]
        array = obj.array if isinstance(obj, Tensor) else obj
        array = self.hosted.view(array) if isinstance(array, DeviceArray) else np.asarray(array)
        native = array.dtype.newbyteorder("<") if array.dtype.kind in "iufc" else array.dtype
        if native not in KIND_NAMES:
            raise SerializationError(
                f"save: {_show(path)} is an array of {array.dtype}; numbers, truth values, texts "
                "and times can be saved. Convert it, for example with .tolist()"
            )
        name = _plain(".".join(map(str, path)) if path else "tensor")
        name = unique(name, {METADATA, *self.out.arrays} if name == METADATA else self.out.arrays)
        self.out.arrays[name] = array.astype(native, copy=False)
        self.names[id(obj)] = name
        self.alive.append(obj)
        return name

    def each(self, items: deque | list | tuple, path: tuple, depth: int) -> list:
        return [self.value(v, (*path, i), depth) for i, v in enumerate(items)]

    def pairs(self, items: dict, path: tuple, depth: int) -> list:
        return [[self.key(k, path), self.value(v, (*path, k), depth)] for k, v in items.items()]

    def key(self, key: Any, path: tuple) -> Any:
        try:
            return self.value(key, (*path, key), DEPTH - 4)
        except SerializationError as error:
            raise SerializationError(f"{error} (it is a key of {_show(path)})") from None

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

    def defaulting(self, obj: defaultdict, path: tuple, depth: int) -> Any:
        factory = obj.default_factory
        if factory is None or factory in FACTORIES.values():
            name = None if factory is None else factory.__name__
            return ["defaultdict", name, self.pairs(obj, path, depth)]
        parts = self.value(factory, path, depth)
        return ["defaultdict", parts, self.pairs(obj, path, depth)]


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
    range: lambda e, v, p, d: ["range", v.start, v.stop, v.step],
    slice: lambda e, v, p, d: ["slice", *e.each((v.start, v.stop, v.step), p, d)],
    types.EllipsisType: lambda e, v, p, d: ["..."],
    Counter: lambda e, v, p, d: ["Counter", e.pairs(v, p, d)],
    deque: lambda e, v, p, d: ["deque", v.maxlen, *e.each(v, p, d)],
    defaultdict: _Encoder.defaulting,
    complex: lambda e, v, p, d: ["complex", e.value(v.real, p, d), e.value(v.imag, p, d)],
    dtypes.dtype: lambda e, v, p, d: ["dtype", v.name],
    device: lambda e, v, p, d: ["device", str(v)],
}


_MUTABLE = {dict, OrderedDict, list, set, bytearray, Counter, deque, defaultdict}


def _of(function: Callable[[Any], Any], obj: object) -> Any:
    """``function(obj)``; its error waits for the place of ``obj`` to be told."""
    try:
        return function(obj)
    except SerializationError as error:
        raise _NotData(str(error)) from None


class _NotData(Exception):
    """Why an object cannot be saved."""


def _is_placed(t: Tensor) -> bool:
    """Whether ``t`` says itself what it is made of: an array of a kind with parts elsewhere."""
    return isinstance(t.array, ArrayKind) and t.array.places_others
