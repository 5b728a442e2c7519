"""Images at other places: resizing, samples at the points of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import OperatorError, ShapeError
from ....nn import functional as F
from ....ops import api
from ..table import operator
from .elementwise import check_count, check_sizes
from .reductions import plain

Points = np.ndarray  # where the elements of a result lie, in the coordinates of what is resized


def _points(
    how: str, n: int, m: int, scale: float, exact: float, roi: tuple[float, float]
) -> Points:
    """``n`` elements resized to ``m``. ``exact``: the size before it was made whole."""
    x = np.arange(m, dtype=np.float64)
    if how == "half_pixel" or (how == "pytorch_half_pixel" and m > 1):
        return (x + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return np.zeros(m)
    if how == "align_corners":
        return x * (n - 1) / (m - 1) if m > 1 else x * 0
    if how == "asymmetric":
        return x / scale
    if how == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if how == "half_pixel_symmetric":
        return n / 2 * (1 - m / exact) + (x + 0.5) / scale - 0.5
    if how == "tf_crop_and_resize":
        start, end = roi
        if m > 1:
            return start * (n - 1) + x * (end - start) * (n - 1) / (m - 1)
        return np.full(m, 0.5 * (start + end) * (n - 1))
    raise OperatorError(f"coordinate_transformation_mode {how!r} is not known")


_NEAREST: dict[str, Callable[[Points], Points]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cubic(distance: Points, a: float) -> Points:
    """Keys' kernel."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _taps(
    points: Points, n: int, scale: float, mode: str, nearest: str, a: float, outside: int,
    antialias: int,
) -> tuple[Points, Points]:  # fmt: skip
    """For each point the neighbours that it is made of, and their weights: (taps, points)."""
    if mode == "nearest":
        found = _NEAREST[nearest](np.round(points, 9)).clip(0, n - 1)
        return found[None], np.ones((1, len(points)))
    reach = 1 if mode == "linear" else 2
    shrink = min(scale, 1.0) if antialias else 1.0
    half = math.ceil(reach / shrink)
    places = np.floor(points)[None] + np.arange(1 - half, half + 1)[:, None]
    distance = (points[None] - places) * shrink
    weights = (1 - np.abs(distance)).clip(0, None) if mode == "linear" else _cubic(distance, a)
    if outside:
        weights = np.where((places >= 0) & (places <= n - 1), weights, 0.0)
    if outside or antialias:
        weights = weights / weights.sum(0, keepdims=True)
    return places.clip(0, n - 1), weights


def _along(x: Tensor, axis: int, places: Points, weights: Points) -> Tensor:
    """An axis in which each element is a sum of weighted neighbours."""
    shape = [1] * x.ndim
    shape[axis] = -1
    out: Any = None
    for index, weight in zip(places.astype(np.int64), weights):
        part = api.index_select(x, axis, api.tensor(index, device=x.device))
        if len(weights) > 1:
            array = weight.astype(np.float32 if x.dtype.itemsize <= 4 else np.float64)
            part = part * api.tensor(array, device=x.device).reshape(shape)
        out = part if out is None else out + part
    return out


