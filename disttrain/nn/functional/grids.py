"""Sampling of images at the places that a grid names (Jaderberg et al. 2015)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ... import ops
from ...core import Tensor
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import ConfigError, DTypeError, ShapeError
from ...ops.functions.args import kinds

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid that ``grid_sample`` takes for affine maps ``theta``: (N, 2, 3) and a size of
    (N, C, H, W) give (N, H, W, 2); (N, 3, 4) and (N, C, D, H, W) give (N, D, H, W, 3)."""
    kinds("affine_grid", "fV", theta)
    n = len(size) - 2
    if n not in (2, 3) or tuple(theta.shape) != (size[0], n, n + 1):
        raise ShapeError(
            f"affine_grid: theta of shape {list(theta.shape)} and size={list(size)} given; needed "
            "N x 2 x 3 for 4 sizes, N x 3 x 4 for 5"
        )
    if any(n <= 0 for n in size):
        raise ShapeError(f"affine_grid: expected non-zero, positive output size. Got {list(size)}")
    sizes = tuple(size[2:])
    axes = [_axis(theta, k, bool(align_corners)) for k in sizes]
    lines = ops.meshgrid(*axes, indexing="ij")
    base = ops.stack([*reversed(lines), ops.ones_like(lines[0])], -1).reshape(-1, n + 1)
    return ops.matmul(base, theta.transpose(1, 2)).reshape(size[0], *sizes, n)


def _axis(theta: Tensor, n: int, corners: bool) -> Tensor:
    if n == 1:
        return theta.new_zeros(1)
    places = ops.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device)
    return places if corners else places * ((n - 1) / n)


@computes_in("widest")
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """``input`` (N, C, H, W) at the places of ``grid`` (N, h, w, 2; x before y, -1 to 1 across
    the image) as (N, C, h, w); of volumes likewise.

    ``mode``: "bilinear", "nearest" or "bicubic" (images only); ``padding_mode`` says what lies
    outside: "zeros", the "border" or a "reflection". ``align_corners``: -1 and 1 are the centres of
    the outermost elements, not their outer edges.
    """
    _check(input, grid, mode, padding_mode)
    sizes, corners = tuple(input.shape[2:]), bool(align_corners)
    lines = tuple(reversed(ops.unbind(grid, -1)))  # as the dimensions of the input
    places = [_unnormalized(x, n, corners) for x, n in zip(lines, sizes, strict=True)]
    inside = _INSIDE[padding_mode]
    if mode == "bicubic":
        return _bicubic(input, places, lambda x, n: inside(x, n, corners))
    places = [inside(x, n, corners) for x, n in zip(places, sizes, strict=True)]
    if mode == "nearest":
        nearest = [x.round() for x in places]
        return _at(input, nearest) + _without_slope(nearest).unsqueeze(1)
    lows = [x.detach().floor() for x in places]
    out: Any = None
    for side in itertools.product((0, 1), repeat=len(sizes)):
        weight: Any = None
        for high, x, low in zip(side, places, lows, strict=True):
            share = x - low if high else (low + 1) - x
            weight = share if weight is None else weight * share
        part = _at(input, [low + high for high, low in zip(side, lows, strict=True)])
        part = part * weight.unsqueeze(1)
        out = part if out is None else out + part
    return out


def _check(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    for name, given, words in (("mode", mode, _MODES), ("padding_mode", padding_mode, _PADDINGS)):
        if given not in words:
            raise ConfigError(
                f"grid_sample: expected {name} to be one of {', '.join(words)}, but got: '{given}'"
            )
    kinds("grid_sample", "fV", input, grid)
    if input.dtype is not grid.dtype:
        raise DTypeError(
            f"grid_sample: input of {input.dtype!r} and grid of {grid.dtype!r} given; needed one "
            "type"
        )
    n = input.ndim - 2
    if n not in (2, 3) or grid.ndim != input.ndim or grid.shape[0] != input.shape[0]:
        raise ShapeError(
            f"grid_sample: input of shape {list(input.shape)} and grid of shape "
            f"{list(grid.shape)} given; needed (N, C, H, W) and (N, h, w, 2), or one more of each"
        )
    if grid.shape[-1] != n:
        raise ShapeError(f"grid_sample: expected grid to have size {n} in last dimension")
    if 0 in input.shape[2:]:
        raise ShapeError(
            f"grid_sample: expected input to have non-empty spatial dimensions; {input.shape} given"
        )
    if mode == "bicubic" and n != 2:
        raise ShapeError("grid_sample: mode='bicubic' is for images (N, C, H, W) only")


def _unnormalized(x: Tensor, n: int, corners: bool) -> Tensor:
    return (x + 1) / 2 * (n - 1) if corners else ((x + 1) * n - 1) / 2


def _clipped(x: Tensor, n: int, corners: bool) -> Tensor:
    """What lies outside is moved to the border, and gets no gradient there."""
    inner = ops.logical_and(x > 0, x < n - 1)
    return ops.where(inner, x, ops.nan_to_num(x.detach()).clamp(0, n - 1))


def _reflected(x: Tensor, n: int, corners: bool) -> Tensor:
    low, high = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
    span = high - low
    if not span:
        return x * 0
    apart = x - low
    apart = ops.where(apart < 0, -apart, apart)
    turns = (apart.detach() / span).floor()
    rest = apart - turns * span
    even = ops.eq(turns - 2 * (turns / 2).floor(), 0)
    return _clipped(ops.where(even, rest + low, (span + low) - rest), n, corners)


_INSIDE: dict[str, Callable[[Tensor, int, bool], Tensor]] = {
    "zeros": lambda x, n, corners: x, "border": _clipped, "reflection": _reflected,
}  # fmt: skip


def _at(input: Tensor, places: list[Tensor]) -> Tensor:
    """The elements at whole ``places`` (N, ...), 0 where these lie outside."""
    sizes = tuple(input.shape[2:])
    flat: Any = 0
    there: Any = None
    for x, n in zip(places, sizes, strict=True):
        within = ops.logical_and(x >= 0, x < n)
        there = within if there is None else ops.logical_and(there, within)
        flat = flat * n + ops.where(within, x.detach(), 0.0).to(dtypes.int64)
    batch, channels = input.shape[:2]
    line = flat.flatten(1).unsqueeze(1).expand(-1, channels, -1)  # of empty batches, too
    found = input.flatten(2).gather(2, line).reshape(batch, channels, *flat.shape[1:])
    return ops.where(there.unsqueeze(1), found, 0.0)


def _without_slope(places: list[Tensor]) -> Tensor:
    """Zeros that the places have part in: these get a gradient, of zeros."""
    parts = [ops.where(ops.isfinite(x), x - x.detach(), 0.0) for x in places]
    return functools.reduce(ops.add, parts)


def _cubic(t: Tensor) -> list[Tensor]:
    """Keys' weights (a = -0.75) of the four elements around a place ``t`` behind the second."""

    def near(d: Tensor) -> Tensor:
        return (1.25 * d - 2.25) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _bicubic(
    input: Tensor, places: list[Tensor], inside: Callable[[Tensor, int], Tensor]
) -> Tensor:
    lows = [x.detach().floor() for x in places]
    rows, columns = (_cubic(x - low) for x, low in zip(places, lows, strict=True))
    out: Any = None
    for i, j in itertools.product(range(4), range(4)):
        near = [
            inside(low + (k - 1), n)
            for low, k, n in zip(lows, (i, j), input.shape[2:], strict=True)
        ]
        part = _at(input, near) * (rows[i] * columns[j]).unsqueeze(1)
        out = part if out is None else out + part
    return out
