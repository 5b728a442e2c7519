"""Activations whose form a parameter says, of integers where that has a meaning; dropout by a mask
of its own shape."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops import api as ops
from . import functional


def leaky_relu(x: Tensor, alpha: float = 0.2) -> Tensor:
    """``x`` from 0 on, ``alpha * x`` below; of integers in float32."""
    return functional.leaky_relu(x if x.dtype.is_floating_point else x.float(), alpha)


def gelu(x: Tensor, near: bool = False) -> Tensor:
    """``x`` times the share of the normal distribution below it; ``near``: by tanh."""
    return functional.gelu(x, approximate="tanh" if near else "none")


def silu(x: Tensor, beta: float = 1.0) -> Tensor:
    """``x * sigmoid(beta * x)``."""
    return x * ops.sigmoid(x * beta)


def crelu(x: Tensor, axis: int = -1) -> Tensor:
    """What is above 0 and, after it, what is below, as magnitudes."""
    return functional.relu(ops.cat([x, -x], axis))


def dropout(x: Tensor, rate: float, shape: Any = None) -> Tensor:
    """``x`` without a share ``rate`` of it, the rest scaled; ``shape``: of the mask, which is
    repeated over ``x``."""
    if not 0 <= rate < 1:
        raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). "
                         f"Received: rate={rate}")  # fmt: skip
    if shape is None:
        return functional.dropout(x, rate)
    return functional.dropout(ops.ones(shape, dtype=x.dtype), rate) * x


def l2_loss(x: Tensor) -> Tensor:
    """Half the sum of the squares."""
    return ops.sum(x * x) / 2
