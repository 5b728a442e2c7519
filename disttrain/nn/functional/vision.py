"""Images: resizing, padding, moving channels to pixels and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import ops
from ...core import Tensor
from ...core.constants import constant
from ...core.types import dtypes
from ...errors import ConfigError, ShapeError
from ...ops.functions.args import in_float32, kinds
from ...ops.functions.nn.padding import SOURCES, extended
from ...ops.functions.views.memory_formats import following
from ...ops.primitives.pool import avg_pool_spread
from ...shortcuts import barred
from ...symbolic import as_int, hinted, made
from . import filters
from .common import need_dims
from .pooling import MEANS, along

_EXACT = 1 << 22  # sizes whose places float32 can tell apart
_MODES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad from the last dimension on: (left, right, top, bottom, ...); negative numbers crop.

    ``mode``: "constant" (with ``value``), "reflect", "replicate" or "circular".
    """
    widths = tuple(as_int(p) for p in pad)
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        raise ShapeError(
            f"pad: {list(widths)} given for an input of shape {list(input.shape)}; needed pairs "
            f"(before, after), at most {input.ndim} of them"
        )
    if mode == "constant":
        return following(_pad_constant(input, widths, 0.0 if value is None else value), input)
    kinds(f"pad(mode={mode!r})", "iufVc", input)
    if mode not in SOURCES:
        raise ConfigError(f"pad: mode={mode!r} given; needed constant, {', '.join(SOURCES)}")
    if not widths or input.ndim - len(widths) // 2 not in (1, 2):
        raise ShapeError(
            f"pad(mode={mode!r}): {list(widths)} given for an input of shape {list(input.shape)}; "
            "needed widths of all dimensions but the batch and the channels"
        )
    if mode != "circular" and 0 in input.shape[input.ndim - len(widths) // 2 == 2 :]:
        raise ShapeError(
            f"pad(mode={mode!r}): input of shape {list(input.shape)} given; only the batch may be "
            "empty"
        )
    if mode == "circular":
        _check_circular(input, widths)
    if mode == "circular" and min(widths, default=0) < 0:  # what is cropped is not repeated
        input = _cropped(input, widths)
        widths = tuple(max(w, 0) for w in widths)
    if not any(widths):
        return input.clone()
    out = extended(input, widths, mode)
    return out if mode == "circular" else following(out, input)


def _check_circular(input: Tensor, widths: tuple) -> None:
    """Nothing is repeated more than once, counted before what is cropped."""
    for i in range(len(widths) // 2):
        low, high = widths[2 * i], widths[2 * i + 1]
        size = input.shape[-1 - i]
        if max(low, high) > size or (size + min(low, 0) + min(high, 0) <= 0 < max(low, high)):
            raise ShapeError(
                f"pad: circular padding by {(low, high)} given for a dimension of size {size}"
            )


def _cropped(input: Tensor, widths: tuple) -> Tensor:
    """``input`` without what negative widths cut off."""
    index = [slice(None)] * input.ndim
    for i in range(len(widths) // 2):
        low, high = widths[2 * i], widths[2 * i + 1]
        size = input.shape[-1 - i]
        if low + size < 0 or high + size < 0 or low + high + size < 0:
            raise ShapeError(f"pad: {widths} crops more than the size of {list(input.shape)}")
        index[-1 - i] = slice(max(-low, 0), size - max(-high, 0))
    return input[tuple(index)]


def _pad_constant(input: Tensor, widths: tuple, value: float) -> Tensor:
    if not widths:
        return input.clone()
    if min(widths) >= 0:
        return ops.pad(input, widths, "constant", value)
    return ops.pad(_cropped(input, widths), tuple(max(w, 0) for w in widths), "constant", value)


def _output_sizes(input: Tensor, size: Any, scale: Any) -> tuple[list[int], list[float | None]]:
    """Wanted sizes, and the scale of each dimension where one was given."""
    n = input.ndim - 2
    if (size is None) == (scale is None):
        raise ConfigError("interpolate: needed exactly one of size and scale_factor")
    if size is not None:
        sizes = list(size) if isinstance(size, (tuple, list)) else [size] * n
        scales: list[float | None] = [None] * n
    else:
        scales = list(scale) if isinstance(scale, (tuple, list)) else [float(scale)] * n
        given = zip(input.shape[2:], scales, strict=False)
        sizes = [math.floor(s * f) for s, f in given if f is not None]
    if len(sizes) != n or any(s < 1 for s in sizes):
        raise ShapeError(
            f"interpolate: size={size}, scale_factor={scale} given for an input of shape "
            f"{list(input.shape)}; needed {n} positive sizes"
        )
    return [as_int(s) for s in sizes], scales


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial dimensions of (N, C, ...).

    ``mode``: nearest, nearest-exact, linear (3-d input), bilinear, bicubic (4-d), trilinear (5-d),
    area.
    """
    need_dims("interpolate", input, (3, 4, 5), "(N, C, ...)")
    if input.is_quantized:  # rounded once, to its grid
        how = size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        whole: Any = input
        found: Tensor = whole.rounded_as(interpolate(whole.dequantize(), *how))
        return found
    if antialias and not (mode in filters.SMOOTH and input.ndim == 4):
        raise ConfigError(
            f"interpolate: antialias=True given with mode={mode!r} and an input of shape "
            f"{list(input.shape)}; it is for bilinear and bicubic, and images (N, C, H, W)"
        )
    if mode == "area" or input.meta()[1] != np.uint8:
        kinds(f"interpolate(mode={mode!r})", "fV", input)
    sizes, scales = _output_sizes(input, size, scale_factor)
    if recompute_scale_factor:
        scales = [None] * len(sizes)
    if mode in ("nearest", "nearest-exact"):
        if align_corners is not None:
            raise ConfigError(f"interpolate: align_corners has no meaning for mode={mode!r}")
        shift = 0.5 if mode == "nearest-exact" else 0.0
        return following(_nearest(input, sizes, scales, shift), input)
    if mode == "area":
        given: list[tuple] = [
            (filters.area, s, out) for s, out in zip(input.shape[2:], sizes, strict=True)
        ]
        counts = [_mean_of(s, out) for s, out in zip(input.shape[2:], sizes, strict=True)]
        return following(_separable(input, given, sizes, counts), input)
    if _MODES.get(mode) != input.ndim - 2:
        kind = ShapeError if mode in _MODES else ConfigError
        raise kind(
            f"interpolate: mode={mode!r} given for an input of shape {list(input.shape)}; needed "
            "nearest, nearest-exact, area, or linear for 3, bilinear or bicubic for 4, trilinear "
            "for 5 dimensions"
        )
    makes = filters.smooth if antialias else filters.sampled
    kept = antialias or mode != "bicubic" or input.meta()[1] == np.uint8
    given = [
        (_resizing, kept, makes, mode, s, out, f, bool(align_corners))
        for s, out, f in zip(input.shape[2:], sizes, scales, strict=True)
    ]
    counts = []
    if kept and not (antialias or align_corners):  # a half lies between two elements
        shapes = zip(input.shape[2:], sizes, scales, strict=True)
        counts = [_mean_of(s, out, f, 2) for s, out, f in shapes]
    return following(_separable(input, given, sizes, counts), input)


def _resizing(
    kept: bool, makes: Any, mode: str, size: int, out: int, f: float | None, corners: bool
) -> np.ndarray:
    """The matrix that resizes a dimension; ``kept``: where that changes nothing, it stays."""
    return np.eye(size) if kept and size == out else makes(mode, size, out, f, corners)


def _doubled(input: Tensor, sizes: list[int], scales: list) -> list[int] | None:
    """How many new places each old one has, where these are powers of 2, so that no rounding
    decides."""
    times = []
    for size, out, f in zip(input.shape[2:], sizes, scales, strict=True):
        k = hinted(out) // max(hinted(size), 1)
        if not k or k & (k - 1) or out != k * size or f not in (None, k) or size >= _EXACT:
            return None
        times.append(k)
    return times


def _repeated(input: Tensor, times: list[int], sizes: list[int]) -> Tensor:
    """The adjoint of sums over the places of each."""
    how = {"kernel": tuple(times), "stride": tuple(times), "padding": (0,) * len(times)}
    return avg_pool_spread(
        input, size=tuple(sizes), ceil_mode=False, include=True, divisor=1, **how
    )


def _nearest(input: Tensor, sizes: list[int], scales: list, shift: float) -> Tensor:
    if barred():
        return _taken(input, sizes, scales, shift)
    times = _doubled(input, sizes, scales) if input.meta()[1].kind in "fV" else None
    if times is not None:
        return _repeated(input, times, sizes)
    plain = len(sizes) == 2 and not shift
    found = [
        nearest_places(size, out, f, shift, plain)
        for size, out, f in zip(input.shape[2:], sizes, scales, strict=True)
    ]
    times = [len(places) // max(size, 1) for size, places in zip(input.shape[2:], found)]
    even = all(
        k and np.array_equal(places, np.arange(size).repeat(k))
        for k, size, places in zip(times, input.shape[2:], found)
    )
    if even and input.meta()[1].kind in "fV":
        return _repeated(input, times, sizes)
    steps = [_even_steps(places, size) for places, size in zip(found, input.shape[2:])]
    if input.meta()[1].kind in "fV" and all(step is not None for step in steps):
        return ops.clone(input[(slice(None), slice(None), *steps)])
    for i, places in enumerate(found):
        input = input.index_select(2 + i, constant(input, places))
    return input


def nearest_places(size: int, out: int, f: float | None, shift: float, plain: bool) -> np.ndarray:
    """The old place of each of ``out`` new ones. ``plain``: a scale that gives the size, or twice
    the size, is that number itself, as in PyTorch."""
    if plain and out in (size, 2 * size):
        f = None
    step = np.float32(size / out if f is None else 1.0 / f)
    places = ((np.arange(out) + shift) * step).astype(np.float32).astype(np.int64)
    return np.minimum(places, size - 1)


def _taken(input: Tensor, sizes: list[int], scales: list, shift: float) -> Tensor:
    """The nearest element for each new place, of sizes that may change."""
    plain = len(sizes) == 2 and not shift
    for i, (size, out, f) in enumerate(zip(input.shape[2:], sizes, scales, strict=True)):
        places = made(nearest_places, size, out, f, shift, plain, shape=(out,))
        input = input.index_select(2 + i, constant(input, places))
    return input


def _even_steps(places: np.ndarray, size: int) -> slice | None:
    """``places`` of ``size`` as a slice, where they are one."""
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    found = slice(int(places[0]), int(places[-1]) + 1, max(step, 1))
    return found if np.array_equal(places, np.arange(size)[found]) else None


@in_float32
def _separable(
    input: Tensor, given: list[tuple], sizes: list[int], counts: Sequence[int] = ()
) -> Tensor:
    """Each dimension resized by the matrix that a function makes of numbers; ``counts``: where all
    new elements are means of so many neighbours each."""
    if input.meta()[1] == np.uint8:
        return _separable_bytes(input, [make(*numbers) for make, *numbers in given])
    if counts and all(counts) and 0 not in input.shape:
        return MEANS[len(counts)](input, counts)
    for i, ((make, *numbers), out) in enumerate(zip(given, sizes, strict=True)):
        input = along(input, make, *numbers, out=out, dim=i - len(given))
    return input


def _mean_of(size: int, out: int, f: float | None = None, most: int | None = None) -> int:
    """Of how many neighbours, ``most`` or less, each of ``out`` elements is the mean; 0: none."""
    count = hinted(size) // max(hinted(out), 1)
    if barred() or not count or size != count * out or (most is not None and count > most):
        return 0
    return count if f is None or f * count == 1 else 0


def _separable_bytes(input: Tensor, matrices: list[np.ndarray]) -> Tensor:
    """Rounded to bytes after each dimension, the last one first, as image libraries do; with
    weights that are whole numbers of a power of 2."""
    x = input.to(dtypes.float64)
    for i, matrix in enumerate(reversed(matrices)):
        weights, bits = filters.fixed_point(matrix)
        if matrix.shape[0] != matrix.shape[1] or not np.array_equal(matrix, np.eye(len(matrix))):
            x = along(x, np.asarray, weights, out=len(weights), dim=-1 - i)
            x = ops.clamp(ops.floor(x / 2.0**bits + 0.5), 0, 255)
    return x.to(dtypes.uint8)


def upsample(
    input: Tensor, size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """``interpolate`` under its old name"""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:  # fmt: skip
    """``interpolate`` to the nearest, under its old name"""
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:  # fmt: skip
    """``interpolate`` between corners that are aligned, under its old name"""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _places(where: str, input: Tensor, factor: int) -> tuple:
    if input.ndim < 3:
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} given; needed (..., C, H, W), at least 3 "
            "dimensions"
        )
    if factor < 1:
        raise ConfigError(f"{where}: a factor of {factor} given; it must be positive")
    return tuple(input.shape)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., C r², H, W) to (..., C, H r, W r) (Shi et al., 2016)"""
    r = upscale_factor
    *lead, c, h, w = _places("pixel_shuffle", input, r)
    if c % (r * r):
        raise ShapeError(
            f"pixel_shuffle: input of shape {list(input.shape)} given; its {c} channels must be "
            f"divisible by upscale_factor² = {r * r}"
        )
    n = len(lead)
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    x = x.permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return _fresh(x.reshape(*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of ``pixel_shuffle``"""
    r = downscale_factor
    *lead, c, h, w = _places("pixel_unshuffle", input, r)
    if h % r or w % r:
        raise ShapeError(
            f"pixel_unshuffle: input of shape {list(input.shape)} given; height and width must be "
            f"divisible by downscale_factor = {r}"
        )
    n = len(lead)
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    x = x.permute(*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return _fresh(x.reshape(*lead, c * r * r, h // r, w // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the channels of ``groups`` groups (Zhang et al., 2018)"""
    if input.ndim < 3:
        raise ShapeError(
            f"channel_shuffle: input of shape {list(input.shape)} given; needed (N, C, ...)"
        )
    n, c, *rest = input.shape
    if c % groups:
        raise ShapeError(f"channel_shuffle: {c} channels are not divisible by groups={groups}")
    x = input.reshape(n, groups, c // groups, *rest).transpose(1, 2)
    return _fresh(x.reshape(input.shape))


native_channel_shuffle = channel_shuffle


def _fresh(x: Tensor) -> Tensor:
    """``x``, or a copy where nothing moved and it is a view of the input."""
    return x if x._view is None else x.clone()
