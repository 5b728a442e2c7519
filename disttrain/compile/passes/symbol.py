"""Symbol: one element of an array as an expression, for operations whose kernels give the bits of
the operations themselves.

An array kind, so that derivative rules spell themselves out on it as they do on arrays. IEEE
arithmetic, square roots, comparisons and choices are exact everywhere; gelu, silu, exponentials,
logarithms and their like are such kernels already, of float32. What else is NumPy's in an eager run
has other last bits: it is refused, unless the program asks for speed in place of bits (``fast``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.lang import expr as ex
from ...ops.declare import REGISTRY
from ..pull import Rule

FLOATS = ("float32", "float64")

_BY_OWN_EXPRESSION = frozenset(
    "neg abs sqrt rsqrt square reciprocal relu relu_backward floor ceil add sub mul div maximum "
    "minimum lt le gt ge where gelu_tanh gelu_tanh_backward gelu gelu_backward silu silu_backward "
    "erf exp log tanh sigmoid softplus".split()
)
_FAST = frozenset("exp log tanh sigmoid softplus sin cos".split())
_KERNELS_OF_ONE_TYPE = frozenset(
    "gelu_tanh gelu_tanh_backward gelu gelu_backward silu silu_backward erf exp log tanh sigmoid "
    "softplus".split()
)


class Unfit(Exception):  # noqa: N818  (the answer to a question)
    """No expression gives these bits."""


def _clip(a: ex.Expr, low: float | None = None, high: float | None = None) -> ex.Expr:
    """As NumPy: where ``low`` is above ``high``, that is the result."""
    cut = a if low is None else ex.where(a < low, low, a)
    return cut if high is None else ex.where(cut > high, high, cut)


def _sign(a: ex.Expr) -> ex.Expr:
    """0 for nan."""
    return ex.where(a > 0.0, 1.0, ex.where(a < 0.0, -1.0, 0.0))


def _power(a: ex.Expr, b: float | ex.Expr) -> ex.Expr:
    if isinstance(b, ex.Expr):
        raise Unfit("pow")
    if b in ex.POWERS:
        return ex.POWERS[b](a)
    if abs(b) != 0.5 or type(b) is int:
        raise Unfit("pow")
    return ex.sqrt(a) if b > 0 else 1.0 / ex.sqrt(a)


_EXPRESSIONS: dict[str, Callable[..., ex.Expr]] = {
    "eq": ex.eq,
    "ne": ex.ne,
    "clip": _clip,
    "clip_below": ex.max,
    "clip_above": ex.min,
    "clone": lambda a: a,
    "sign": _sign,
    "sgn": _sign,
    "pow": _power,
    "isnan": lambda a: ex.ne(a, a),
    "isfinite": lambda a: ex.eq(a - a, 0.0),
    "trunc": lambda a: ex.where(a < 0.0, ex.ceil(a), ex.floor(a)),
    "masked_scale": lambda a, mask, scale: ex.where(mask, a * scale, 0.0),
}
_TESTS = frozenset("eq ne lt le gt ge isnan isfinite".split())  # whose results are true or false


class Symbol(ArrayKind):
    """An element of an array of ``shape`` and ``dtype``. ``fast``: last bits may differ."""

    __slots__ = ("dtype", "expr", "fast", "shape")

    def __init__(self, expr: ex.Expr, shape: tuple, dtype: np.dtype, fast: bool = False) -> None:
        self.expr, self.shape, self.dtype, self.fast = expr, tuple(shape), dtype, fast

    def run(self, prim: Any, arrays: Any, params: dict) -> Any:
        """The result of ``prim``; raises ``Unfit`` where no expression has its bits. (What Python's
        numbers become is NumPy's rule: the arrays' type.)"""
        rule, name = params.get("rule"), prim.name
        if isinstance(rule, Rule):
            return self._pulled(rule, arrays)
        if REGISTRY.get(name) is not prim or not all(map(_plain, arrays)):
            raise Unfit(name)
        if name == "cast":
            return self._cast(np.dtype(params["dtype"]))
        return self._applied(prim, arrays, params)

    def _pulled(self, rule: Rule, arrays: Any) -> tuple:
        """The gradients that a rule for elements gives."""
        prim = rule.node.prim
        if prim is None or not prim.elementwise:
            raise Unfit(str(prim))
        found = tuple(r for r in rule.run(tuple(arrays)) if r is not None)
        if not all(isinstance(r, Symbol) for r in found):
            raise Unfit(str(prim))
        return found

    def _cast(self, kind: np.dtype) -> Symbol:
        if {kind.name, self.dtype.name} <= {*FLOATS, "bool"} and kind.name in FLOATS:
            return self._like(ex.cast(self.expr, kind.name), self.shape, kind)
        raise Unfit("cast")

    def _applied(self, prim: Any, arrays: Any, params: dict) -> Symbol:
        name = prim.name
        given = [a for a in arrays if isinstance(a, Symbol)]
        kinds = {a.dtype.name for a in given}
        floats = kinds & {*FLOATS}
        if len(floats) != 1 or not kinds <= {*floats, "bool"}:
            raise Unfit(name)
        if name in _KERNELS_OF_ONE_TYPE and floats != {"float32"}:
            raise Unfit(name)
        if not all(map(_plain, params.values())):
            raise Unfit(name)
        own = name in _BY_OWN_EXPRESSION or (self.fast and name in _FAST)
        make = prim.expr if own else _EXPRESSIONS.get(name)
        if make is None:
            raise Unfit(name)
        made = make(*[a.expr if isinstance(a, Symbol) else a for a in arrays], **params)
        shape = np.broadcast_shapes(*(a.shape for a in given))
        kind = np.dtype(bool) if name in _TESTS else np.dtype(min(floats))
        return self._like(ex.as_expr(made), shape, kind)

    def _like(self, expr: ex.Expr, shape: tuple, dtype: np.dtype) -> Symbol:
        return Symbol(expr, shape, dtype, self.fast)

    def copy(self, order: str = "K") -> Symbol:
        """The same numbers."""
        return self._like(self.expr, self.shape, self.dtype)

    def _with(self, other: Any, how: Callable, *, test: bool = False) -> Any:
        """What NumPy's operator gives of this array and another one, or a number."""
        if isinstance(other, Symbol):
            if other.dtype != self.dtype:
                raise Unfit(how.__name__)
            shape, value = np.broadcast_shapes(self.shape, other.shape), other.expr
        elif type(other) in (int, float) and _plain(other):
            shape, value = self.shape, other
        else:
            raise Unfit(how.__name__)
        if self.dtype.name not in FLOATS:
            raise Unfit(how.__name__)
        kind = np.dtype(bool) if test else self.dtype
        return self._like(how(self.expr, value), shape, kind)

    def __add__(self, other: object) -> Any:
        return self._with(other, operator.add)

    def __radd__(self, other: object) -> Any:
        return self._with(other, lambda a, b: b + a)

    def __sub__(self, other: object) -> Any:
        return self._with(other, operator.sub)

    def __rsub__(self, other: object) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: object) -> Any:
        return self._with(other, operator.mul)

    def __rmul__(self, other: object) -> Any:
        return self._with(other, lambda a, b: b * a)

    def __truediv__(self, other: object) -> Any:
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: object) -> Any:
        return self._with(other, lambda a, b: b / a)

    def __neg__(self) -> Any:
        return self._with(-1, lambda a, _: -a)

    def __lt__(self, other: object) -> Any:
        return self._with(other, operator.lt, test=True)

    def __le__(self, other: object) -> Any:
        return self._with(other, operator.le, test=True)

    def __gt__(self, other: object) -> Any:
        return self._with(other, operator.gt, test=True)

    def __ge__(self, other: object) -> Any:
        return self._with(other, operator.ge, test=True)

    def __bool__(self) -> bool:
        raise Unfit("a condition in Python")


def _plain(x: object) -> bool:
    """An element, or a number that has one meaning in each floating type."""
    if x is None or isinstance(x, (Symbol, np.dtype)):
        return True
    if type(x) is float:
        return math.isfinite(x) and (x == 0 or 1e-37 < abs(x) < 1e38)
    return type(x) is int and abs(x) < 1 << 24
