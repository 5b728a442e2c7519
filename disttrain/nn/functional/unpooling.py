"""Undoing and sampling of maxima over windows: values go back to where they came from, and windows
of drawn sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import ops
from ...core import Tensor
from ...core.annotations import PerDim
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import ConfigError, DimError, DimKindError, DTypeError, ShapeError
from ...ops.functions.args import kinds


def _each(where: str, n: int, value: PerDim, name: str = "kernel_size") -> tuple[int, ...]:
    given = (value,) * n if isinstance(value, int) else tuple(value)
    if len(given) != n:
        raise ShapeError(
            f"{where}: {name} must either be a single int or {n} of them (needed one number or "
            f"{n}); {value} given"
        )
    return given


_NAMES = ("time", "height", "width")


# --- unpooling --------------------------------------------------------------------------------
def _unpooled_sizes(
    where: str, n: int, input: Tensor, kernel: tuple, stride: tuple, padding: tuple, wanted: Any
) -> tuple[int, ...]:
    usual = tuple(
        (size - 1) * s + k - 2 * p
        for size, k, s, p in zip(input.shape[-n:], kernel, stride, padding, strict=True)
    )
    if wanted is None:
        return usual
    given = tuple(wanted)[-n:] if len(wanted) == n + 2 else tuple(wanted)
    if len(given) != n:
        raise ConfigError(f"{where}: output_size={wanted} given; needed {n} or {n + 2} sizes")
    for got, size, s in zip(given, usual, stride, strict=True):
        if not size - s < got < size + s:
            raise ConfigError(
                f"{where}: invalid output_size {given}; each must lie less than a stride {stride} "
                f"from {usual}"
            )
    return given


def _unpool(
    n: int, input: Tensor, indices: Tensor, kernel_size: PerDim, stride: PerDim | None,
    padding: PerDim, output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    where = f"max_unpool{n}d"
    if not isinstance(indices, Tensor):
        raise DimKindError(f"{where}: indices must be a Tensor, not {type(indices).__name__}")
    if indices.dtype is not dtypes.int64:
        raise DTypeError(f"{where}: elements in indices should be int64; {indices.dtype!r} given")
    if tuple(indices.shape) != tuple(input.shape):
        raise ShapeError(
            f"{where}: indices of shape {list(indices.shape)} given for an input of shape "
            f"{list(input.shape)}; needed one per element"
        )
    if input.ndim not in (n + 1, n + 2) or 0 in input.shape[input.ndim - n - 1 :]:
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} given; needed (N, C, ...) or (C, ...) "
            f"with {n} dimensions of windows, none of them empty"
        )
    kernel, pad = _each(where, n, kernel_size), _each(where, n, padding)
    step = kernel if stride is None else _each(where, n, stride)
    sizes = _unpooled_sizes(where, n, input, kernel, step, pad, output_size)
    lead = tuple(input.shape[:-n])
    full = ops.zeros((*lead, math.prod(sizes)), dtype=input.dtype, device=input.device)
    return full.scatter(-1, indices.flatten(-n), input.flatten(-n)).reshape(*lead, *sizes)


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: PerDim, stride: PerDim | None = None,
    padding: PerDim = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Each value of (N, C, L) at the place that ``max_pool1d`` gave for it, zeros elsewhere"""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: PerDim, stride: PerDim | None = None,
    padding: PerDim = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Each value of (N, C, H, W) at the place that ``max_pool2d`` gave for it, zeros elsewhere"""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: PerDim, stride: PerDim | None = None,
    padding: PerDim = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Each value of (N, C, D, H, W) at the place that ``max_pool3d`` gave for it"""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


# --- windows of drawn places ------------------------------------------------------------------
def _starts(draws: Tensor, size: int, out: int, k: int) -> Tensor:
    """Where each of ``out`` windows of ``k`` places begins, by one draw from [0, 1) for all of a
    channel: (N, C) to (N, C, out) (Graham 2015)."""
    last = ops.full((*draws.shape, 1), size - k, dtype=dtypes.int64, device=draws.device)
    if out < 2:
        return last[..., :out]
    step = (size - k) / (out - 1)
    i = ops.arange(out - 1, dtype=draws.dtype, device=draws.device)
    drawn = draws.unsqueeze(-1)
    begins = ((i + drawn) * step).long() - (drawn * step).long()
    return ops.cat([begins, last], -1)


