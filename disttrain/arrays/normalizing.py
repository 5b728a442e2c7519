"""Tensors brought to a mean, a spread or a length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..errors import ShapeError
from ..ops import api as ops
from .totals import dims_of


def _number(like: Tensor, value: float) -> Tensor:
    return ops.full((), value, dtype=like.dtype)


def l2_normalize(x: Tensor, axis: Any = None, epsilon: float = 1e-12) -> Tensor:
    """``x`` over its length, whose square is ``epsilon`` at least."""
    total = ops.sum(x * x, dim=dims_of(x, axis), keepdim=True)
    return x * ops.rsqrt(ops.maximum(total, _number(x, epsilon)))


def moments(x: Tensor, axes: Any, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """Mean and variance."""
    dims = dims_of(x, axes)
    mean = ops.mean(x, dim=dims, keepdim=True)
    spread = ops.mean(ops.square(x - mean), dim=dims, keepdim=keepdims)
    return (mean if keepdims else ops.mean(x, dim=dims)), spread


def batch_normalization(
    x: Tensor, mean: Tensor, variance: Tensor, offset: Tensor | None, scale: Tensor | None,
    epsilon: float,
) -> Tensor:  # fmt: skip
    """``(x - mean) / sqrt(variance + epsilon) * scale + offset``."""
    factor = ops.rsqrt(variance + epsilon)
    factor = factor if scale is None else factor * scale
    shift = -mean * factor if offset is None else offset - mean * factor
    return x * factor + shift


def bias_add(value: Tensor, bias: Tensor, layout: str | None = None) -> Tensor:
    """``bias`` for each channel: the last dimension, or the second where ``layout`` begins with
    NC."""
    if layout and layout.startswith("NC"):
        return value + bias.reshape(-1, *[1] * (value.ndim - 2))
    if value.shape[-1] != bias.shape[0]:
        raise ShapeError(f"Must provide as many biases as the last dimension of the input tensor: "
                         f"{list(bias.shape)} vs. {list(value.shape)}")  # fmt: skip
    return value + bias


def clip_by_norm(x: Tensor, most: float, axes: Any = None) -> Tensor:
    """``x``, shortened to the length ``most`` where it is longer."""
    total = ops.sum(x * x, dim=dims_of(x, axes), keepdim=True) if x.ndim else x * x
    there = total > 0
    length = ops.where(there, ops.sqrt(ops.where(there, total, ops.ones_like(total))), total)
    return x * most / ops.maximum(length, _number(x, most))


def global_norm(*tensors: Tensor) -> Tensor:
    """The length of all together."""
    return ops.sqrt(ops.stack([ops.sum(x * x) for x in tensors]).sum())


def standardized(image: Tensor) -> Tensor:
    """Images [..., rows, columns, channels] less their mean over their deviation, which is that of
    one differing number at least."""
    image = image.float()
    dims, count = (-3, -2, -1), image.shape[-1] * image.shape[-2] * image.shape[-3]
    spread = ops.sqrt(ops.var(image, dim=dims, keepdim=True, correction=0))
    least = ops.full((), count**-0.5)
    return (image - ops.mean(image, dim=dims, keepdim=True)) / ops.maximum(spread, least)


def same_shapes(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    found = tensors[0]
    for t in tensors[1:]:
        if t.shape != found.shape:
            raise ShapeError("Inputs to operation AddN must have the same size and shape.")
        found = found + t
    return found
