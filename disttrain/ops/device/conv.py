"""Convolution on devices: windows as columns, products of matrices by the platform's library, and
adding back one kernel position after the other, in a fixed order.

Columns of a whole batch may be much memory, so that some samples at a time are unfolded.
"""

from __future__ import annotations

import math
from typing import Any

from ...backends.device.platform import Platform
from ...core.wide import is_half
from ..primitives import windows as win
from .table import F32, converted, on_device
from .views import strided

_COLUMNS = 1 << 28  # bytes of columns at a time


def _padded(platform: Platform, x: Any, padding: tuple) -> Any:
    if not any(padding):
        return x
    shape = (*x.shape[:2], *(n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)))
    out = platform.xp.zeros(shape, x.dtype)
    out[win.inside(x.shape[2:], padding)] = x
    return out


def _windows(
    platform: Platform, x: Any, kernel: tuple, out: tuple, stride: tuple, dilation: tuple
) -> Any:
    """All windows as a view (N, C, *kernel, *out) of a padded ``x``."""
    steps = x.strides[2:]
    inner = tuple(t * d for t, d in zip(steps, dilation, strict=True))
    outer = tuple(t * s for t, s in zip(steps, stride, strict=True))
    shape = (*x.shape[:2], *kernel, *out)
    if 0 in shape:
        return platform.empty(shape, x.dtype)
    return strided(platform, x, shape, (*x.strides[:2], *inner, *outer))


def _samples_at_once(x: Any, rows: int, places: int) -> int:
    return max(1, _COLUMNS // max(rows * places * x.dtype.itemsize, 1))


@on_device("conv")
def _conv(
    platform: Platform, x: Any, w: Any, b: Any = None, *, stride: tuple, padding: tuple,
    dilation: tuple, groups: int,
) -> Any:  # fmt: skip
    kernel, n, channels = w.shape[2:], x.shape[0], w.shape[0]
    out = win.out_sizes(x.shape[2:], kernel, stride, padding, dilation)
    x = _padded(platform, x, padding)
    if w.shape[1] == 1 and groups > 1:
        y = _depthwise(platform, x, w, out, stride, dilation)
        return y if b is None else y + b.reshape(-1, *(1,) * len(out))
    places, each, rows = math.prod(out), channels // groups, w.shape[1] * math.prod(kernel)
    y = platform.empty((n, groups, each, places), x.dtype)
    if b is not None:
        y[...] = b.reshape(groups, each, 1)
    weights = w.reshape(groups, each, rows)
    view = _windows(platform, x, kernel, out, stride, dilation)
    step = _samples_at_once(x, groups * rows, places)
    for first in range(0, n, step):
        part = slice(first, min(first + step, n))
        columns = view[part].reshape(-1, groups, rows, places)
        for i in range(groups):
            platform.matmul(weights[i], columns[:, i], y[part, i], add=b is not None)
    return y.reshape(n, channels, *out)


def _depthwise(
    platform: Platform, x: Any, w: Any, out: tuple, stride: tuple, dilation: tuple
) -> Any:
    """One input channel per group: a sum of scaled shifts, in float32 or wider."""
    (n, c), kind = x.shape[:2], x.dtype
    each = w.shape[0] // c
    if is_half(kind):
        x, w = converted(platform, x, F32), converted(platform, w, F32)
    w = w.reshape(c, each, *w.shape[2:])
    y = platform.xp.zeros((n, c, each, *out), x.dtype)
    for tap, where in win.taps(w.shape[2:], out, stride, dilation):
        scale = w[(slice(None), slice(None), *tap)].reshape(c, each, *(1,) * len(out))
        y += x[(slice(None), slice(None), None, *where)] * scale
    return converted(platform, y.reshape(n, c * each, *out), kind)


@on_device("conv_input_grad")
def _input_grad(
    platform: Platform, g: Any, w: Any, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int, size: tuple,
) -> Any:  # fmt: skip
    kernel, out, kind = w.shape[2:], g.shape[2:], g.dtype
    n, each = g.shape[0], w.shape[1]
    places, count = math.prod(out), math.prod(kernel)
    shape = tuple(s + 2 * p for s, p in zip(size, padding, strict=True))
    wide = F32 if is_half(kind) else kind
    full = platform.xp.zeros((n, groups, each, *shape), wide)
    rows = platform.xp.ascontiguousarray(
        w.reshape(groups, -1, each, count).transpose(0, 3, 2, 1)
    ).reshape(groups, count * each, -1)
    flat = g.reshape(n, groups, -1, places)
    step = _samples_at_once(g, groups * each * count, places)
    for first in range(0, n, step):
        part = slice(first, min(first + step, n))
        columns = platform.empty((part.stop - first, groups, count * each, places), kind)
        for i in range(groups):
            platform.matmul(rows[i], flat[part, i], columns[:, i])
        columns = columns.reshape(-1, groups, count, each, *out)
        for i, (_, where) in enumerate(win.taps(kernel, out, stride, dilation)):
            region = full[part][(Ellipsis, *where)]
            region += columns[:, :, i]
    full = full.reshape(n, groups * each, *shape)[win.inside(size, padding)]
    return platform.xp.ascontiguousarray(converted(platform, full, kind))


@on_device("conv_weight_grad")
def _weight_grad(
    platform: Platform, g: Any, x: Any, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int, kernel: tuple,
) -> Any:  # fmt: skip
    """One product over all places of the samples at hand, added up in float32 or wider."""
    n, channels = g.shape[:2]
    out, kind, each = g.shape[2:], g.dtype, x.shape[1] // groups
    x = _padded(platform, x, padding)
    places, rows, per = math.prod(out), each * math.prod(kernel), channels // groups
    total = platform.xp.zeros((groups, per, rows), F32 if is_half(kind) else kind)
    view = _windows(platform, x, kernel, out, stride, dilation)
    k = len(kernel)
    order = (*range(1, 2 + k), 0, *range(2 + k, 2 + 2 * k))  # channels, kernel, samples, places
    step = _samples_at_once(x, groups * rows, places)
    for first in range(0, n, step):
        part = slice(first, min(first + step, n))
        columns = view[part].transpose(order).reshape(groups, rows, -1)
        flat = g[part].reshape(-1, channels, places).transpose(1, 0, 2).reshape(groups, per, -1)
        platform.matmul(flat, columns.swapaxes(-1, -2), total, add=True)
    return converted(platform, total, kind).reshape(channels, each, *kernel)


@on_device("im2col")
def _unfold(
    platform: Platform, x: Any, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> Any:
    out = win.out_sizes(x.shape[2:], kernel, stride, padding, dilation)
    view = _windows(platform, _padded(platform, x, padding), kernel, out, stride, dilation)
    shape = (x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out))
    return view.copy(order="C").reshape(shape)


@on_device("col2im")
def _fold(
    platform: Platform, columns: Any, size: tuple, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple,
) -> Any:  # fmt: skip
    out = win.out_sizes(size, kernel, stride, padding, dilation)
    n, count = columns.shape[0], math.prod(kernel)
    channels = columns.shape[1] // count
    shape = tuple(s + 2 * p for s, p in zip(size, padding, strict=True))
    full = platform.xp.zeros((n, channels, *shape), columns.dtype)
    columns = columns.reshape(n, channels, count, *out)
    for i, (_, where) in enumerate(win.taps(kernel, out, stride, dilation)):
        region = full[(Ellipsis, *where)]
        region += columns[:, :, i]
    return platform.xp.ascontiguousarray(full[win.inside(size, padding)])
