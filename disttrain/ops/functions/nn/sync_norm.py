"""Batch normalisation by the statistics of all ranks' batches. Knows groups, no default one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....comm.group.group import ProcessGroup
from ....core.grad_mode import no_grad
from ....core.tensor import Tensor, beside
from ....core.types.wide import is_half
from ....errors import ShapeError
from ...primitives import elementwise as el
from ...primitives.elementwise import cast_like, rsqrt, square
from ...primitives.reduce import sum_
from ...primitives.views import reshape
from ..args import tensor as as_input
from ..collectives import AllGatherSingle, How
from ..views.join import cat
from .norm import check_types, per_channel, track

_WIDE = np.dtype(np.float64)


def sync_batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, group: ProcessGroup, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """``batch_norm(training=True)`` of ``input`` (N, C, ...) as if the batches of all ranks of
    ``group`` were one. They may differ in size, and be empty on some ranks.

    Each rank's mean, sum of squares around it and count travel in one gather, and are joined
    without loss of digits (Chan, Golub, LeVeque, 1979); backward is one reduce-scatter. The
    running statistics move in place, alike on every rank. Raises ``ShapeError`` on every rank when
    there is one value per channel in all.
    """
    if as_input(input, "sync_batch_norm").ndim < 2:
        raise ShapeError(
            f"sync_batch_norm: input of shape {list(input.shape)} given; needed (N, C, ...)"
        )
    check_types("sync_batch_norm", input, running_mean, running_var, weight, bias)
    n, c = input.shape[:2]
    per_channel("sync_batch_norm", c, running_mean=running_mean, running_var=running_var,
                weight=weight, bias=bias)  # fmt: skip
    places = math.prod(input.shape[2:])
    x = input if input.ndim == 3 else reshape(input, shape=(n, c, places))
    x = el.cast(x, dtype=np.dtype(np.float32)) if is_half(x.meta()[1]) else x
    own = sum_(x, dims=(0, 2), keepdim=False) / max(n * places, 1)
    apart = x - reshape(own, shape=(-1, 1))  # from this rank's mean, which keeps the digits
    own = el.cast(own, dtype=_WIDE)
    total, centre, variance = _joined(group, own, apart, n * places)
    known = total if isinstance(total, int) else n * places if group.size == 1 else None
    if known == 1:
        raise ShapeError(
            "sync_batch_norm: expected more than 1 value per channel when training, got one on all "
            f"{group.size} ranks together; use a larger batch, or .eval()"
        )
    if known is None or total:
        with no_grad():
            if running_mean is not None:
                track(running_mean, cast_like(centre.detach(), running_mean), momentum)
            if running_var is not None:
                unbiased = variance.detach() * (total / _at_least_one(total - 1))
                track(running_var, cast_like(unbiased, running_var), momentum)
    scale = rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = (own - centre) * scale
    shift = shift if bias is None else shift + bias
    out = apart * _row(scale, x) + _row(shift, x)
    return reshape(cast_like(out, input), shape=tuple(input.shape))


def _row(t: Tensor, x: Tensor) -> Tensor:
    return cast_like(reshape(t, shape=(-1, 1)), x)


def _at_least_one(total: Tensor | int) -> Any:
    return max(total, 1) if isinstance(total, int) else el.maximum(total, 1.0)


def _joined(
    group: ProcessGroup, own: Tensor, apart: Tensor, count: int
) -> tuple[Any, Tensor, Tensor]:
    """Of all ranks' values together: their number per channel, mean and variance, in float64. On a
    device the number is a Tensor, so that the host does not wait for it.

    ``own``: the mean of this rank's ``count`` values per channel; ``apart``: their distances."""
    spread = sum_(square(apart), dims=(0, 2), keepdim=False)
    mine = cat([own, el.cast(spread, dtype=_WIDE), beside(own, np.array([count], _WIDE))])
    everyone = reshape(AllGatherSingle.on(group, How(), mine), shape=(group.size, -1))
    c = own.shape[0]
    counts = everyone[:, -1:].detach()
    total: Any = counts.sum()
    total = int(total.item()) if total.is_cpu else total
    centres, spreads = everyone[:, :c], everyone[:, c : 2 * c]
    centre = (centres * counts).sum(0) / _at_least_one(total)
    spread = (spreads + square(centres - centre) * counts).sum(0)
    return total, centre, spread / _at_least_one(total)


__all__ = ["sync_batch_norm"]
