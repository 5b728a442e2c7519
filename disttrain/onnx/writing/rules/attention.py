"""Scaled dot product attention: one operator from version 23 on, spelled out before."""

from __future__ import annotations

import math
from typing import Any

from ..types import BOOL, INT64, Ref, same_shape
from ..writer import Writer, rule


@rule("attention")
def _attention(
    w: Writer, q: Ref, k: Ref, v: Ref, mask: Ref | None, causal: bool, scale: Any,
    keep: bool = True,
) -> tuple:  # fmt: skip
    """(what is attended to, the probabilities)."""
    if w.opset >= 23 and w.alone and _is_one(q, k, v, mask):
        return _whole(w, q, k, v, mask, causal, scale), None
    p = _probabilities(w, q, k, mask, causal, scale)
    return w.node("MatMul", p, v), p


def _is_one(q: Ref, k: Ref, v: Ref, mask: Ref | None) -> bool:
    """Whether the operator takes them: batches and heads are the same for all."""
    shapes = [a.shape for a in (q, k, v)]
    if any(s is None for s in shapes) or not 2 <= len(shapes[0] or ()) <= 4:
        return False
    leads = [s[:-2] for s in shapes if s is not None]
    fits = all(same_shape(leads[0], lead) for lead in leads)
    return fits and (mask is None or (mask.shape is not None and len(mask.shape) <= q.rank))


def _whole(w: Writer, q: Ref, k: Ref, v: Ref, mask: Any, causal: bool, scale: Any) -> Ref:
    missing = list(range(4 - q.rank))
    if mask is not None:
        mask = mask if mask.dtype == BOOL else w.cast(mask, q.dtype)
        ends = (q.shape or ())[-2], (k.shape or ())[-2]  # runtimes want these as they are
        mask = w.expand(mask, (*(mask.shape or ())[:-2], *ends))
        mask = w.unsqueeze(mask, missing) if missing and mask.rank > 2 else mask
    if missing:
        q, k, v = (w.unsqueeze(a, missing) for a in (q, k, v))
    out = w.node("Attention", q, k, v, mask, is_causal=int(causal) or None, scale=float(scale))
    return w.squeeze(out, missing) if missing else out


def _probabilities(w: Writer, q: Ref, k: Ref, mask: Any, causal: bool, scale: Any) -> Ref:
    rank = k.rank
    scaled = w.node("Mul", q, w.operand(scale, q.dtype))
    turned = w.transpose(k, (*range(rank - 2), rank - 1, rank - 2))
    scores = w.node("MatMul", scaled, turned)
    if causal:
        scores = w.where(
            seen(w, (q.shape or ())[-2], (k.shape or ())[-2]), scores, -math.inf, q.dtype
        )
    if mask is not None and mask.dtype == BOOL:
        scores = w.where(mask, scores, -math.inf, q.dtype)
    elif mask is not None:
        scores = w.node("Add", scores, w.cast(mask, q.dtype))
    p = w.node("Softmax", scores, axis=-1)
    if mask is None:
        return p
    return w.where(w.node("IsNaN", p, dtype=BOOL), 0, p, q.dtype)


@rule("seen")
def _seen(w: Writer, shape: tuple, dtype: Any) -> Ref:
    return seen(w, *shape)


def seen(w: Writer, queries: Any, keys: Any) -> Ref:
    """Which keys each query sees."""
    start, step = w.constant(0, INT64), w.constant(1, INT64)
    rows = w.node("Range", start, w.size(queries), step)
    columns = w.node("Range", start, w.size(keys), step)
    return w.node("LessOrEqual", columns, w.unsqueeze(rows, (1,)), dtype=BOOL)
