"""Scaled dot product attention: softmax(Q K^T scale + mask) V, fused.

Scores of short sequences are kept for the backward pass. Those of long ones are made for some
queries at a time, so that they stay in the cache, and made anew in the backward pass: memory then
grows with the length, not with its square, and causal attention skips what lies ahead. Where
nothing is to be differentiated none are kept (``keep=False``): sizes are then free of that limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...backends.fused import softmax as fused
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...core.tensor import beside
from ...core.types.wide import widened
from ...symbolic import common_shape, is_symbolic, made
from ..declare import primitive
from . import elementwise as el
from .batching import at_once, by_kernel, computed, fronted, made_beside
from .linalg import matmul, swap
from .softmax import softmax_, softmax_backward
from .views import reshape

_BLOCK = 128  # queries whose scores are worked on at a time
_LONG = 1 << 17  # scores per head from which this pays (measured)


def _in_blocks(q: Any, k: Any) -> bool:
    return q.shape[-2] * k.shape[-2] >= _LONG


def _blocks(q: np.ndarray, k: np.ndarray, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Which queries to do together, and which keys they see."""
    length, width = q.shape[-2], k.shape[-2]
    step = _BLOCK if _in_blocks(q, k) else max(length, 1)
    for first in range(0, length, step):
        last = min(first + step, length)
        yield slice(first, last), slice(0, min(last, width) if causal else width)


class _Mask:
    """What is added to the scores, and which rows see nothing at all."""

    def __init__(self, mask: Any, causal: bool, kind: np.dtype) -> None:
        self.causal, self.kind = causal, kind
        self.blind: Any = None
        self.added: Any = None
        if mask is not None:
            if mask.dtype.kind == "b":
                mask = np.where(mask, kind.type(0), kind.type(-np.inf))
            self.added = np.atleast_2d(mask).astype(kind, copy=False)
            blind = (self.added == -np.inf).all(axis=-1, keepdims=True)
            self.blind = blind if blind.any() else None

    def _part(self, a: Value, rows: slice, columns: slice) -> Any:
        rows = rows if a.shape[-2] > 1 else slice(None)
        return a[..., rows, columns if a.shape[-1] > 1 else slice(None)]

    def apply(self, scores: np.ndarray, rows: slice, columns: slice) -> None:
        """Softmax of the masked scores, in place."""
        if self.added is not None:
            scores += self._part(self.added, rows, columns)
        if self.causal:
            ahead = np.arange(columns.stop) > np.arange(rows.start, rows.stop)[:, None]
            scores += np.where(ahead, self.kind.type(-np.inf), self.kind.type(0))
        fused.softmax(scores, scores)
        if self.blind is not None:
            blind = self.blind[..., rows, :] if self.blind.shape[-2] > 1 else self.blind
            np.copyto(scores, 0, where=blind)


def _lead(*arrays: Any) -> tuple:
    return common_shape(*(a.shape[:-2] for a in arrays if a is not None))


def _attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, causal: bool,
    scale: float, keep: bool = True,
) -> tuple:  # fmt: skip
    """(out, probabilities), the latter empty where they are not kept."""
    kind = q.dtype
    q, k, v = map(widened, (q, k, v))
    lead = _lead(q, k, v, mask)
    out = np.empty((*lead, q.shape[-2], v.shape[-1]), q.dtype)
    masked = _Mask(mask, causal, q.dtype)
    scaled = q * q.dtype.type(scale)
    kept: Any = np.empty(0, q.dtype)
    for rows, seen in _blocks(q, k, causal):
        scores = np.matmul(scaled[..., rows, :], k[..., seen, :].swapaxes(-1, -2))
        if mask is not None:
            scores = _room_for(scores, mask, rows)
        masked.apply(scores, rows, seen)
        np.matmul(scores, v[..., seen, :], out=out[..., rows, :])
        if keep and not _in_blocks(q, k) and seen.stop == k.shape[-2]:
            kept = scores
    return out.astype(kind, copy=False), kept


def _room_for(scores: np.ndarray, mask: np.ndarray, rows: slice) -> Any:
    """``scores`` in the leading shape that adding ``mask`` gives."""
    lead = common_shape(scores.shape[:-2], mask.shape[:-2])
    if lead == scores.shape[:-2]:
        return scores
    return np.broadcast_to(scores, (*lead, *scores.shape[-2:])).copy()


def attention_shape(
    q: Shaped, k: Shaped, v: Shaped, mask: object, causal: bool, scale: float, keep: bool = True
) -> list:
    lead = _lead(q, k, v, mask)
    length, width = q.shape[-2], k.shape[-2]
    wide = np.dtype(np.float64 if q.dtype == np.float64 else np.float32)
    kept = (*lead, length, width)
    if not keep or _in_blocks(q, k) or (causal and length < width):
        kept = (0,)
    return [((*lead, length, v.shape[-1]), q.dtype), (kept, wide)]


def _no_kernel(*arrays: object, **params: object) -> tuple:
    raise NotImplementedError("only devices have it")


attention_backward = by_kernel("attention_backward", _no_kernel, "g q k v mask out lse")


def _kept(out: tuple) -> tuple:
    """The kernels of devices make the scores anew from their sums, and need the result, too."""
    return (0, 1) if out[0].__dict__.get("array").__class__ is DeviceArray else (1,)


