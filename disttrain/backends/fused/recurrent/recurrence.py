"""Recurrent networks over whole sequences: what depends on the state, step by step.

    outs, kept = forward(mode, x, states, w, b)          mode: "LSTM", "GRU", "RNN_TANH", "RNN_RELU"
    dx, dstates, dw, db, dp = backward(mode, g, ends, kept, states, w, outs)

``x``: the input's part of all gates, (T, N, gates * H), in PyTorch's order (LSTM i f g o, GRU r z
n); ``states``: the tensors of the first state, (N, H) each; ``w`` (gates * H, H) and ``b``
(gates * H): the state's part. ``outs``: for each tensor of the state its values after all steps,
(T, N, H). ``p`` (P, H): the projection of an LSTM's first tensor; that tensor, and what ``w``
takes, has P units then. ``backwards``: from the last step on. ``dw``, ``db`` and ``dp`` are one
product each for all steps. float32 and float64.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from ..copies import contiguous
from ..products import many_rows
from .cells import ADDED, COPIED, MODES
from .steps import Along, Phase, in_rows, parts, repeated, run


def kept_parts(mode: str, p: object) -> int:
    """How many arrays of H units a step leaves to backward."""
    return MODES[mode].kept + (p is not None)


def forward(
    mode: str, x: ndarray, states: tuple[ndarray, ...], w: ndarray, b: ndarray | None,
    p: ndarray | None = None, backwards: bool = False, keep: bool = True,
    v: ndarray | None = None,
) -> tuple[list[ndarray], ndarray]:  # fmt: skip
    """All states, and what backward needs of each step, (T, N, arrays * H): none without
    ``keep``. ``v`` (gates * H, I): by what ``x``, (T, N, I) then, is multiplied; not of a GRU."""
    kind, dtype, (count, rows, _) = MODES[mode], x.dtype, x.shape
    width = len(w) // kind.gates
    outs = [np.empty((count, rows, s.shape[1]), dtype) for s in states]
    kept = np.empty((count, rows, kept_parts(mode, p) * width if keep else 0), dtype)
    h, *c = (Along(o, -1, contiguous(s)) for o, s in zip(outs, states, strict=True))
    left = parts(kept, kept_parts(mode, p), "k") if keep else {}
    made = Along(outs[0])
    if p is not None:
        scratch = Along(repeated(np.empty((rows, width), dtype), count))
        made = left.pop(f"k{kind.kept}", scratch)
    x = in_rows(x)
    given = parts(x, kind.gates, "x") if v is None else {}
    arrays = {
        **given, **left, "h": h, "c": c[0] if c else h, "y0": made,
        "y1": Along(outs[-1]),
    }  # fmt: skip
    xs = (h,) if v is None else (Along(x), h)
    weights = (w.T,) if v is None else (v.T, w.T)
    step = kind.steps[v is None, keep]
    phases = [Phase(xs, weights, kind.gates, b, step, arrays)]
    if p is not None:
        phases.append(Phase((made,), (p.T,), 1, None, COPIED, {"y0": Along(outs[0])}))
    run(phases, count, rows, backwards)
    return outs, kept


def _given(g: ndarray | None, end: ndarray | None, last: int, like: ndarray) -> Along:
    """The gradients of what each step gave, and ``end`` of what the last one did besides."""
    if g is None:
        rows = np.zeros(like.shape[1:], like.dtype)
        return Along(repeated(rows, len(like)), 0, None if end is None else contiguous(end))
    g = in_rows(g)
    if end is None:
        return Along(g)
    if g.strides[1] != like.strides[1]:
        g = contiguous(g)
    return Along(g, 0, g[last] + end)


def product(a: ndarray, b: ndarray) -> ndarray:
    """``a @ b``."""
    out = many_rows.product(a, b)
    return np.matmul(a, b) if out is None else out


def backward(
    mode: str, g: ndarray | None, ends: tuple[ndarray | None, ...], kept: ndarray,
    states: tuple[ndarray, ...], w: ndarray, outs: list[ndarray], p: ndarray | None = None,
    backwards: bool = False,
) -> tuple[ndarray, list[ndarray], ndarray, ndarray, ndarray | None]:  # fmt: skip
    """The gradients of x, of the first state, of w, of b and of p (where it has them). ``g``: that
    of the first of ``outs``; ``ends``: those of the state after the last step. None is zero."""
    kind, dtype, (count, rows, width) = MODES[mode], kept.dtype, outs[-1].shape
    first = [contiguous(s) for s in states]
    dx = np.empty((count, rows, kind.gates * width), dtype)
    of_state = np.empty(dx.shape, dtype) if kind.apart else dx
    carry = np.zeros((rows, width), dtype)
    last = 0 if backwards else -1
    gh, *gc = (_given(a, end, last, o) for a, end, o in zip((g, None), ends, outs))
    arrays = {
        **parts(kept, kept_parts(mode, p), "k"), **parts(dx, kind.gates, "g"),
        **parts(of_state, kind.gates, "q"), "h": Along(outs[0], 1, first[0]), "gh": gh,
        "y0": Along(outs[0]), "y1": Along(outs[-1]), "c": Along(outs[-1], 1, first[-1]),
        "gc": gc[0] if gc else gh, "e": Along(repeated(carry, count)),
    }  # fmt: skip
    behind = Along(of_state, -1)
    if p is None:
        phases = [Phase((behind,), (w,), 1, None, kind.back, arrays)]
    else:
        dh = np.empty(outs[0].shape, dtype)
        arrays["gh"] = _given(None, None, last, outs[-1])
        phases = [
            Phase((behind,), (w,), 1, None, ADDED, {"gh": gh, "y0": Along(dh)}),
            Phase((Along(dh),), (p,), 1, None, kind.back, arrays),
        ]
    run(phases, count, rows, not backwards)
    of_h = of_state[-1 - last] @ w
    dstates = [of_h, carry] if len(states) == 2 else [of_h + carry if kind.apart else of_h]
    flat = of_state.reshape(count * rows, -1)
    before = [outs[0][1:], first[0][None]] if backwards else [first[0][None], outs[0][:-1]]
    dw = product(flat.T, np.concatenate(before).reshape(count * rows, -1))
    dp = None
    if p is not None:
        made = kept[..., kind.kept * width :].reshape(count * rows, width)
        dp = product(dh.reshape(count * rows, -1).T, made)
    return dx, dstates, dw, np.add.reduce(flat, axis=0), dp


__all__ = ["MODES", "backward", "forward", "kept_parts", "product"]
