"""The way back from the descriptions that ``structure`` makes. It doubts all that it reads."""

from __future__ import annotations

import base64
import binascii
import enum
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.null import NullArray
from ..core import Size, Tensor, wrap
from ..core.attributes import give_attributes
from ..core.tensor import rebuild
from ..core.types import dtypes
from ..core.types.device import device
from ..errors import DTypeError, SerializationError
from ..ops.functions.sparse.creation import (
    SparseTensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    to_sparse,
)
from .layout import KINDS
from .objects import Known, begin, finish
from .structure import DEPTH, FACTORIES, WORDS


def decode(tree: object, give: Callable[..., Any], where: str, known: Known) -> Any:
    """Build what ``structure.encode`` took apart. ``give(kind, name, location)`` returns the named
    tensor or array; ``kind`` is ``"tensor"``, ``"leaf"`` (a tensor that requires grad) or
    ``"array"``, ``location`` is not given for those of the host.
    ``known`` finds classes."""
    try:
        known.check(tree)
        return _Decoder(give, known).value(tree, 0)
    except SerializationError as error:
        raise type(error)(f"{where}: structure: {error}") from None
    except RecursionError:
        raise SerializationError(f"{where}: structure: nested too deeply") from None
    except (LookupError, TypeError, ValueError, OverflowError, DTypeError) as error:
        raise SerializationError(
            f"{where}: structure: damaged, or written by a newer version: {error}"
        ) from None


