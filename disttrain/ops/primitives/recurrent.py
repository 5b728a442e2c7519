"""A recurrent network over a whole sequence as one operation, and whether it can be one.

    recurrent(x, h, c, w, b; mode, backwards, composed) -> out, c_end, and what its rule reads

``x`` is the input's part of all gates (time, N, gates * H). ``composed(x, h, c, w, b)`` computes
(out, c_end) by operations of one step each: derivatives of derivatives are taken through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused import recurrent as fused
from ...context import SLOW, thread
from ...core.backward.autograd import grad
from ...core.gate import Primitive
from ...core.grad_mode import enable_grad
from ...core.tensor import Tensor
from ...core.types.wide import add_up
from ..declare import declare_apart
from .views import reshape

_LEAST = 1 << 13  # numbers of the input's part from which it gains (measured)
_LONG = 24  # steps from which it gains in any case
_KINDS = (np.dtype(np.float32), np.dtype(np.float64))


def runs_at_once(mode: str, *tensors: Tensor | None) -> bool:
    """Whether ``recurrent`` takes these (the last is the bias): arrays of the host of one floating
    type, and no transform that would look inside."""
    x = tensors[0].__dict__.get("array")  # type: ignore[union-attr]
    if thread.mode == SLOW or x is None or (x.size < _LEAST and x.shape[0] < _LONG):
        return False
    arrays = [None if t is None else t.__dict__.get("array") for t in tensors]
    given = [a for a, t in zip(arrays, tensors) if t is not None]
    kind = getattr(given[0], "dtype", None)
    if kind not in _KINDS or not all(
        a.__class__ is np.ndarray and a.dtype == kind and a.size for a in given
    ):
        return False
    return fused.generated(mode, kind, tensors[-1] is not None)


def _recurrent(
    x: Any, h: Any, c: Any, w: Any, b: Any, mode: str, backwards: bool, composed: Callable
) -> tuple:
    states, cells, gates = fused.forward(mode, x, h, c, w, b, backwards)
    out = (states[:-1] if backwards else states[1:]).copy()
    end = cells[0 if backwards else -1].copy() if cells.size else np.empty(0, x.dtype)
    return out, end, states, cells, gates


def _rule(
    g: Any, x: Any, h: Any, c: Any, w: Any, b: Any, out: Any, mode: str, backwards: bool,
    composed: Callable, needs: tuple,
) -> tuple:  # fmt: skip
    if not isinstance(g[0], np.ndarray):
        return _again(g, (x, h, c, w, b), composed, needs)
    _, _, states, cells, gates = out
    dx, dp, dh, dc = fused.backward(
        mode, np.ascontiguousarray(g[0]), None if c is None else g[1], states, cells, gates, w, backwards
    )
    flat = dp.reshape(-1, dp.shape[-1])
    before = states[1:] if backwards else states[:-1]
    dw = flat.T @ before.reshape(len(flat), -1) if needs[3] else None
    db = add_up(flat, (0,), False) if needs[4] else None
    return dx, dh, dc, dw, db


def _again(g: Any, given: tuple, composed: Callable, needs: tuple) -> tuple:
    """The gradients through single steps, so that they can be derived again."""
    with enable_grad():
        apart = [None if t is None else reshape(t, shape=tuple(t.shape)) for t in given]
        for t, need in zip(apart, needs):
            if need and not t.requires_grad:
                t.requires_grad_()
        out, end = composed(*apart)
        ends, cotangents = ([out], [g[0]]) if end is None else ([out, end], [g[0], g[1]])
        wanted = [t for t, need in zip(apart, needs) if need]
        found = iter(grad(ends, wanted, cotangents, create_graph=True, materialize_grads=True))
    return tuple(next(found) if need else None for need in needs)


recurrent: Primitive = declare_apart("recurrent", _recurrent, "x h c w b", _rule)
recurrent.kinds, recurrent.jvp = False, None
recurrent.multi, recurrent.nondiff_outputs = True, (2, 3, 4)


__all__ = ["recurrent", "runs_at_once"]
