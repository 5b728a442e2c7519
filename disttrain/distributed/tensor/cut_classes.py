"""Cross entropy of logits whose classes are cut over ranks, without putting them together.

What travels is per row: the largest logit, and then the sum of exponentials beside the logit of the
target. (Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.) Two primitives of the vocabulary
are answered here, the loss and its backward, for logits (N, C) that one mesh axis cuts along C;
other axes may cut the rows. Everything else is left to the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...comm.calls.reduce_ops import ReduceOp
from ...errors import DimError
from ...ops.layouts import Cut
from .fixed import joined, spans
from .movement import redistribute
from .placements import Placement, Replicate, Shard, local_span
from .spread import Spread


class _Cut(NamedTuple):
    """The logits of this rank, and where they stand: ``axis`` cuts the classes, ``rows`` are the
    axes that cut rows; classes ``start`` .. of all ``classes``."""

    logits: Any
    axis: int
    rows: tuple[int, ...]
    start: int
    classes: int

    @property
    def placed_rows(self) -> tuple[Placement, ...]:
        """How what belongs to rows lies."""
        n = self.logits.mesh.ndim
        return tuple(Shard(0) if i in self.rows else Replicate() for i in range(n))

    def of_rows(self, a: Spread) -> np.ndarray:
        """This rank's part of something that belongs to rows."""
        return _local(a, self.placed_rows)

    def whole(self, a: Any) -> np.ndarray:
        return _local(a, (Replicate(),) * self.logits.mesh.ndim)

    def reduced(self, array: np.ndarray, op: ReduceOp = ReduceOp.SUM) -> np.ndarray:
        """``array`` over the ranks that have the other classes."""
        self.logits.mesh.line(self.axis).all_reduce(array, op)
        return array

    def sum_of(self, array: np.ndarray) -> Any:
        """The sum of each row over the classes of this rank, in pieces where they are fixed."""
        fixed = self.logits.mesh.virtual_shards
        if not fixed:
            return array.sum(1)
        mine = Cut(array.shape[1], self.start, self.classes)
        parts = []
        for span in spans(mine, fixed, "cross_entropy"):
            at = span.start - self.start
            parts.append(np.ascontiguousarray(array[:, at : at + span.length]).sum(1))
        return joined(parts)

    def over_rows(self, array: np.ndarray) -> np.ndarray:
        """``array`` over the ranks that have the other rows."""
        for axis in self.rows:
            self.logits.mesh.line(axis).all_reduce(array)
        return array


def _local(a: Spread, placements: tuple) -> Any:
    return redistribute(a, placements).local if isinstance(a, Spread) else np.asarray(a)


def _cut(a: Spread) -> _Cut | None:
    """How the classes of ``a`` are cut; None where this file has nothing to say."""
    if not isinstance(a, Spread) or not isinstance(a.local, np.ndarray) or a.ndim != 2:
        return None
    mesh, place = a.mesh, a.mesh.get_coordinate()
    axes = [i for i, p in enumerate(a.placements) if type(p) is Shard and p.dim == 1]
    rows = tuple(i for i, p in enumerate(a.placements) if type(p) is Shard and p.dim == 0)
    others = [p for i, p in enumerate(a.placements) if i not in (*axes, *rows)]
    if place is None or len(axes) != 1 or not all(p == Replicate() for p in others):
        return None
    start = local_span(a.shape[1], mesh.ranks.shape, place, a.placements, 1)[1]
    return _Cut(a, axes[0], rows, start, a.shape[1])


class _Targets(NamedTuple):
    """Per row: whether it counts, the weight of its target, whether that is one of this rank's
    classes, and which (0 where not). ``wrong``: targets that are no class, which do not count."""

    wrong: np.ndarray
    counts: np.ndarray
    weight: np.ndarray
    here: np.ndarray
    column: np.ndarray


def _targets(
    cut: _Cut, target: Spread, weight: np.ndarray | None, ignore: int, wide: np.dtype
) -> _Targets:
    t = cut.of_rows(target).astype(np.int64, copy=False)
    fits = (t >= 0) & (t < cut.classes)
    counts = (t != ignore) & fits
    wrong = t[(t != ignore) & ~fits]
    safe = np.where(counts, t, 0)
    w = counts.astype(wide) if weight is None else counts * weight[safe].astype(wide)
    column = safe - cut.start
    here = counts & (column >= 0) & (column < cut.logits.local.shape[1])
    return _Targets(wrong, counts, w, here, np.where(here, column, 0))


