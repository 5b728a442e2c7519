"""Pooling over windows, and adaptive pooling to a wanted size."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ... import ops
from ...context import SLOW, thread
from ...core import Tensor
from ...core.annotations import PerDim
from ...core.constants import constant
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import ShapeError
from ...ops.functions.args import in_float32, kinds
from ...ops.functions.views.memory_formats import following
from ...ops.primitives.linalg import local_product
from ...shortcuts import barred
from ...symbolic import as_int, made
from .common import need_dims
from .filters import area

_LAYOUT = {1: "(N, C, L) or (C, L)", 2: "(N, C, H, W) or (C, H, W)", 3: "(N, C, D, H, W)"}

max_pool1d, max_pool2d, max_pool3d = ops.max_pool1d, ops.max_pool2d, ops.max_pool3d
avg_pool1d, avg_pool2d, avg_pool3d = ops.avg_pool1d, ops.avg_pool2d, ops.avg_pool3d

_MAXIMA: dict[int, Any] = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}
MEANS: dict[int, Any] = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}


# --- adaptive ---------------------------------------------------------------------------------
def _wanted(where: str, n: int, input: Tensor, output_size: int | tuple) -> tuple[int, ...]:
    need_dims(where, input, (n + 1, n + 2), _LAYOUT[n])
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(given) != n:
        raise ShapeError(f"{where}: output_size={output_size} given; needed one number or {n}")
    sizes = input.shape[-n:]
    return tuple(as_int(s) if g is None else as_int(g) for g, s in zip(given, sizes, strict=True))


def _bounds(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each of ``out`` regions of ``size`` places starts and ends."""
    i = np.arange(out)
    return i * size // out, -((-(i + 1) * size) // out)


@computes_in("own")
def along(x: Tensor, make: Callable[..., np.ndarray], *given: Any, out: int, dim: int) -> Tensor:
    """The matrix (``out`` x in) that ``make(*given)`` gives, applied to dimension ``dim``
    (negative) of ``x``: what is not finite is spread only over the places that it is a part of."""
    return _along(x, make, given, out, dim)


def _weights(make: Callable[..., np.ndarray], given: tuple, kind: np.dtype) -> np.ndarray:
    numbers = make is not np.asarray and all(g.__class__ is not np.ndarray for g in given)
    numbers = numbers and thread.mode != SLOW  # (a capture tells arrays by what they are)
    return (_kept_weights if numbers else _kept_weights.__wrapped__)(make, given, kind)


@lru_cache(16)
def _kept_weights(make: Callable[..., np.ndarray], given: tuple, kind: np.dtype) -> np.ndarray:
    weights = np.ascontiguousarray(make(*given).T.astype(kind))
    weights.flags.writeable = False  # the next call is given it, too
    return weights


@in_float32
def _along(x: Tensor, make: Callable[..., np.ndarray], given: tuple, out: int, dim: int) -> Tensor:
    shape = (x.shape[dim], out)
    weights = constant(x, made(_weights, make, given, x.meta()[1], shape=shape))
    if dim == -1:
        return local_product(x, weights)
    return local_product(x.transpose(dim, -1), weights).transpose(dim, -1)


