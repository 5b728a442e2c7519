"""Pooling over windows in one to three dimensions. Torch's names."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ....context import SLOW, thread
from ....core.annotations import PerDim
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.casting import computes_in
from ....errors import ConfigError, ShapeError
from ...primitives.pool import avg_pool, max_pool, max_pool_indices, pooled_sizes
from ...primitives.views import reshape
from ..args import kinds
from ..args import tensor as as_input
from ..views.memory_formats import following
from .conv import per_dim


# --- what programs call ------------------------------------------------------------------------
def _sizes(
    where: str, n: int, input: Tensor, kernel: PerDim, stride: PerDim | None, padding: PerDim,
    dilation: PerDim, ceil_mode: bool,
) -> tuple[Tensor, tuple, tuple, tuple, tuple]:  # fmt: skip
    """The arguments in full, checked, and the input with a batch."""
    if as_input(input, where).ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} given; needed {n + 1} or {n + 2} "
            f"dimensions: channels and {n} spatial ones, with or without a batch"
        )
    kernel = per_dim(kernel, n, where, "kernel_size")
    empty = stride is None or (isinstance(stride, (list, tuple)) and not stride)
    stride = kernel if empty else per_dim(stride, n, where, "stride")
    padding = per_dim(padding, n, where, "padding")
    dilation = per_dim(dilation, n, where, "dilation")
    check = _known_to_fit if thread.mode != SLOW else _fits
    check(where, n, tuple(input.meta()[0]), kernel, stride, padding, dilation, bool(ceil_mode))
    if input.ndim == n + 1:
        input = reshape(input, shape=(1, *input.shape))
    return input, kernel, stride, padding, dilation


def _fits(
    where: str, n: int, input: tuple, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple, ceil_mode: bool,
) -> None:  # fmt: skip
    """Raise where there are no such windows over an input of this shape."""
    if 0 in input[1:] or (len(input) == n + 1 and 0 in input):
        raise ShapeError(
            f"{where}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch "
            f"size for input, but got {list(input)}: only the batch may be empty"
        )
    if min(stride) < 1:
        raise ConfigError(
            f"{where}: stride={stride} given: stride should not be zero, but at least 1"
        )
    if min(kernel) < 1 or min(stride) < 1 or min(dilation) < 1:
        raise ConfigError(
            f"{where}: kernel_size={kernel}, stride={stride}, dilation={dilation} given; needed at "
            "least 1 everywhere"
        )
    if any(not 0 <= p <= k // 2 for k, p in zip(kernel, padding, strict=True)):
        raise ConfigError(
            f"{where}: padding={padding} given; it must lie between 0 and half of "
            f"kernel_size={kernel}"
        )
    sizes = pooled_sizes(input[-n:], kernel, stride, padding, dilation, ceil_mode)
    if any(size < 1 for size in sizes):
        raise ShapeError(
            f"{where}: input of shape {list(input)} with padding {padding} is smaller "
            f"than the window {kernel}; needed an input at least as large as the window"
        )


_known_to_fit = lru_cache(512)(_fits)  # of shapes that came before nothing is asked again


def _max_nd(
    n: int, input: Tensor, kernel_size: PerDim, stride: PerDim | None, padding: PerDim,
    dilation: PerDim, ceil_mode: bool, return_indices: bool,
) -> Any:  # fmt: skip
    x, kernel, stride, padding, dilation = _sizes(
        f"max_pool{n}d", n, input, kernel_size, stride, padding, dilation, ceil_mode
    )
    kinds(f"max_pool{n}d", "fV" if n == 1 and not return_indices else "iufV", input)
    how = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation,
           "ceil_mode": bool(ceil_mode)}  # fmt: skip
    out = max_pool(x, **how)
    places = max_pool_indices(x.detach(), out.detach(), **how) if return_indices else None
    out = following(out, input)
    places = places if places is None else following(places, input)
    if input.ndim == n + 1:
        out = reshape(out, shape=tuple(out.shape)[1:])
        places = places if places is None else reshape(places, shape=tuple(places.shape)[1:])
    return out if places is None else (out, places)


def max_pool1d(
    input: Tensor, kernel_size: PerDim, stride: PerDim | None = None, padding: PerDim = 0,
    dilation: PerDim = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of (N, C, L); stride defaults to the kernel size."""
    return _max_nd(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor, kernel_size: PerDim, stride: PerDim | None = None, padding: PerDim = 0,
    dilation: PerDim = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of (N, C, H, W); stride defaults to the kernel size.

    ``return_indices``: also where it is, as a position in the flattened (H, W).
    """
    return _max_nd(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@computes_in("own")
def max_pool3d(
    input: Tensor, kernel_size: PerDim, stride: PerDim | None = None, padding: PerDim = 0,
    dilation: PerDim = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of (N, C, D, H, W)."""
    return _max_nd(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _avg_nd(
    n: int, input: Tensor, kernel_size: PerDim, stride: PerDim | None, padding: PerDim,
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    x, kernel, stride, padding, _ = _sizes(
        f"avg_pool{n}d", n, input, kernel_size, stride, padding, 1, ceil_mode
    )
    if input.dtype is not dtypes.int64:
        kinds(f"avg_pool{n}d", "fV", input)
    if divisor_override == 0:
        raise ConfigError(f"avg_pool{n}d: divisor_override must not be 0")
    out = avg_pool(
        x, kernel=kernel, stride=stride, padding=padding, ceil_mode=bool(ceil_mode),
        include=bool(count_include_pad), divisor=divisor_override,
    )  # fmt: skip
    out = following(out, input)
    return reshape(out, shape=tuple(out.shape)[1:]) if input.ndim == n + 1 else out


def avg_pool1d(
    input: Tensor, kernel_size: PerDim, stride: PerDim | None = None, padding: PerDim = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, L)."""
    return _avg_nd(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor, kernel_size: PerDim, stride: PerDim | None = None, padding: PerDim = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, H, W); ``count_include_pad`` counts the padded zeros."""
    return _avg_nd(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@computes_in("own")
def avg_pool3d(
    input: Tensor, kernel_size: PerDim, stride: PerDim | None = None, padding: PerDim = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, D, H, W)."""
    return _avg_nd(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


__all__ = ["avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d"]