def _wide(kind: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if kind == np.float64 else np.float32)


def _loss(arrays: list, params: dict) -> Any:
    """``cross_entropy``: (loss, log-sum-exp per row, weight of the rows that count)."""
    a, target, weight = arrays
    cut = _cut(a)
    if cut is None:
        return None
    wide = _wide(a.dtype)
    x = a.local.astype(wide, copy=False)
    weights = None if weight is None else cut.whole(weight)
    e = params["smoothing"]
    t = _targets(cut, target, weights, params["ignore_index"], wide)
    n, mine = x.shape
    top = x.max(1) if mine else np.full(n, -np.inf, wide)
    top = cut.reduced(np.ascontiguousarray(top), ReduceOp.MAX)
    sums = np.zeros((3 if e else 2, n), wide)
    shifted = x - np.where(np.isfinite(top), top, 0)[:, None]
    sums[1] = np.where(t.here, x[np.arange(n), t.column], 0) if mine else 0
    if e:
        own = None if weights is None else weights[cut.start : cut.start + mine].astype(wide)
        sums[2] = cut.sum_of(x if own is None else x * own)
    sums[0] = cut.sum_of(np.exp(shifted, out=shifted))
    cut.reduced(sums)
    lse = np.where(np.isfinite(top), top, 0).astype(np.float64) + np.log(sums[0])
    losses = t.weight * (lse - sums[1])
    if e:
        total = cut.classes if weights is None else weights.sum(dtype=wide)
        spread = t.counts * (total * lse - sums[2])
        losses = (1 - e) * losses + e / max(cut.classes, 1) * spread
    losses = np.where(t.counts, losses, 0).astype(wide, copy=False)
    both = cut.over_rows(np.array([losses.sum(dtype=np.float64), t.weight.sum(dtype=np.float64),
                                   len(t.wrong)]))  # fmt: skip
    if both[2]:  # on every rank alike
        which = f"Target {int(t.wrong[0])}" if len(t.wrong) else "A target of other ranks' rows"
        raise DimError(
            f"cross_entropy: {which} is out of bounds: there are {cut.classes} classes; give class "
            f"numbers from 0 to {cut.classes - 1}, or ignore_index"
        )
    everywhere = (Replicate(),) * a.mesh.ndim
    count = a.make(np.asarray(both[1], wide), everywhere, ())
    lses = a.make(lse, cut.placed_rows, a.shape[:1])
    if params["reduction"] == "none":
        return a.make(losses.astype(a.dtype), cut.placed_rows, a.shape[:1]), lses, count
    if params["reduction"] == "mean":
        both[0] = both[0] / both[1] if both[1] else np.nan
    return a.make(np.asarray(both[0], a.dtype), everywhere, ()), lses, count


def _backward(arrays: list, params: dict) -> Any:
    """``cross_entropy_backward``: the gradient of the logits, cut as they are."""
    scale, a, target, weight, lse = arrays
    cut = _cut(a)
    if cut is None:
        return None
    wide = _wide(a.dtype)
    weights = None if weight is None else cut.whole(weight)
    e = params["smoothing"]
    t = _targets(cut, target, weights, params["ignore_index"], wide)
    x = a.local.astype(wide, copy=False)
    lses = cut.of_rows(lse)
    high = lses.astype(wide)  # what rounding takes from it is subtracted after it
    out = x - high[:, None]
    out -= (lses - high).astype(wide, copy=False)[:, None]
    np.exp(out, out=out)
    mine = out.shape[1]
    rows = np.flatnonzero(t.here)
    if e:
        total = cut.classes if weights is None else weights.sum(dtype=wide)
        own = 1 if weights is None else weights[cut.start : cut.start + mine].astype(wide)
        share = e / max(cut.classes, 1) * t.counts.astype(wide)
        out *= ((1 - e) * t.weight + share * total)[:, None]
        out -= share[:, None] * own
    else:
        out *= t.weight[:, None]
    out[rows, t.column[rows]] -= (1 - e) * t.weight[rows]
    g = cut.of_rows(scale) if len(scale.shape) else cut.whole(scale)
    out *= (g[:, None] if g.ndim else g).astype(wide, copy=False)
    return a.make(out.astype(a.dtype, copy=False), a.placements, a.shape)


# What answers for a primitive before the general way does: ``answer(arrays, params)``, or None.
ANSWERS: Mapping[str, Callable[[Any, dict], Any]] = {
    "cross_entropy": _loss,
    "cross_entropy_backward": _backward,
}
