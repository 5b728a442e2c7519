"""Pooling over windows, and adaptive pooling to a wanted size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core import Tensor, wrap
from ...errors import ConfigError, ShapeError
from .common import need_dims, per_dim

_LAYOUT = {1: "(N, C, L) or (C, L)", 2: "(N, C, H, W) or (C, H, W)", 3: "(N, C, D, H, W)"}


def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of (N, C, H, W); stride defaults to the kernel size"""
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of (N, C, L)"""
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, H, W); ``count_include_pad`` counts the padded zeros"""
    where = "avg_pool2d"
    need_dims(where, input, (3, 4), _LAYOUT[2])
    if input.ndim == 3:
        rest = (stride, padding, ceil_mode, count_include_pad, divisor_override)
        return avg_pool2d(input.unsqueeze(0), kernel_size, *rest).squeeze(0)
    kernel, stride, padding, _ = _sizes(where, 2, input, kernel_size, stride, padding, 1)
    if divisor_override is not None and divisor_override == 0:
        raise ConfigError("avg_pool2d: divisor_override must not be 0")
    return ops.avg_pool2d(
        input, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, L)"""
    where = "avg_pool1d"
    need_dims(where, input, (2, 3), _LAYOUT[1])
    kernel, stride, padding, _ = _sizes(where, 1, input, kernel_size, stride, padding, 1)
    x = input.unsqueeze(-2)
    out = avg_pool2d(x, (1, *kernel), (1, *stride), (0, *padding), ceil_mode, count_include_pad)
    return out.squeeze(-2)


def _sizes(
    where: str, n: int, input: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[tuple, tuple, tuple, tuple]:
    kernel = per_dim(kernel, n, where, "kernel_size")
    stride = kernel if stride is None or stride == [] else per_dim(stride, n, where, "stride")
    padding = per_dim(padding, n, where, "padding")
    dilation = per_dim(dilation, n, where, "dilation")
    if min(kernel) < 1 or min(stride) < 1 or min(dilation) < 1:
        raise ConfigError(
            f"{where}: kernel_size={kernel}, stride={stride}, dilation={dilation} given; needed at "
            "least 1 everywhere"
        )
    for size, k, p, d in zip(input.shape[-n:], kernel, padding, dilation, strict=True):
        if p > k // 2 or p < 0:
            raise ConfigError(
                f"{where}: padding={padding} given; it must lie between 0 and half of "
                f"kernel_size={kernel}"
            )
        if size + 2 * p < d * (k - 1) + 1:
            raise ShapeError(
                f"{where}: input of shape {list(input.shape)} with padding {padding} is smaller "
                f"than the window {kernel}; needed an input at least as large as the window"
            )
    return kernel, stride, padding, dilation


def _max(
    n: int, input: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    return_indices: bool,
) -> Any:  # fmt: skip
    where = f"max_pool{n}d"
    need_dims(where, input, (n + 1, n + 2), _LAYOUT[n])
    kernel, stride, padding, dilation = _sizes(where, n, input, kernel, stride, padding, dilation)
    x = input.unsqueeze(0) if input.ndim == n + 1 else input
    if n == 1:
        x = x.unsqueeze(2)
        kernel, stride = (1, *kernel), (1, *stride)
        padding, dilation = (0, *padding), (1, *dilation)
    out = ops.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode, return_indices)

    def shaped(t: Tensor) -> Tensor:
        t = t.squeeze(2) if n == 1 else t
        return t.squeeze(0) if input.ndim == n + 1 else t

    return tuple(shaped(t) for t in out) if return_indices else shaped(out)


# --- adaptive ---------------------------------------------------------------------------------
def _wanted(where: str, n: int, input: Tensor, output_size: Any) -> tuple[int, ...]:
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
    weights = wrap(np.ascontiguousarray(matrix.T.astype(x.meta()[1])))
    if dim == -1:
        return ops.matmul(x, weights)
    return ops.matmul(x.transpose(dim, -1), weights).transpose(dim, -1)


def _adaptive_avg(where: str, n: int, input: Tensor, output_size: Any) -> Tensor:
    wanted = _wanted(where, n, input, output_size)
    if all(w == 1 for w in wanted):
        return input.mean(tuple(range(-n, 0)), keepdim=True)
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


def _adaptive_max(where: str, n: int, input: Tensor, output_size: Any) -> Tensor:
    x = input
    for dim, out in zip(range(-n, 0), _wanted(where, n, input, output_size), strict=True):
        size = x.shape[dim]
        if out == size:
            continue
        low, high = _bounds(size, out)
        longest = int((high - low).max())
        # Windows shorter than the longest repeat their last place, which changes no maximum.
        places = np.minimum(low[:, None] + np.arange(longest)[None, :], high[:, None] - 1)
        windows = x.index_select(dim, wrap(places.reshape(-1)))
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
