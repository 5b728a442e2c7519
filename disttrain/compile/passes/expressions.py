"""Operations as scalar expressions whose kernels give the bits of the operations themselves.

IEEE arithmetic, square roots, comparisons and choices are exact everywhere; gelu, silu and erf are
such kernels already. Exponentials, logarithms and the like are NumPy's in an eager run, whose last
bits differ: they are not here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.lang import expr as ex
from ...ops.declare import REGISTRY
from ..instruction import Instruction, Var

FLOATS = ("float32", "float64")

_OWN = (
    "neg abs sqrt rsqrt square reciprocal relu relu_backward floor ceil add sub mul div maximum "
    "minimum lt le gt ge where gelu_tanh gelu_tanh_backward gelu gelu_backward silu silu_backward "
    "erf"
).split()
_KERNELS_OF_ONE_TYPE = frozenset(
    "gelu_tanh gelu_tanh_backward gelu gelu_backward silu silu_backward erf".split()
)


def _clip(a: ex.Expr, low: float | None = None, high: float | None = None) -> ex.Expr:
    cut = a if high is None else ex.where(a > high, high, a)
    return cut if low is None else ex.where(a < low, low, cut)


_MORE: dict[str, Callable[..., ex.Expr]] = {
    "eq": ex.eq,
    "ne": ex.ne,
    "clip": _clip,
    "clip_below": ex.max,
    "clip_above": ex.min,
    "clone": lambda a: a,
    "cast": lambda a, dtype: ex.cast(a, np.dtype(dtype).name),
    "masked_scale": lambda a, mask, scale: ex.where(mask, a * scale, 0.0),
}


def expression_of(ins: Instruction, metas: dict) -> Callable[..., ex.Expr] | None:
    """The expression that ``ins`` computes of those of its arguments; None where it has none, or
    none of these types. (What Python's numbers become is NumPy's rule: the arrays' type.)"""
    name = ins.prim.name
    kinds = {metas[a][1].name for a in ins.args if isinstance(a, Var)}
    result = metas[ins.outputs[0]][1].name if len(ins.outputs) == 1 else ""
    floats = {k for k in (*kinds, result) if k in FLOATS}
    if not kinds | {result} <= {*FLOATS, "bool"} or not all(map(_plain, ins.args)):
        return None
    if name == "cast":
        return _MORE[name] if floats and result != "bool" else None
    if len(floats) != 1 or (name in _KERNELS_OF_ONE_TYPE and floats != {"float32"}):
        return None
    if ins.params and not all(map(_plain, ins.params.values())):
        return None
    if name in _MORE and REGISTRY.get(name) is ins.prim:
        return _MORE[name]
    return ins.prim.expr if name in _OWN and REGISTRY.get(name) is ins.prim else None


def _plain(x: Any) -> bool:
    """A value, or a number that has one meaning in each floating type."""
    if x is None or isinstance(x, Var):
        return True
    if isinstance(x, np.dtype):
        return True
    if type(x) is float:
        return math.isfinite(x) and (x == 0 or 1e-37 < abs(x) < 1e38)
    return type(x) is int and abs(x) < 1 << 24
