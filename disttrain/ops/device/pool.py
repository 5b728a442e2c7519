"""Pooling on devices: one dimension after the other over strided views, as on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ..primitives import elementwise as el
from ..primitives import pool as prim
from ..primitives.windows import inside, taps
from .table import INT64, cast, converted, on_device, through_float32


def _padded(
    platform: Platform, x: RawArray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple,
    out: tuple, value: float,
) -> Any:  # fmt: skip
    """``x`` with ``value`` around it, as far as the windows reach."""
    size = x.shape[2:]
    sizes = zip(size, out, kernel, stride, padding, dilation, strict=True)
    reach = tuple(max(n + 2 * p, (m - 1) * s + d * (k - 1) + 1) for n, m, k, s, p, d in sizes)
    if reach == size:
        return x
    wide = platform.xp.full((*x.shape[:2], *reach), value, x.dtype)
    wide[inside(size, padding)] = x
    return wide


def _along(join: Callable, x: RawArray, axis: int, k: int, s: int, d: int, n: int) -> Any:
    """``join`` over the windows along one axis."""
    ahead = (slice(None),) * axis
    parts = [x[(*ahead, slice(t * d, t * d + (n - 1) * s + 1, s))] for t in range(k)]
    out = parts[0]
    for part in parts[1:]:
        out = join(out, part)
    return out


@on_device("max_pool")
def _max_pool(
    platform: Platform, a: RawArray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple,
    ceil_mode: bool,
) -> Any:  # fmt: skip
    out = prim.pooled_sizes(a.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    x = _padded(platform, a, kernel, stride, padding, dilation, out, prim._lowest(a.dtype))

    def join(p: RawArray, q: RawArray) -> Any:
        return el.maximum.on_device(platform, p, q)

    for i in range(len(kernel)):
        x = _along(join, x, 2 + i, kernel[i], stride[i], dilation[i], out[i])
    return x.copy(order="C")


def _hits(
    platform: Platform, a: RawArray, best: RawArray, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple,
) -> Iterator[tuple[tuple, Any]]:  # fmt: skip
    """Each kernel position with its slices (of ``a`` and what is around it) and where it holds its
    window's largest value: the first of equal ones, the last nan. Without a look at the numbers,
    for which the host would wait."""
    xp, out, floats = platform.xp, best.shape[2:], a.dtype.kind not in "iu"
    x = _padded(platform, a, kernel, stride, padding, dilation, out, prim._lowest(a.dtype))
    real = xp.ones((1, 1, *a.shape[2:]), bool)
    real = _padded(platform, real, kernel, stride, padding, dilation, out, False)
    places = [(Ellipsis, *where) for _, where in taps(kernel, out, stride, dilation)]
    last = xp.full(best.shape, -1, INT64)
    for t, where in enumerate(places if floats else ()):
        last = xp.where(x[where] != x[where], t, last)
    free = xp.ones(best.shape, bool)
    for t, where in enumerate(places):
        hit = (x[where] == best) & free & real[where]
        free = free ^ hit
        yield where, hit | (last == t)


@on_device("max_pool_spread")
@through_float32
def _max_spread(
    platform: Platform,
    g: RawArray,
    a: RawArray,
    best: RawArray,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    ceil_mode: bool,
) -> Any:
    reach = prim._reach(a.shape[2:], best.shape[2:], kernel, stride, padding, dilation)
    full = platform.xp.zeros((*a.shape[:2], *reach), g.dtype)
    for where, hit in _hits(platform, a, best, kernel, stride, padding, dilation):
        region = full[where]
        region += platform.xp.where(hit, g, g.dtype.type(0))
    return full[inside(a.shape[2:], padding)].copy(order="C")


@on_device("max_pool_pick")
@through_float32
def _max_pick(
    platform: Platform,
    h: RawArray,
    a: RawArray,
    best: RawArray,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    ceil_mode: bool,
) -> Any:
    out = best.shape[2:]
    h = _padded(platform, h, kernel, stride, padding, dilation, out, 0)
    total = platform.xp.zeros(best.shape, h.dtype)
    for where, hit in _hits(platform, a, best, kernel, stride, padding, dilation):
        total += platform.xp.where(hit, h[where], h.dtype.type(0))
    return total


@on_device("max_pool_indices")
def _max_indices(
    platform: Platform, a: RawArray, best: RawArray, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple, ceil_mode: bool,
) -> Any:  # fmt: skip
    xp, size, out = platform.xp, a.shape[2:], best.shape[2:]
    places = xp.arange(math.prod(size)).reshape(1, 1, *size)
    places = _padded(platform, places, kernel, stride, padding, dilation, out, 0)
    found = xp.zeros(best.shape, INT64)
    for where, hit in _hits(platform, a, best, kernel, stride, padding, dilation):
        found = xp.where(hit, places[where], found)
    return found


# --- the mean ----------------------------------------------------------------------------------
def _counts(
    platform: Platform, size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple,
    include: bool, divisor: int | None, kind: np.dtype,
) -> Any:  # fmt: skip
    """By what each window's sum is multiplied (integers: divided): a number, or an array to
    broadcast over (N, C, *out). Made on the device, where shapes have it differ by place."""
    known = prim._counts(size, out, kernel, stride, padding, include, divisor, kind)
    if not np.ndim(known):
        return known
    xp = platform.xp
    total = xp.ones((), np.float64)
    for n, m, k, s, p in zip(size, out, kernel, stride, padding, strict=True):
        first = xp.arange(m) * s - p
        low, high = (first, n + p) if include else (xp.maximum(first, 0), n)
        total = total[..., None] * (xp.minimum(first + k, high) - low)
    return cast(platform, total if kind.kind in "iu" else 1.0 / total, kind)


@on_device("avg_pool")
@through_float32
def _avg_pool(
    platform: Platform, a: RawArray, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool,
    include: bool, divisor: int | None,
) -> Any:  # fmt: skip
    ones = (1,) * len(kernel)
    out = prim.pooled_sizes(a.shape[2:], kernel, stride, padding, ones, ceil_mode)
    scale = _counts(platform, a.shape[2:], out, kernel, stride, padding, include, divisor, a.dtype)
    x = _padded(platform, a, kernel, stride, padding, ones, out, 0)
    for i in range(len(kernel)):
        x = _along(lambda p, q: p + q, x, 2 + i, kernel[i], stride[i], 1, out[i])
    if x.dtype.kind in "iu":
        return converted(platform, np.sign(x) * np.sign(scale) * (abs(x) // abs(scale)), a.dtype)
    return x * scale


@on_device("avg_pool_spread")
@through_float32
def _avg_spread(
    platform: Platform, g: RawArray, size: tuple, kernel: tuple, stride: tuple, padding: tuple,
    ceil_mode: bool, include: bool, divisor: int | None,
) -> Any:  # fmt: skip
    out = g.shape[2:]
    x = g * _counts(platform, size, out, kernel, stride, padding, include, divisor, g.dtype)
    for i in reversed(range(len(kernel))):
        reach = max(size[i] + 2 * padding[i], (out[i] - 1) * stride[i] + kernel[i])
        x = _spread_along(platform, x, 2 + i, kernel[i], stride[i], reach)
    return x[inside(size, padding)].copy(order="C")


def _spread_along(platform: Platform, x: RawArray, axis: int, k: int, s: int, reach: int) -> Any:
    """The adjoint of adding windows up along one axis."""
    n, shape = x.shape[axis], list(x.shape)
    shape[axis] = reach
    out = platform.xp.zeros(tuple(shape), x.dtype)
    ahead = (slice(None),) * axis
    for t in range(k):
        region = out[(*ahead, slice(t, t + (n - 1) * s + 1, s))]
        region += x
    return out