class _Decoder:
    def __init__(self, give: Callable[..., Any], known: Known) -> None:
        self.give, self.known = give, known
        self.made: dict[int, Any] = {}  # by number: objects, and containers that are met again
        self.classed: dict[int, Tensor] = {}  # by id of the plain ones that ``give`` gave
        self.number: int | None = None  # of the container that is made next

    def value(self, node: object, depth: int) -> Any:
        if depth > DEPTH + 20:
            raise SerializationError("nested too deeply")
        if type(node) is dict:
            out = self.note({})
            out.update((k, self.value(v, depth + 1)) for k, v in node.items())
            return out
        if type(node) is not list:
            return node
        tag, *rest = node
        if type(tag) is not str:
            raise SerializationError(f"a tag is needed, {tag!r:.60} found")
        if tag in ("tensor", "leaf", "array"):
            return self.give(tag, *map(_text, rest))
        if tag in _BUILD:
            return _BUILD[tag](self, rest, depth + 1)
        raise SerializationError(f"unknown tag {tag!r:.60}; written by a newer version?")

    def note(self, made: Any) -> Any:
        """``made`` under the number that was told just before it."""
        if self.number is not None:
            self.made[self.number], self.number = made, None
        return made

    def shared(self, number: object, node: object, *, depth: int) -> Any:
        self.number = _number(number)
        return self.value(node, depth)

    def again(self, number: object) -> Any:
        if _number(number) not in self.made:
            raise SerializationError(f"number {number} is used before it is there")
        return self.made[_number(number)]

    def each(self, nodes: list, depth: int) -> list:
        return [self.value(n, depth) for n in nodes]

    def element(self, node: object, *, depth: int) -> Any:
        return self.value(node, depth)[()]

    def listed(self, nodes: list, depth: int) -> list:
        out = self.note([])
        out.extend(self.value(n, depth) for n in nodes)
        return out

    def pairs(self, nodes: list, depth: int) -> list:
        return [(self.value(k, depth), self.value(v, depth)) for k, v in nodes]

    def filled(self, out: Any, pairs: list, *, depth: int) -> Any:
        """The mapping ``out`` with ``pairs``."""
        self.note(out)
        for k, v in pairs:
            key = self.value(k, depth)
            out[key] = self.value(v, depth)
        return out

    def ordered(self, pairs: list, versions: object = None, *, depth: int) -> OrderedDict:
        out = self.filled(OrderedDict(), pairs, depth=depth)
        if versions is not None:
            out._metadata = self.value(versions, depth)
        return out

    def defaulting(self, factory: object, pairs: list, *, depth: int) -> Any:
        out = self.note(defaultdict(None))
        make = FACTORIES[factory] if type(factory) is str else self.value(factory, depth)
        out.default_factory = make
        return self.filled(out, pairs, depth=depth)

    def queue(self, maxlen: object, *nodes: object, depth: int) -> deque:
        out = self.note(deque(maxlen=None if maxlen is None else _number(maxlen)))
        out.extend(self.value(n, depth) for n in nodes)
        return out

    def instance(self, number: object, how: str, cls: object, args: object, kwargs: object,
                 *rest: object, depth: int) -> Any:  # fmt: skip
        kind = self.value(cls, depth)
        obj = begin(how, kind, self.value(args, depth), self.value(kwargs, depth))
        self.made[_number(number)] = obj
        finish(obj, *(self.value(node, depth) for node in rest))
        return obj

    def member(self, cls: object, name: object, *, depth: int) -> Any:
        kind = self.value(cls, depth)
        if not (isinstance(kind, type) and issubclass(kind, enum.Enum)):
            raise SerializationError(f"an enumeration is needed, {kind!r:.60} found")
        return kind[_text(name)]

    def method(self, of: object, name: object, *, depth: int) -> Any:
        obj = self.value(of, depth)
        if not isinstance(getattr(type(obj), _text(name), None), types.FunctionType):
            raise SerializationError(f"{type(obj).__name__} has no method {name!r:.60}")
        return getattr(obj, _text(name))

    def meta(self, number: object, kind: object, requires_grad: object, *shape: object) -> Tensor:
        sizes = tuple(map(_number, shape))
        if len(sizes) > 64 or any(not 0 <= n < 1 << 62 for n in sizes):
            raise SerializationError(f"shape {sizes}")
        out = self.made[_number(number)] = wrap(NullArray(sizes, dtypes.BY_NAME[_text(kind)].np))
        return out.requires_grad_() if requires_grad is True else out

    def sparse(
        self, number: object, unique: object, grad: object, *parts: object, depth: int
    ) -> Tensor:
        places, values, size = (self.value(part, depth) for part in parts)
        if not (isinstance(places, Tensor) and places.dtype == dtypes.int64
                and isinstance(values, Tensor) and isinstance(size, tuple)):  # fmt: skip
            raise SerializationError("places, values and the size of a sparse tensor are needed")
        out = sparse_coo_tensor(
            places, values, size, is_coalesced=unique is True, requires_grad=grad is True
        )
        self.made[_number(number)] = out
        return out

    def compressed(
        self, number: object, layout: object, grad: object, *parts: object, depth: int
    ) -> Tensor:
        starts, others, values, size = (self.value(part, depth) for part in parts)
        if not (all(isinstance(t, Tensor) for t in (starts, others, values))
                and isinstance(size, tuple)):  # fmt: skip
            raise SerializationError("parts of a compressed matrix are needed")
        out = self.made[_number(number)] = sparse_compressed_tensor(
            starts, others, values, size, layout=_text(layout), requires_grad=grad is True,
            check_invariants=True,
        )  # fmt: skip
        return out

    def typed(self, number: object, name: object, shape: list, node: object, *,
              depth: int) -> np.ndarray:  # fmt: skip
        kind, values = np.dtype(_text(name)), self.value(node, depth)
        if kind.kind == "O" and type(values) is list:
            out = np.empty(len(values), object)
            for i, value in enumerate(values):
                out[i] = value
        elif kind.kind in WORDS and isinstance(values, np.ndarray) and values.dtype == np.uint8:
            out = np.array(values).view(kind)
        else:
            raise SerializationError(f"an array of texts, times or objects is needed, {kind} found")
        out = self.made[_number(number)] = out.reshape(tuple(map(_number, shape)))
        return out

    def tensor(self, cls: object, node: object, own: object, *, depth: int) -> Any:
        kind, plain = self.value(cls, depth), self.value(node, depth)
        if not (isinstance(kind, type) and issubclass(kind, Tensor) and type(plain) is Tensor):
            raise SerializationError(f"a class of tensors is needed, {kind!r:.60} found")
        made = self.classed.get(id(plain))  # what was one Parameter stays one
        if made is None and kind is SparseTensor:  # whose values were saved as a dense tensor's
            self.classed[id(plain)] = made = to_sparse(plain)
        if made is None:
            made = rebuild(kind, plain.array, plain.array.shape, plain.requires_grad)
            made._st, made._gen = plain.storage_cell(), plain.storage_cell().gen
            self.classed[id(plain)] = made
            give_attributes(made, self.value(own, depth))
        return made


