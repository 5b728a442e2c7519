"""A pass of a recurrent layer whose product with the state is of 8-bit integers, as one operation.

Before each step all rows of the state are rounded to one grid from the least of them to the
greatest, as ``dynamic_linear`` does; the rest of a step is that of ``nn/recurrence.py``. On the
host's arrays, of float32; no gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ..backends.fused.copies import contiguous
from ..backends.fused.products import int8_product
from ..backends.fused.recurrent.cells import MODES
from ..backends.fused.recurrent.steps import in_rows
from ..ops.declare import declare_apart

F32 = np.dtype(np.float32)
_GRID = int8_product.Grid(0, 255, False)


def _forward(
    x: ndarray, w: ndarray, scale: ndarray, sums: ndarray, b: ndarray | None, h: ndarray,
    c: ndarray | None, mode: str, backwards: bool,
) -> tuple:  # fmt: skip
    """The first tensor of the state after each step, (time, N, H), and the state after the last
    one, (1, N, H) each. ``x``: the input's part of the gates, (time, N, gates H)."""
    states, kind, width = (h,) if c is None else (h, c), MODES[mode], h.shape[1]
    outs = [np.empty((*x.shape[:2], width), F32) for _ in states]
    made = np.empty((x.shape[1], len(w)), F32)
    sums_of = {f"s{k}": part for k, part in enumerate(np.split(made, kind.gates, 1))}
    x = in_rows(x)
    given = {f"x{k}": _each(part, backwards) for k, part in enumerate(np.split(x, kind.gates, 2))}
    given |= {f"y{k}": _each(out, backwards) for k, out in enumerate(outs)}
    for name, first, at in zip("hc", states, ("y0", "y1")):
        given[name] = [contiguous(first), *given[at][:-1]]
    step, scales = kind.steps[True, False][F32], np.broadcast_to(scale, (len(w),))
    scales = np.ascontiguousarray(scales, F32)
    names = [a.name for a in step.kernel.arrays]
    turns = zip(*(given.get(n) or [sums_of[n]] * len(x) for n in names), strict=True)
    for before, arrays in zip(given["h"], turns, strict=True):
        int8_product.dynamic(before, 1, _GRID, w, scales, sums, b, made)
        step(*arrays)
    last = slice(0, 1) if backwards else slice(-1, None)
    return outs[0], *(o[last].copy() for o in outs)


def _each(a: ndarray, backwards: bool) -> list[ndarray]:
    """What the steps have of ``a``, in the order in which they are done."""
    return list(a[::-1] if backwards else a)


def _shapes(
    x: Any, w: Any, scale: Any, sums: Any, b: Any, h: Any, c: Any, mode: str, backwards: bool
) -> list:
    states = [h] if c is None else [h, c]
    shapes = [(*x.shape[:2], h.shape[1]), *((1, *s.shape) for s in states)]
    return [(shape, F32) for shape in shapes]


integer_recurrence = declare_apart("integer_recurrence", _forward, "x w scale sums b h c", {})
integer_recurrence.multi, integer_recurrence.shape = True, _shapes

__all__ = ["integer_recurrence"]
