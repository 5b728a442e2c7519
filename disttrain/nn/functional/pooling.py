"""Pooling over windows, and adaptive pooling to a wanted size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core import Tensor
from ...core.constants import constant
from ...errors import ConfigError, ShapeError
from ...ops.functions.args import in_float32, kinds
from .common import need_dims

_LAYOUT = {1: "(N, C, L) or (C, L)", 2: "(N, C, H, W) or (C, H, W)", 3: "(N, C, D, H, W)"}

max_pool1d, max_pool2d, max_pool3d = ops.max_pool1d, ops.max_pool2d, ops.max_pool3d
avg_pool1d, avg_pool2d, avg_pool3d = ops.avg_pool1d, ops.avg_pool2d, ops.avg_pool3d

_AVERAGES: dict[int, Any] = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}


# --- adaptive ---------------------------------------------------------------------------------
def _wanted(where: str, n: int, input: Tensor, output_size: int | tuple) -> tuple[int, ...]:
    need_dims(where, input, (n + 1, n + 2), _LAYOUT[n])
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(given) != n:
        raise ShapeError(f"{where}: output_size={output_size} given; needed one number or {n}")
    sizes = input.shape[-n:]
    return tuple(int(s) if g is None else int(g) for g, s in zip(given, sizes, strict=True))


def _bounds(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each of ``out`` regions of ``size`` places starts and ends."""
    i = np.arange(out)
    return i * size // out, -((-(i + 1) * size) // out)


def along(x: Tensor, matrix: np.ndarray, dim: int) -> Tensor:
    """``matrix`` (out x in) applied to dimension ``dim`` (negative) of ``x``."""
    return _along(x, matrix, dim)


@in_float32
def _along(x: Tensor, matrix: np.ndarray, dim: int) -> Tensor:
    weights = constant(x, np.ascontiguousarray(matrix.T.astype(x.meta()[1])))
    if dim == -1:
        return ops.matmul(x, weights)
    return ops.matmul(x.transpose(dim, -1), weights).transpose(dim, -1)


def _adaptive_avg(where: str, n: int, input: Tensor, output_size: int | tuple) -> Tensor:
    kinds(where, "fVc", input)
    wanted = _wanted(where, n, input, output_size)
    if all(w == 1 for w in wanted):
        return input.mean(tuple(range(-n, 0)), keepdim=True)
    sizes = tuple(input.shape)[-n:]
    even = all(w > 0 and size and size % w == 0 for size, w in zip(sizes, wanted, strict=True))
    if (
        even and input.shape[-n - 1] and input.meta()[1].kind != "c"
    ):  # regions of one size, apart from each other
        return _AVERAGES[n](input, [size // w for size, w in zip(sizes, wanted, strict=True)])
    x = input
    for dim, out in zip(range(-n, 0), wanted, strict=True):
        size = x.shape[dim]
        if out != size:
            low, high = _bounds(size, out)
            places = np.arange(size)[None, :]
            inside = (places >= low[:, None]) & (places < high[:, None])
            x = along(x, inside / (high - low)[:, None], dim)
    return x.clone() if x is input else x


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over ``output_size`` regions of (N, C, L)"""
    return _adaptive_avg("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over regions of (N, C, H, W); None keeps a dimension's size"""
    return _adaptive_avg("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over regions of (N, C, D, H, W)"""
    return _adaptive_avg("adaptive_avg_pool3d", 3, input, output_size)


def _adaptive_max(where: str, n: int, input: Tensor, output_size: int | tuple) -> Tensor:
    kinds(where, "fV", input)
    x, wanted = input, _wanted(where, n, input, output_size)
    if any(out < 0 for out in wanted):
        raise ShapeError(f"{where}: output_size={output_size} given; it must not be negative")
    for dim, out in zip(range(-n, 0), wanted, strict=True):
        size = x.shape[dim]
        if out == size:
            continue
        low, high = _bounds(size, out)
        longest = int((high - low).max())
        # Windows shorter than the longest repeat their last place, which changes no maximum.
        places = np.minimum(low[:, None] + np.arange(longest)[None, :], high[:, None] - 1)
        windows = x.index_select(dim, constant(x, places.reshape(-1)))
        split = windows.shape[: windows.ndim + dim] + (out, longest)
        split = tuple(split) + tuple(windows.shape[windows.ndim + dim + 1 :])
        x = windows.reshape(split).amax(dim)
    return x.clone() if x is input else x


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """The largest values of ``output_size`` regions of (N, C, L)"""
    _no_indices("adaptive_max_pool1d", return_indices)
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """The largest values of regions of (N, C, H, W); None keeps a dimension's size"""
    _no_indices("adaptive_max_pool2d", return_indices)
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size)


def _no_indices(where: str, return_indices: bool) -> None:
    if return_indices:
        raise ConfigError(f"{where}: return_indices=True is not supported; use max_pool2d")
