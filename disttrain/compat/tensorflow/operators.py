"""The operators of tensors and variables, and subscripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import pieces
from . import math
from .dispatch import execute, matched
from .tensor import GRAPH, Tensor, convert, is_tensor

_names = math.NAMES


def _logic(word: str) -> Callable:
    def fn(x: Any, y: Any) -> Any:
        x, y = matched(f"logical_{word}", [x, y])
        bools = x.dtype.is_bool
        return (_names[f"logical_{word}"] if bools else math.BITS[f"bitwise_{word}"])(x, y)

    return fn


_ADD = math.binary("add", "AddV2", dt.add, None, True)
# Python's word -> what computes it, and the name of its operation in graphs.
_BINARY: dict[str, tuple[Callable, str | None]] = {
    "add": (_ADD, "add"), "sub": (_names["subtract"], "sub"), "mul": (_names["multiply"], "mul"),
    "truediv": (math.divide, "truediv"), "floordiv": (_names["floordiv"], "floordiv"),
    "mod": (_names["floormod"], "FloorMod"), "pow": (_names["pow"], "pow"),
    "matmul": (math.matmul, "matmul"), **{w: (_logic(w), None) for w in ("and", "or", "xor")},
    **{w: (_names[name], None) for w, name in (
        ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"))},
}  # fmt: skip
_UNARY = {"neg": _names["negative"], "abs": _names["abs"], "invert": lambda x: (
    _names["logical_not"] if x.dtype.is_bool else math.BITS["invert"])(x)}  # fmt: skip


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


def _method(fn: Callable, name: str | None, back: bool = False) -> Callable:
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


def _equal(word: str) -> Callable:
    def method(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, (dict, set)):
            return word != "equal"
        try:
            np.broadcast_shapes(*(tuple(d or 1 for d in convert(v).shape) for v in (self, other)))
        except ValueError:
            return convert(word != "equal")
        except TypeError:
            return NotImplemented
        return _names[word](self, _beside(self, other))

    return method


def getitem(self: Any, key: Any) -> Any:
    """Subscripts: integers, slices with any step, ``...``, ``tf.newaxis``, scalar tensors."""
    t = convert(self)
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) == 1 and is_tensor(keys[0]) and convert(keys[0]).dtype.is_bool:
        return execute("BooleanMask", lambda v, m: v[m], [t, convert(keys[0])])
    plan, held = pieces.planned(tuple(key) if isinstance(key, (list, np.ndarray)) else keys, _index)
    return execute("StridedSlice", lambda v, *at: pieces.read_at(v, plan, at), [t, *held],
                   "strided_slice")  # fmt: skip


def _index(k: Any) -> Any:
    t = convert(k) if is_tensor(k) else None
    if t is not None and not t.ndim and t.dtype.is_integer:
        return t
    raise TypeError("Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar "
                    f"tf.int32/tf.int64 tensors are valid indices, got {k!r}")  # fmt: skip


def attach(kind: Any) -> None:
    """Give ``kind`` the operators, but for its hash."""
    for word, (fn, name) in _BINARY.items():
        setattr(kind, f"__{word}__", _method(fn, name))
        if word not in ("lt", "le", "gt", "ge"):
            setattr(kind, f"__r{word}__", _method(fn, name, True))
    for word, one in _UNARY.items():
        setattr(kind, f"__{word}__", lambda self, one=one: one(self))
    kind.__eq__, kind.__ne__ = _equal("equal"), _equal("not_equal")
    kind.__getitem__ = getitem


attach(Tensor)
