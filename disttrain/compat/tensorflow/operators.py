"""The operators of tensors and variables, and subscripts."""

from __future__ import annotations

from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import pieces
from . import math
from .dispatch import execute, matched
from .tensor import GRAPH, Tensor, convert, is_tensor

_names = math.NAMES


def _logic(word: str, bits: str) -> Any:
    def fn(x: Any, y: Any) -> Any:
        x, y = matched(word, [x, y])
        return (_names[word] if x.dtype.is_bool else math.BITS[bits])(x, y)

    return fn


def _equal(word: str) -> Any:
    def fn(x: Any, y: Any) -> Any:
        if y is None or isinstance(y, (dict, set)):
            return word != "equal"
        try:
            np.broadcast_shapes(*(tuple(d or 1 for d in convert(v).shape) for v in (x, y)))
        except ValueError:
            return convert(word != "equal")
        except TypeError:
            return NotImplemented
        return _names[word](x, _beside(x, y))

    return fn


_BINARY = {
    "add": (math.binary("add", "AddV2", dt.add, None, True), "add"),
    "sub": (_names["subtract"], "sub"), "mul": (_names["multiply"], "mul"),
    "truediv": (math.divide, "truediv"), "floordiv": (_names["floordiv"], "floordiv"),
    "mod": (_names["floormod"], "FloorMod"), "pow": (_names["pow"], "pow"),
    "matmul": (math.matmul, "matmul"),
    **{word: (_logic(f"logical_{word}", f"bitwise_{word}"), None) for word in (
        "and", "or", "xor")},
}  # fmt: skip
_COMPARE = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def _odd(self: Any, other: Any) -> bool:
    """Whether ``other`` can be no operand beside ``self``: text beside numbers, too."""
    if other is None or isinstance(other, (dict, set)):
        return True
    return isinstance(other, (str, bytes)) and convert(self).dtype.name != "string"


def _beside(one: Any, other: Any, name: str | None = None) -> Any:
    """``other`` in the type of ``one``, if it is no tensor."""
    if is_tensor(other):
        return other
    kind = convert(one).dtype
    return convert(other, hint=kind) if name in ("add", "matmul") else convert(other, kind)


def _method(fn: Any, name: str | None, back: bool = False) -> Any:
    """The operator, or (``back``) that of the right operand; ``name``: that of its operation."""

    def method(self: Any, other: Any) -> Any:
        if _odd(self, other):
            return NotImplemented
        other = _beside(self, other, None if back else name)
        pair = (other, self) if back else (self, other)
        if name is None:
            return fn(*pair)
        return fn(*pair, name=name if back or GRAPH.get() is not None else None)

    return method


def getitem(self: Any, key: Any) -> Any:
    """Subscripts: integers, slices with any step, ``...``, ``tf.newaxis``, scalar tensors."""
    t = convert(self)
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) == 1 and is_tensor(keys[0]) and convert(keys[0]).dtype.is_bool:
        return execute("BooleanMask", lambda v, m: v[m], [t, convert(keys[0])])
    if isinstance(key, (list, np.ndarray)):
        keys = tuple(key)
    plan, held = pieces.planned(keys, _index)
    read = lambda v, *at: pieces.read_at(v, plan, at)  # noqa: E731
    return execute("StridedSlice", read, [t, *held], "strided_slice")


def _index(k: Any) -> Any:
    t = convert(k) if is_tensor(k) else None
    if t is not None and not t.ndim and t.dtype.is_integer:
        return t
    raise TypeError(
        "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar "
        f"tf.int32/tf.int64 tensors are valid indices, got {k!r}"
    )


def attach(kind: Any) -> None:
    """Give ``kind`` the operators."""
    for word, (fn, name) in _BINARY.items():
        setattr(kind, f"__{word}__", _method(fn, name))
        setattr(kind, f"__r{word}__", _method(fn, name, True))
    for word, name in _COMPARE.items():
        setattr(kind, f"__{word}__", _method(_names[name], None))
    kind.__eq__, kind.__ne__ = _equal("equal"), _equal("not_equal")
    kind.__neg__ = lambda self: _names["negative"](self)
    kind.__abs__ = lambda self: _names["abs"](self)
    kind.__invert__, kind.__getitem__ = _invert, getitem


def _invert(self: Any) -> Any:
    return (_names["logical_not"] if self.dtype.is_bool else math.BITS["invert"])(self)


_kept = Tensor.__hash__
attach(Tensor)
_CLASS: Any = Tensor
_CLASS.__hash__ = _kept
