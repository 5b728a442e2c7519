"""Products of quantized numbers on devices: the library's, in a type in which the sums of integers
are exact. Elements on a grid run by their own forwards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ..declare import REGISTRY
from .table import F32, F64, converted, on_device

_EXACT = 1 << 24  # below, integers are numbers of float32
_LARGEST = 255 * 128  # the product of two of 8 bits


def _rows(x: RawArray) -> Any:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _exact(terms: int) -> np.dtype:
    return F32 if terms * _LARGEST < _EXACT else F64


def _scales(platform: Platform, scale: RawArray, n: int) -> Any:
    return platform.xp.broadcast_to(converted(platform, scale, F32), (n,))


def _product(
    platform: Platform, x: RawArray, zero: Any, scale: Any, w: RawArray, scales: RawArray, b: Any
) -> Any:
    """``(x - zero) wᵀ (scale scales) + b`` in float32."""
    kind = _exact(x.shape[1])
    total = (converted(platform, x, kind) - zero) @ converted(platform, w, kind).T
    out = converted(platform, total, F32) * (scale * _scales(platform, scales, len(w)))
    return out if b is None else out + converted(platform, b, F32)


@on_device("weight_int8_linear")
def _weight_linear(
    platform: Platform, x: RawArray, w: RawArray, scale: RawArray, b: RawArray | None = None
) -> Any:
    kind = x.dtype if x.dtype.char in "fd" else F32
    out = converted(platform, _rows(x), kind) @ converted(platform, w, kind).T
    out = out * converted(platform, scale, kind)
    if b is not None:
        out = out + converted(platform, b, kind)
    return converted(platform, out, x.dtype).reshape(*x.shape[:-1], len(w))


@on_device("integer_linear")
def _integer_linear(
    platform: Platform, x: RawArray, w: RawArray, scale: RawArray, sums: RawArray | None = None,
    b: RawArray | None = None, *, x_scale: float, x_zero: int,
) -> Any:  # fmt: skip
    out = _product(platform, _rows(x), x_zero, F32.type(x_scale), w, scale, b)
    return out.reshape(*x.shape[:-1], len(w))


@on_device("dynamic_linear")
def _dynamic_linear(
    platform: Platform, x: RawArray, w: RawArray, scale: RawArray, sums: RawArray | None = None,
    b: RawArray | None = None, *, own: int, symmetric: bool, low: int, high: int,
) -> Any:  # fmt: skip
    xp, rows = platform.xp, converted(platform, _rows(x), F32)
    groups = math.prod(x.shape[:own])
    if not rows.size:
        return platform.empty((*x.shape[:-1], len(w)), x.dtype)
    lots = converted(platform, rows, F64).reshape(groups, -1)
    least, most = xp.minimum(lots.min(1), 0.0), xp.maximum(lots.max(1), 0.0)
    if symmetric:
        step = converted(platform, xp.maximum(most, -least) / high, F32)
        step = xp.maximum(step, F32.type(1e-5))
        zero = converted(platform, xp.zeros(groups), F32)
    else:
        step = converted(platform, (most - least) / (high - low), F32)
        step = xp.where(step < F32.type(2.0**-127), F32.type(0.1), step)
        below, above = -least / step, most / step
        zero = xp.where(abs(low) + below < abs(high) + above, low + below, high - above)
        zero = converted(platform, xp.clip(xp.rint(zero), low, high), F32)
    each = (groups, len(rows) // groups, rows.shape[1])
    step, zero = step.reshape(groups, 1, 1), zero.reshape(groups, 1, 1)
    levels = xp.rint(rows.reshape(each) * (F32.type(1) / step))
    levels = xp.clip(levels, low - zero, high - zero).reshape(rows.shape)
    steps = xp.broadcast_to(step, (*each[:2], 1)).reshape(len(rows), 1)
    out = _product(platform, levels, F32.type(0), steps, w, scale, b)
    return converted(platform, out, x.dtype).reshape(*x.shape[:-1], len(w))


@on_device("integer_conv")
def _integer_conv(
    platform: Platform, x: RawArray, w: RawArray, scale: RawArray, b: RawArray | None = None, *,
    x_scale: float, x_zero: int, **how: Any,
) -> Any:  # fmt: skip
    xp = platform.xp
    numbers = converted(platform, x, F64) - x_zero
    total = REGISTRY["conv"].on_device(platform, numbers, converted(platform, w, F64), None, **how)
    spread = (-1, *(1,) * (w.ndim - 2))
    factor = F32.type(x_scale) * _scales(platform, scale, len(w))
    out = converted(platform, xp.rint(total), F32) * factor.reshape(spread)
    return out if b is None else out + converted(platform, b, F32).reshape(spread)
