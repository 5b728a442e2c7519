"""Normalization over batches, layers, groups and neighbours."""

from __future__ import annotations

import math
from typing import Any

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....nn import functional as F
from ....ops import api
from ..table import operator


def _by_channel(v: Tensor, ndim: int) -> Tensor:
    return v.reshape(1, -1, *[1] * (ndim - 2))


@operator("BatchNormalization", buffers=(3, 4))
def _batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0, spatial: int = 1, is_test: int = 1,
    node: Any,
) -> Any:  # fmt: skip
    if node.version < 7 and not is_test:
        training_mode = 1
    if not training_mode:
        if x.dtype == mean.dtype:
            out = F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)
        else:
            wide = x.to(mean.dtype)
            out = F.batch_norm(
                wide, mean, var, scale.to(mean.dtype), bias.to(mean.dtype), False, 0.0, epsilon
            )
            out = out.to(x.dtype)
        return (out, *[None] * (node.num_outputs - 1)) if node.num_outputs > 1 else out
    over = [i for i in range(x.ndim) if i != 1]
    m = api.mean(x, over)
    v = api.var(x, over, correction=0)
    unit = (x - _by_channel(m, x.ndim)) / api.sqrt(_by_channel(v, x.ndim) + epsilon)
    out = unit * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)
    new_mean = mean * momentum + m * (1 - momentum)
    return out.to(x.dtype), new_mean, var * momentum + v * (1 - momentum)


@operator("InstanceNormalization")
def _instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    if math.prod(x.shape[2:]) == 1:  # what is alone is its own mean
        return (x - x) * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


@operator("GroupNormalization", since=21)
def _group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:  # fmt: skip
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("GroupNormalization", until=20)
def _group_normalization_by_group(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5
) -> Tensor:
    """Before version 21 scale and bias were one number for a group."""
    unit = F.group_norm(x, num_groups, None, None, epsilon)
    shape = unit.shape
    parts = unit.reshape(shape[0], num_groups, -1)
    return (parts * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1)).reshape(shape)


@operator("LayerNormalization")
def _layer_normalization(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1,
    epsilon: float = 1e-5, stash_type: int = 1, node: Any,
) -> Any:  # fmt: skip
    first = axis + x.ndim if axis < 0 else axis
    over = list(range(first, x.ndim))
    if node.num_outputs == 1:
        sizes = tuple(x.shape[first:])
        fits = tuple(scale.shape) == sizes and (bias is None or tuple(bias.shape) == sizes)
        if fits and x.dtype == scale.dtype == dtypes.float32:
            return F.layer_norm(x, sizes, scale, bias, epsilon)
    wide = x.to(dtypes.float32) if stash_type == 1 and x.dtype.itemsize < 4 else x
    mean = api.mean(wide, over, True)
    inverse = 1.0 / api.sqrt(api.var(wide, over, correction=0, keepdim=True) + epsilon)
    out = ((wide - mean) * inverse).to(x.dtype) * scale
    out = out if bias is None else out + bias
    return (out, mean, inverse) if node.num_outputs > 1 else out


@operator("RMSNormalization")
def _rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    first = axis + x.ndim if axis < 0 else axis
    if tuple(scale.shape) == tuple(x.shape[first:]) and x.dtype == scale.dtype == dtypes.float32:
        return F.rms_norm(x, tuple(x.shape[first:]), scale, epsilon)
    wide = x.to(dtypes.float32) if stash_type == 1 and x.dtype.itemsize < 4 else x
    square = api.mean(wide * wide, list(range(first, x.ndim)), True)
    return (wide / api.sqrt(square + epsilon)).to(x.dtype) * scale


@operator("MeanVarianceNormalization")
def _mean_variance_normalization(x: Tensor, *, axes: Any = (0, 2, 3)) -> Tensor:
    mean = api.mean(x, list(axes), True)
    spread = api.sqrt(api.mean(x * x, list(axes), True) - mean * mean)
    return (x - mean) / (spread + 1e-9)


@operator("LRN")
def _lrn(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    c = x.shape[1]
    before = math.floor((size - 1) / 2)
    square = x * x
    shape = list(x.shape)
    parts = []
    for count in (before, size - 1 - before):
        shape[1] = count
        parts.append(api.zeros(shape, dtype=x.dtype))
    full = api.cat([parts[0], square, parts[1]], 1)
    total = sum(api.narrow(full, 1, i, c) for i in range(size))
    return x / (bias + alpha / size * total) ** beta
