"""Activations and normal forms of logits, with masks: what ``nn.functional`` has not."""

from __future__ import annotations

import math
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from . import reductions
from .axes import Axis, axes_of, axis_of


def squareplus(x: Tensor, b: Tensor | float = 4.0) -> Tensor:
    """A smooth max(x, 0): (x + sqrt(x² + b)) / 2."""
    return (x + ops.sqrt(x * x + b)) / 2


def sparse_plus(x: Tensor) -> Tensor:
    """0 up to -1, x from 1 on, a parabola between."""
    return ops.where(x <= -1, ops.zeros_like(x), ops.where(x >= 1, x, (x + 1) ** 2 / 4))


def sparse_sigmoid(x: Tensor) -> Tensor:
    """0 up to -1, 1 from 1 on, a line between."""
    return ops.clamp((x + 1) / 2, 0, 1)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return ops.logaddexp(x, ops.zeros_like(x))


def log_sigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return -softplus(-x)


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(-x)) for x > 0."""
    small = x < math.log(2)
    inner = ops.where(small, x, ops.ones_like(x))
    outer = ops.where(small, ops.ones_like(x), x)
    return ops.where(small, ops.log(-ops.expm1(-inner)), ops.log1p(-ops.exp(-outer)))


def glu(x: Tensor, axis: int = -1) -> Tensor:
    """One half times the sigmoid of the other."""
    d = axis_of(axis, x.ndim)
    if x.shape[d] % 2:
        raise ValueError("axis size must be divisible by 2")
    one, two = ops.chunk(x, 2, d)
    return one * ops.sigmoid(two)


def celu(x: Tensor, alpha: Tensor | float = 1.0) -> Tensor:
    """x above 0, alpha (exp(x / alpha) - 1) below."""
    below = ops.where(x > 0, ops.zeros_like(x), x)
    return ops.maximum(x, ops.zeros_like(x)) + alpha * ops.expm1(below / alpha)


def elu(x: Tensor, alpha: Tensor | float = 1.0) -> Tensor:
    """x above 0, alpha (exp(x) - 1) below."""
    below = ops.where(x > 0, ops.zeros_like(x), x)
    return ops.where(x > 0, x, alpha * ops.expm1(below))


def leaky_relu(x: Tensor, negative_slope: Tensor | float = 0.01) -> Tensor:
    """x from 0 on, a share of it below."""
    return ops.where(x >= 0, x, negative_slope * x)


def gelu(x: Tensor, approximate: bool = True) -> Tensor:
    """x times the share of the normal distribution below it, by tanh or exactly."""
    if not approximate:
        return x * ops.erfc(x * -math.sqrt(0.5)) / 2
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * (0.5 * (1.0 + ops.tanh(inner)))


def logsumexp(
    a: Tensor, axis: Axis = None, b: Tensor | None = None, keepdims: bool = False,
    return_sign: bool = False, where: Tensor | None = None,
) -> Any:  # fmt: skip
    """log(sum(b exp(a))), and (``return_sign``) the sign of the sum."""
    axes = axes_of(axis, a.ndim)
    if b is not None:
        a = ops.where(b != 0, a, ops.full_like(a, -float("inf")))
    peaks = reductions.max(ops.real(a), axes, True, initial=ops.real(a).new_full((), -float("inf")),
                           where=where)  # fmt: skip
    peaks = ops.where(ops.isfinite(peaks), peaks, ops.zeros_like(peaks)).detach()
    parts = ops.exp(a - peaks)
    parts = parts if b is None else parts * b
    total = reductions.sum(parts, axes, keepdims=keepdims, where=where)
    peaks = (
        peaks if keepdims else peaks.reshape([n for d, n in enumerate(a.shape) if d not in axes])
    )
    if not return_sign:
        if b is not None and not a.is_complex():
            total = ops.where(total < 0, float("nan"), total)
        return ops.log(total) + peaks
    sign = ops.sgn(total) if total.is_complex() else ops.sign(total)
    return ops.log(ops.abs(total)) + peaks, sign


def logmeanexp(
    x: Tensor, axis: Axis = None, where: Tensor | None = None, keepdims: bool = False
) -> Tensor:
    """log(mean(exp(x)))."""
    n = reductions.count(x, axis, where)
    out = logsumexp(x, axis, None, keepdims, where=where)
    return out - (ops.log(n.reshape(out.shape)) if isinstance(n, Tensor) else math.log(n))


def softmax(x: Tensor, axis: Axis = -1, where: Tensor | None = None) -> Tensor:
    """exp(x) over its sum along ``axis``; 0 where ``where`` does not hold."""
    axes = axes_of(axis, x.ndim)
    if where is None and len(axes) == 1:
        return ops.softmax(x, axes[0])
    peaks = reductions.max(x, axes, True, initial=x.new_full((), -float("inf")), where=where)
    beside = x if where is None else ops.where(where, x, peaks)
    parts = ops.exp(beside - peaks.detach())
    total = reductions.sum(parts, axes, keepdims=True, where=where)
    out = parts / total
    return out if where is None else ops.where(where, out, ops.zeros_like(out))


def log_softmax(x: Tensor, axis: Axis = -1, where: Tensor | None = None) -> Tensor:
    """The logarithm of ``softmax``; -inf where ``where`` does not hold."""
    axes = axes_of(axis, x.ndim)
    if where is None and len(axes) == 1:
        return ops.log_softmax(x, axes[0])
    out = x - logsumexp(x, axes, None, True, where=where)
    return out if where is None else ops.where(where, out, ops.full_like(out, -float("inf")))


def standardize(
    x: Tensor, axis: Axis = -1, mean: Tensor | None = None, variance: Tensor | None = None,
    epsilon: float = 1e-5, where: Tensor | None = None, algorithm: str = "fast",
) -> Tensor:  # fmt: skip
    """x less its mean, over its deviation."""
    if mean is None:
        mean = reductions.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        square = reductions.mean(x * x, axis, keepdims=True, where=where) - mean * mean
        variance = ops.maximum(square, ops.zeros_like(square))
        if algorithm != "fast":
            variance = reductions.var(x, axis, keepdims=True, where=where)
    return (x - mean) * ops.rsqrt(variance + epsilon)


def one_hot(x: Tensor, num_classes: int, axis: int = -1) -> Tensor:
    """Which class each element is, as flags along a new dimension; none for those outside."""
    d = axis_of(axis, x.ndim + 1)
    line = [1] * (x.ndim + 1)
    line[d] = num_classes
    return ops.unsqueeze(x, d) == ops.arange(num_classes).to(x.dtype).reshape(line)


def attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None,
    mask: Tensor | None = None, scale: float | None = None, is_causal: bool = False,
    query_seq_lengths: Tensor | None = None, key_value_seq_lengths: Tensor | None = None,
    local_window_size: Any = None,
) -> Tensor:  # fmt: skip
    """Attention of shapes (batch, places, heads, features), or without the batch; keys and values
    may have fewer heads; weights are made in float32."""
    ranks = {x.ndim for x in (query, key, value)}
    if len(ranks) > 1 or not ranks <= {3, 4}:
        raise ValueError(f"query, key and value must have 3 or 4 dimensions, got {ranks}")
    whole = key.shape == value.shape and query.shape[-1] == key.shape[-1]
    if not whole or query.shape[-2] % key.shape[-2]:
        shapes = [tuple(x.shape) for x in (query, key, value)]
        raise ValueError(f"query, key and value of shapes {shapes} do not fit")
    if query.ndim == 3:
        given = [ops.unsqueeze(x, 0) for x in (query, key, value)]
        more: Any = (bias, mask, scale, is_causal, query_seq_lengths, key_value_seq_lengths)
        many: Any = (*given, *more, local_window_size)
        return attention(*many)[0]
    n, m = query.shape[1], key.shape[1]
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = (ops.repeat_interleave(x, groups, 2) for x in (key, value))
    share = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = [x.to(dtypes.float32) if x.element_size() < 4 else x for x in (query, key)]
    logits = ops.einsum("btnh,bsnh->bnts", *wide) * share
    if bias is not None:
        logits = logits + bias
    rows, columns = ops.arange(n).reshape(n, 1), ops.arange(m).reshape(1, m)
    keep: list[Tensor] = [] if mask is None else [mask]
    if is_causal:
        keep.append(rows >= columns)
    if local_window_size is not None:
        one = isinstance(local_window_size, int)
        left, right = (local_window_size, local_window_size) if one else local_window_size
        keep.append((columns >= rows - left) & (columns <= rows + right))
    for lengths, places in ((query_seq_lengths, rows), (key_value_seq_lengths, columns)):
        if lengths is not None:
            keep.append(places < lengths.reshape(-1, 1, 1, 1))
    for flags in keep:
        logits = ops.where(flags, logits, -0.7 * 3.4028235e38)
    weights = ops.softmax(logits, -1).to(query.dtype)
    out = ops.einsum("bnts,bsnh->btnh", weights, value)
    if query_seq_lengths is not None:
        inside = ops.arange(n).reshape(1, n, 1, 1) < query_seq_lengths.reshape(-1, 1, 1, 1)
        out = ops.where(inside, out, ops.zeros_like(out))
    return out
