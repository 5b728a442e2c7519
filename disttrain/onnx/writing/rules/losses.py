"""Cross entropy."""

from __future__ import annotations

from typing import Any

from ..types import BOOL, INT64, Ref
from ..writer import Writer, rule


@rule("cross_entropy")
def _cross_entropy(
    w: Writer, a: Ref, target: Ref, weight: Ref | None, ignore_index: int, smoothing: float,
    reduction: str,
) -> tuple:  # fmt: skip
    """(loss, log-sum-exp per row, weight of the rows that count)."""
    target = w.cast(target, INT64)
    if smoothing:
        out = _smoothed(w, a, target, weight, ignore_index, smoothing, reduction)
    else:
        out = w.node("SoftmaxCrossEntropyLoss", a, target, weight, ignore_index=ignore_index,
                     reduction=reduction)  # fmt: skip
    lse = lambda: w.cast(w.reduce("ReduceLogSumExp", a, (1,), False), w.outs[1].dtype)  # noqa: E731
    return out, lse, None


def _smoothed(
    w: Writer, a: Ref, target: Ref, weight: Any, ignore_index: int, smoothing: float,
    reduction: str,
) -> Ref:  # fmt: skip
    """(1 - s) of the loss of the targets and s of the mean over classes, each by its weight."""
    log_p = w.node("LogSoftmax", a, axis=1)
    counted = w.node("Not", w.node("Equal", target, w.constant(ignore_index, INT64), dtype=BOOL))
    safe = w.where(counted, target, 0, INT64)
    own = w.squeeze(w.node("GatherElements", log_p, w.unsqueeze(safe, (1,)), axis=1), (1,))
    share = w.cast(counted, a.dtype)
    if weight is not None:
        share = w.node("Mul", w.node("Gather", weight, safe, axis=0), share)
        log_p = w.node("Mul", log_p, weight)
        own = w.node("Mul", own, share)
    mean = w.reduce("ReduceMean", log_p, (1,), False)
    parts = [
        w.node("Mul", x, w.constant(-f, a.dtype))
        for x, f in ((own, 1 - smoothing), (mean, smoothing))
    ]
    rows = w.where(counted, w.node("Add", *parts), 0, a.dtype)
    if reduction == "none":
        return rows
    total = w.reduce("ReduceSum", rows, (0,), False)
    if reduction == "sum":
        return total
    return w.node("Div", total, w.reduce("ReduceSum", share, (0,), False))
