"""Cross entropy on devices: the fused rows, where the host never learns the sums."""

from __future__ import annotations

from typing import Any

from ...backends.device.platform import Platform
from ...backends.fused import cross_entropy as fused
from ..primitives.loss import _wide
from .gathering import inside
from .table import INT64, converted, on_device


@on_device("cross_entropy")
def _rows(
    platform: Platform, a: Any, target: Any, weight: Any, ignore_index: int, smoothing: float,
    reduction: str,
) -> tuple:  # fmt: skip
    """(loss, log-sum-exp per row, weight of the rows that count). The mean of no rows is nan."""
    target = inside(platform, "cross_entropy", target, a.shape[1], ignore_index)
    losses, lse, total, count = fused.cross_entropy(a, target, weight, ignore_index, smoothing)
    loss = {"none": losses, "sum": total}.get(reduction)
    loss = total / count if loss is None else loss
    return converted(platform, loss, a.dtype), lse, converted(platform, count, _wide(a.dtype))


@on_device("cross_entropy_backward")
def _backward(
    platform: Platform, scale: Any, a: Any, target: Any, weight: Any, lse: Any, ignore_index: int,
    smoothing: float,
) -> Any:  # fmt: skip
    target = converted(platform, target, INT64)
    if not isinstance(scale, platform.array_type):
        scale = float(scale)
    elif scale.ndim:
        scale = converted(platform, scale, _wide(a.dtype))
    return fused.cross_entropy_backward(scale, a, target, lse, weight, ignore_index, smoothing)