def _number(value: object) -> int:
    if type(value) is not int:
        raise SerializationError(f"a number is needed, {value!r:.60} found")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise SerializationError(f"a text is needed, {value!r:.60} found")
    return value


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise SerializationError(f"bytes: {error}") from None


def _float(value: str) -> float:
    if value not in ("nan", "inf", "-inf"):
        raise SerializationError(f"float {value!r:.60}")
    return float(value)


def _scalar(code: str, digits: str) -> np.generic:
    return np.frombuffer(bytes.fromhex(_text(digits)), KINDS[_text(code)], 1)[0]


def _size(values: list) -> Size:
    if not all(type(v) is int for v in values):
        raise SerializationError("Size: whole numbers are needed")
    return Size(values)


_BUILD: dict[str, Callable[[Any, Any, int], Any]] = {  # (decoder, what is said, depth)
    "global": lambda s, r, d: s.known.find(*r),
    "object": lambda s, r, d: s.instance(*r, depth=d),
    "subclass": lambda s, r, d: s.tensor(*r, depth=d),
    "meta": lambda s, r, d: s.meta(*r),
    "compressed": lambda s, r, d: s.compressed(*r, depth=d),
    "sparse": lambda s, r, d: s.sparse(*r, depth=d),
    "enum": lambda s, r, d: s.member(*r, depth=d),
    "method": lambda s, r, d: s.method(*r, depth=d),
    "def": lambda s, r, d: s.shared(*r, depth=d),
    "ref": lambda s, r, d: s.again(*r),
    "dict": lambda s, r, d: s.filled({}, *r, depth=d),
    "OrderedDict": lambda s, r, d: s.ordered(*r, depth=d),
    "list": lambda s, r, d: s.listed(r, d),
    "tuple": lambda s, r, d: tuple(s.each(r, d)),
    "set": lambda s, r, d: s.note(set(s.each(r, d))),
    "frozenset": lambda s, r, d: frozenset(s.each(r, d)),
    "Size": lambda s, r, d: _size(r),
    "bytes": lambda s, r, d: _bytes(*r),
    "bytearray": lambda s, r, d: s.note(bytearray(_bytes(*r))),
    "range": lambda s, r, d: range(*map(_number, r)),
    "slice": lambda s, r, d: slice(*s.each(r, d)),
    "...": lambda s, r, d: ...,
    "Counter": lambda s, r, d: s.filled(Counter(), *r, depth=d),
    "deque": lambda s, r, d: s.queue(*r, depth=d),
    "defaultdict": lambda s, r, d: s.defaulting(*r, depth=d),
    "complex": lambda s, r, d: complex(*s.each(r, d)),
    "int": lambda s, r, d: int(_text(*r), 16),
    "float": lambda s, r, d: _float(*r),
    "dtype": lambda s, r, d: dtypes.BY_NAME[_text(*r)],
    "device": lambda s, r, d: device(_text(*r)),
    "scalar": lambda s, r, d: _scalar(*r),
    "typed": lambda s, r, d: s.typed(*r, depth=d),
    "item": lambda s, r, d: s.element(*r, depth=d),
    "path": lambda s, r, d: Path(_text(*r)),
}