def _even(input: Tensor, wanted: tuple[int, ...]) -> list[int]:
    """The size of the regions where that is one and they are apart from each other, else none."""
    if barred():
        return []
    sizes = tuple(input.shape)[-len(wanted) :]
    even = all(w > 0 and size and size % w == 0 for size, w in zip(sizes, wanted, strict=True))
    return [size // w for size, w in zip(sizes, wanted, strict=True)] if even else []


def _adaptive_avg(where: str, n: int, input: Tensor, output_size: int | tuple) -> Tensor:
    kinds(where, "fVc", input)
    wanted = _wanted(where, n, input, output_size)
    if all(w == 1 for w in wanted):
        return following(input.mean(tuple(range(-n, 0)), keepdim=True), input)
    even = _even(input, wanted)
    if even and input.shape[-n - 1] and input.meta()[1].kind != "c":
        return MEANS[n](input, even)
    x, given = input, output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    for dim, out, asked in zip(range(-n, 0), wanted, given, strict=True):
        size = x.shape[dim]
        if asked is not None and (barred() or out != size):
            x = along(x, area, size, out, out=out, dim=dim)
    return following(x.clone() if x is input else x, input)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over ``output_size`` regions of (N, C, L)"""
    return _adaptive_avg("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over regions of (N, C, H, W); None keeps a dimension's size"""
    return _adaptive_avg("adaptive_avg_pool2d", 2, input, output_size)


@computes_in("own")
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over regions of (N, C, D, H, W)"""
    return _adaptive_avg("adaptive_avg_pool3d", 3, input, output_size)


def _adaptive_max(
    where: str, n: int, input: Tensor, output_size: int | tuple, return_indices: bool
) -> Any:
    kinds(where, "fV", input)
    wanted = _wanted(where, n, input, output_size)
    if any(out < 0 for out in wanted):
        raise ShapeError(f"{where}: output_size={output_size} given; it must not be negative")
    if 0 in input.shape[1:]:
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} given; only the batch may be empty"
        )
    # (Places that a program is given are what backward reads: it notices a write to them.)
    even = [] if return_indices else _even(input, wanted)
    if even:
        return _MAXIMA[n](input, even)
    windows = constant(input, _windows(tuple(input.shape[-n:]), wanted))
    values, places = largest(input.flatten(-n), windows)
    shape = tuple(input.shape[:-n]) + wanted
    values = following(values.reshape(shape), input)
    return (values, following(places.reshape(shape), input)) if return_indices else values


def _windows(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> np.ndarray:
    """The places of each region in the flattened input: (regions, places of the longest one)."""
    n, found = len(sizes), np.zeros((1,) * (2 * len(sizes)), np.int64)
    for d, (size, out) in enumerate(zip(sizes, wanted, strict=True)):
        low, high = _bounds(size, out)
        longest = int((high - low).max(initial=1))
        # Regions shorter than the longest repeat their last place, which changes no maximum.
        places = np.minimum(low[:, None] + np.arange(longest)[None, :], high[:, None] - 1)
        line = [1] * (2 * n)
        line[d], line[n + d] = out, longest
        found = found * size + places.reshape(line)
    return found.reshape(math.prod(wanted), math.prod(found.shape[n:]))


def largest(flat: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
    """Of ``flat`` (..., places) the largest value in each of ``windows`` (regions, places of
    one), and where it stands; the first of equal ones, the last of nan."""
    regions, size = windows.shape
    lead = tuple(flat.shape[:-1])
    seen = flat.detach().index_select(-1, windows.reshape(-1)).reshape(*lead, regions, size)
    best, nan = seen.argmax(-1, keepdim=True), seen.isnan()
    last = size - 1 - nan.flip(-1).to(dtypes.uint8).argmax(-1, keepdim=True)
    best = last.where(nan.any(-1, keepdim=True), best)
    places = windows.expand(*lead, regions, size).gather(-1, best).squeeze(-1)
    return flat.gather(-1, places), places


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest values of ``output_size`` regions of (N, C, L); with ``return_indices`` their
    places, too"""
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest values of regions of (N, C, H, W); None keeps a dimension's size"""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


@computes_in("own")
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest values of regions of (N, C, D, H, W)"""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


# --- power averages ---------------------------------------------------------------------------
def _lp(
    n: int, input: Tensor, norm_type: float, kernel_size: PerDim, stride: PerDim | None,
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    means = (avg_pool1d, avg_pool2d, avg_pool3d)[n - 1](
        input.pow(norm_type), kernel_size, stride, 0, ceil_mode
    )
    size = kernel_size**n if isinstance(kernel_size, int) else math.prod(kernel_size)
    return following((means.sign() * means.abs().relu() * size).pow(1.0 / norm_type), input)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: PerDim, stride: PerDim | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The ``norm_type``-th root of the sum of such powers in each window of (N, C, L)"""
    return _lp(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: PerDim, stride: PerDim | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The ``norm_type``-th root of the sum of such powers in each window of (N, C, H, W)"""
    return _lp(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: PerDim, stride: PerDim | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The ``norm_type``-th root of the sum of such powers in each window of (N, C, D, H, W)"""
    return _lp(3, input, norm_type, kernel_size, stride, ceil_mode)