@operator("Resize", since=11, numbers=(1, 2, 3))
def _resize(
    x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0,
    axes: Any = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor", node: Any,
) -> Tensor:  # fmt: skip
    along = [a % x.ndim for a in axes] if axes is not None else list(range(x.ndim))
    factors, wanted = plain(scales) or None, plain(sizes) or None
    given = [x.shape[a] for a in along]
    if (factors is None) == (wanted is None):
        raise ShapeError("one of scales and sizes is needed")
    if factors is not None:
        new = [math.floor(n * f) for n, f in zip(given, factors)]
    else:
        factors, new = _factors(given, wanted or [], keep_aspect_ratio_policy)
    if len(new) != len(along):
        raise ShapeError(f"{len(new)} sizes for {len(along)} axes")
    check_sizes(math.prod(new), node)
    quick = _interpolated(
        x, along, given, new, factors, mode, coordinate_transformation_mode, nearest_mode,
        bool(antialias or exclude_outside),
    )  # fmt: skip
    if quick is not None:
        return quick
    kind = x.dtype
    wide = x if kind.is_floating_point or mode == "nearest" else x.to(dtypes.float32)
    corners = plain(roi) or [0.0] * len(along) + [1.0] * len(along)
    beyond: Tensor | None = None
    for i, axis in enumerate(along):
        n, m, f = given[i], new[i], factors[i]
        box = (corners[i], corners[len(along) + i])
        if type(f) is float and f == 1.0 and (m is n or m == n) and box == (0.0, 1.0):
            continue
        points = _points(coordinate_transformation_mode, n, m, f, n * f, box)
        taps = _taps(points, n, f, mode, nearest_mode, cubic_coeff_a, exclude_outside, antialias)
        wide = _along(wide, axis, *taps)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            out = api.tensor((points < 0) | (points > n - 1))
            out = out.reshape([-1 if j == axis else 1 for j in range(x.ndim)])
            beyond = out if beyond is None else beyond | out
    if beyond is not None:
        wide = api.where(beyond, api.full((), extrapolation_value, dtype=wide.dtype), wide)
    if not kind.is_floating_point and mode != "nearest":
        info = dtypes.iinfo(kind)
        return api.clamp(api.round(wide), info.min, info.max).to(kind)
    return wide


def _factors(given: list, sizes: list, policy: str) -> tuple[list, list]:
    each = [1.0 if m is n or m == n else m / n for n, m in zip(given, sizes)]
    if policy == "stretch":
        return each, list(sizes)
    one = min(each) if policy == "not_larger" else max(each)
    return [one] * len(each), [math.floor(one * n + 0.5) for n in given]


def _interpolated(
    x: Tensor, along: list, given: list, new: list, factors: list, mode: str, how: str,
    nearest: str, special: bool,
) -> Tensor | None:  # fmt: skip
    """By ``interpolate``, where it means the same: images, sizes that the factors make exactly."""
    if special or x.ndim not in (3, 4) or not x.dtype.is_floating_point:
        return None
    changed = {a: (n, m, f) for a, n, m, f in zip(along, given, new, factors)}
    if any(n != m for a, (n, m, _) in changed.items() if a < 2):
        return None
    inner = [changed.get(a, (x.shape[a], x.shape[a], 1.0)) for a in range(2, x.ndim)]
    if any(m == 1 or n * f != m for n, m, f in inner):
        return None
    sizes = [m for _, m, _ in inner]
    if (mode, how, nearest) == ("nearest", "asymmetric", "floor"):
        return (
            F.interpolate(x, sizes, mode="nearest")
            if all(m % n == 0 for n, m, _ in inner)
            else None
        )
    if mode == "linear" and how in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        if how == "half_pixel" and any(m < n for n, m, _ in inner):
            return None
        kind = "linear" if x.ndim == 3 else "bilinear"
        return F.interpolate(x, sizes, mode=kind, align_corners=how == "align_corners")
    return None


@operator("Resize", until=10, numbers=(1,))
@operator("Upsample", numbers=(1,))
def _upsample(x: Tensor, scales: Any, *, mode: str = "nearest", node: Any) -> Tensor:
    return _resize(
        x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric",
        nearest_mode="floor", node=node,
    )  # fmt: skip


_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@operator("GridSample")
def _grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    how = _MODES.get(mode, mode)
    return F.grid_sample(x, grid, how, padding_mode, bool(align_corners))


@operator("AffineGrid", numbers=(1,))
def _affine_grid(theta: Tensor, size: Any, *, align_corners: int = 0) -> Tensor:
    sizes = plain(size) or []
    check_count(math.prod(sizes), 1 << 28)
    return F.affine_grid(theta, sizes, bool(align_corners))