def _attention_rule(
    g: tuple,
    q: object,
    k: object,
    v: object,
    mask: object,
    out: tuple,
    causal: bool,
    scale: float,
    needs: tuple,
) -> tuple:
    """By blocks on arrays; on Tensors the same thing composed, so that it can be derived again."""
    g = g[0]
    if not isinstance(g, np.ndarray):
        if at_once(g) and not needs[3]:
            how = {"causal": causal, "scale": scale}
            return (*computed(attention_backward, (g, q, k, v, mask, *out), **how), None)
        return _pull(g, q, k, v, mask, causal, scale, needs)
    g, q, k, v = map(widened, (g, q, k, v))
    kept = out[1]
    masked = None if kept.size else _Mask(mask, causal, q.dtype)
    lead = g.shape[:-2]
    dq = np.empty((*lead, *q.shape[-2:]), q.dtype)
    make = np.empty if masked is None else np.zeros  # nothing to add to: one block, all keys
    dk = make((*lead, *k.shape[-2:]), q.dtype)
    dv = make((*lead, *v.shape[-2:]), q.dtype)
    dmask = np.zeros((*lead, q.shape[-2], k.shape[-2]), q.dtype) if needs[3] else None
    factor = q.dtype.type(scale)
    for rows, seen in _blocks(q, k, causal):
        queries, keys, values, part = (
            q[..., rows, :],
            k[..., seen, :],
            v[..., seen, :],
            g[..., rows, :],
        )
        if masked is None:
            p = kept
        else:
            p = np.matmul(queries * factor, keys.swapaxes(-1, -2))
            p = p if mask is None else _room_for(p, mask, rows)
            masked.apply(p, rows, seen)
        _collect(dv, seen, p, part, masked is None)
        dp = np.matmul(part, values.swapaxes(-1, -2))
        fused.softmax_backward(dp, p, dp)
        if dmask is not None:
            dmask[..., rows, seen] = dp
        dp *= factor
        np.matmul(dp, keys, out=dq[..., rows, :])
        _collect(dk, seen, dp, queries, masked is None)
    return dq, dk, dv, dmask


def _collect(total: np.ndarray, seen: slice, p: np.ndarray, rows: np.ndarray, whole: bool) -> None:
    """Add P^T rows to the keys that were seen."""
    if whole:
        np.matmul(p.swapaxes(-1, -2), rows, out=total)
    else:
        total[..., seen, :] += np.matmul(p.swapaxes(-1, -2), rows)


def _last(x: Value) -> int:
    return len(x.shape) - 1


def seen_places(length: int, width: int) -> np.ndarray:
    """Which keys each query sees where none looks ahead."""
    return np.arange(width) <= np.arange(length).reshape(length, 1)


def _causal(scores: Any, length: Any, width: Any) -> Any:
    if is_symbolic((length, width)):
        return beside(scores, made(seen_places, length, width, shape=(length, width)))
    return made_beside(scores, lambda xp: xp.arange(width) <= xp.arange(length).reshape(length, 1))


def probabilities(q: Any, k: Any, mask: Any, causal: bool, scale: float) -> Any:
    """softmax(Q K^T scale + mask), composed."""
    scores = matmul(q * scale, swap(k))
    length, width = tuple(scores.shape)[-2:]
    if causal:
        scores = el.where(_causal(scores, length, width), scores, -math.inf)
    if mask is None:
        return softmax_(scores, dim=_last(scores))
    if mask.meta()[1].kind == "b":
        scores = el.where(mask, scores, -math.inf)
    else:
        scores = scores + mask
    p = softmax_(scores, dim=_last(scores))
    return el.where(el.isnan(p), 0.0, p) if not scores.is_meta else p


def _pull(
    g: object,
    q: object,
    k: object,
    v: object,
    mask: object,
    causal: bool,
    scale: float,
    needs: tuple,
) -> tuple:
    p = probabilities(q, k, mask, causal, scale)
    ds = softmax_backward(matmul(g, swap(v)), p, dim=_last(p))
    dq = matmul(ds, k) * scale if needs[0] else None
    dk = matmul(swap(ds), q) * scale if needs[1] else None
    dv = matmul(swap(p), g) if needs[2] else None
    return dq, dk, dv, ds if needs[3] else None


def _attention_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    """The batch dimension in front, the others aligned from behind."""
    given = [None if a is None else fronted(a, d, size) for a, d in zip(args, dims, strict=True)]
    n = max(len(a.shape) for a in given if a is not None)
    aligned = [
        None if a is None else reshape(a, shape=(size, *(1,) * (n - len(a.shape)), *a.shape[1:]))
        for a in given
    ]
    out, kept = attention(*aligned, **params)
    if 0 in tuple(kept.shape):
        kept = fronted(kept, None, size)
    return (out, kept), (0, 0)


def _samples(rng: np.random.Generator) -> list:
    q, k, v = (rng.normal(size=(2, n, d)) for n, d in ((3, 4), (5, 4), (5, 2)))
    mask = rng.normal(size=(3, 5))
    return [
        ((q, k, v, None), {"causal": False, "scale": 0.5}),
        ((q, k, v, mask), {"causal": False, "scale": 0.5}),
        ((q, q, k[:, :3], None), {"causal": True, "scale": 0.7}),
        ((q, k, v, mask), {"causal": True, "scale": 0.5, "keep": False}),
    ]


attention: Primitive = primitive(
    "attention", _attention, "q k v mask", vjp=_attention_rule, multi=True, nondiff_outputs=(1,),
    shape=attention_shape, batch=_attention_batch, samples=_samples,
)  # fmt: skip
attention.kept = _kept