def _fractional_size(
    where: str, n: int, input: Tensor, kernel: tuple, size: Any, ratio: Any
) -> tuple[int, ...]:
    if size is None:
        ratios = (ratio,) * n if isinstance(ratio, (int, float)) else tuple(ratio)
        if len(ratios) != n or not all(0 < r < 1 for r in ratios):
            raise ConfigError(
                f"{where} requires output_ratio to be {n} fractions between 0 and 1 (or a single "
                f"one); {ratio} given"
            )
        size = tuple(int(s * r) for s, r in zip(input.shape[-n:], ratios, strict=True))
    wanted = _each(where, n, size, "output_size")
    each = zip(_NAMES[-n:], input.shape[-n:], kernel, wanted, strict=True)
    for name, have, k, out in each:
        if out < 0 or out + k - 1 > have:
            raise ShapeError(
                f"{where}: pool {name} {k} too large relative to input {name} {have}: {out} "
                "windows do not fit"
            )
    return wanted


def _fractional(
    n: int, input: Tensor, kernel_size: PerDim, output_size: Any, output_ratio: Any,
    return_indices: bool, samples: Tensor | None,
) -> Any:  # fmt: skip
    where = f"fractional_max_pool{n}d"
    if output_size is None and output_ratio is None:
        raise ConfigError(f"{where} requires specifying either an output_size or an output_ratio")
    kinds(where, "fV", input)
    if input.ndim not in (n + 1, n + 2) or 0 in input.shape[input.ndim - n - 1 :]:
        raise DimError(
            f"{where}: Expected input with non-zero size for non-batch dimensions, (N, C, ...) or "
            f"(C, ...) with {n} dimensions of windows; shape {list(input.shape)} given"
        )
    kernel = _each(where, n, kernel_size)
    wanted = _fractional_size(where, n, input, kernel, output_size, output_ratio)
    x = input if input.ndim == n + 2 else input.unsqueeze(0)
    if samples is None:
        samples = ops.rand(*x.shape[:2], n, dtype=input.dtype, device=input.device)
    if tuple(samples.shape) != (*x.shape[:2], n):
        raise ShapeError(
            f"{where}: random samples of shape {list(samples.shape)} given; needed "
            f"{[*x.shape[:2], n]}"
        )
    windows = _drawn_windows(x, samples, kernel, wanted)
    flat = x.flatten(-n)
    seen = flat.detach().gather(-1, windows.flatten(2)).reshape(windows.shape)
    places = windows.gather(-1, seen.argmax(-1, keepdim=True)).squeeze(-1)
    shape = tuple(input.shape[:-n]) + wanted
    values = flat.gather(-1, places).reshape(shape)
    return (values, places.reshape(shape)) if return_indices else values


def _drawn_windows(x: Tensor, samples: Tensor, kernel: tuple, wanted: tuple) -> Tensor:
    """The places of each window in a flattened channel: (N, C, windows, places of one)."""
    n = len(kernel)
    order = (1, 0) if n == 2 else (0, 1, 2)  # of two dimensions the last one is drawn first
    found: Any = 0
    for d, (k, out) in enumerate(zip(kernel, wanted, strict=True)):
        size = x.shape[2 + d]
        starts = _starts(samples[..., order[d]], size, out, k)
        line = [*x.shape[:2]] + [1] * (2 * n)
        line[2 + d], line[2 + n + d] = out, k
        places = starts.unsqueeze(-1) + ops.arange(k, device=x.device)
        found = found * size + places.reshape(line)
    return found.reshape(*x.shape[:2], math.prod(wanted), math.prod(kernel))


@computes_in("own")
def fractional_max_pool2d(
    input: Tensor, kernel_size: PerDim, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest values of windows of (N, C, H, W) that begin at drawn places (Graham 2015)"""
    return _fractional(
        2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


@computes_in("own")
def fractional_max_pool3d(
    input: Tensor, kernel_size: PerDim, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest values of windows of (N, C, D, H, W) that begin at drawn places (Graham 2015)"""
    return _fractional(
        3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )
