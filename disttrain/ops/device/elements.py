"""What elementwise primitives compute on a device, as expressions of one element: for those who put
several of them into one kernel.

Each expression is that of the primitive's own kernel there, rounded to the type of its result, so
that a kernel of many gives the bits of one launch after another. Knows no kernel and no launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.lang import expr as ex
from ...backends.lang.expr import Expr
from ...backends.lang.kernel import wide_type
from ...core.gate import Primitive
from ..declare import REGISTRY
from ..primitives import elementwise as el
from . import elementwise as there
from .table import FLOATS, NAME_OF

# A number as a parameter of a kernel, of the type of that name.
Number = Callable[[Any, str], Expr]


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an array of ``shape`` and ``dtype``. ``like``: which of the arrays that are
    given to the kernel it lies like in memory, where that has its shape; None: in rows."""

    expr: Expr
    shape: tuple[int, ...]
    dtype: np.dtype
    like: int | None = None


Found = Element | None


def element_of(prim: Primitive, args: Sequence[Any], params: dict, number: Number) -> Found:
    """The result of ``prim`` on ``args``: Elements, and numbers. None where it has no expression
    there."""
    if REGISTRY.get(prim.name) is not prim:
        return None
    own = _OWN.get(prim.name)
    if own is not None:
        return own(number, *args, **params)
    if prim.on_device.__class__ is there.Generated and not params:
        return _generated(prim.on_device, args, number)
    return None


def _generated(how: there.Generated, args: Sequence[Any], number: Number) -> Found:
    given = [a for a in args if isinstance(a, Element)]
    found = how.typed(args, [isinstance(a, Element) for a in args])
    if found is None:
        return None
    params, dtype = found
    values = [
        a.expr if isinstance(a, Element) else number(a, p.dtype)
        for a, p in zip(args, params, strict=True)
    ]
    shape, like = _lying(given)
    return Element(_rounded(how.expr(*values), dtype), shape, dtype, like)


def _rounded(value: Expr | float, dtype: np.dtype) -> Expr:
    """As an array of ``dtype`` would keep it."""
    return ex.cast(ex.as_expr(value), str(NAME_OF[dtype]))


def _lying(given: Sequence[Element]) -> tuple[tuple[int, ...], int | None]:
    """The shape of the result of ``Generated``, and how it lies."""
    first, shape = given[0], given[0].shape
    for a in given[1:]:
        if a.shape != shape:
            first = a if len(a.shape) >= len(shape) else first
            shape = np.broadcast_shapes(shape, a.shape)
    return shape, first.like if first.shape == shape else None


# -- those with a way of their own -----------------------------------------------------------------
def _where(number: Number, condition: Any, a: Any, b: Any) -> Found:
    if not isinstance(condition, Element):
        return None
    return _generated(there.chosen, (condition, a, b), number)


def _pow(number: Number, a: Any, b: Any) -> Found:
    if isinstance(b, complex):
        return None
    if not isinstance(b, Element):
        plain = there.plain_power(a.dtype, b)
        if plain is not None:
            return _generated(plain, (a,), number)
    return _generated(there.power, (a, b), number)


def _clip(number: Number, a: Element, low: float | None = None, high: float | None = None) -> Found:
    found: Found = a
    if low is None and high is None:  # the array itself
        return None
    if low is not None:
        found = _generated(el.clip_below.on_device, (a, low), number)
    if high is not None and found is not None:
        found = _generated(el.clip_above.on_device, (found, high), number)
    return found


def _cast(number: Number, a: Element, dtype: Any) -> Found:
    into = np.dtype(dtype)
    if NAME_OF[a.dtype] is None or NAME_OF[into] not in (*FLOATS, "bool"):
        return None
    return Element(_rounded(a.expr, into), a.shape, into, a.like)


def _clone(number: Number, a: Element) -> Found:
    return Element(a.expr, a.shape, a.dtype)


def _masked_scale(number: Number, a: Element, mask: Element, scale: float) -> Found:
    name = NAME_OF[a.dtype]
    if name not in FLOATS or not isinstance(mask, Element) or NAME_OF[mask.dtype] != "bool":
        return None
    kept = a.expr * number(scale, wide_type(str(name)))
    value = _rounded(ex.where(mask.expr, kept, 0.0), a.dtype)
    return Element(value, np.broadcast_shapes(a.shape, mask.shape), a.dtype)


_OWN: dict[str, Callable[..., Found]] = {
    "where": _where,
    "pow": _pow,
    "clip": _clip,
    "cast": _cast,
    "clone": _clone,
    "masked_scale": _masked_scale,
}
