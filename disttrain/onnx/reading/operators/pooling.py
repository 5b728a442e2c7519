"""Pooling over windows and over all of a channel."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import ShapeError
from ....nn import functional as F
from ....ops import api
from ..table import operator
from .convolution import padded, paddings, spatial
from .elementwise import check_count

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Windows:
    """Where the windows of a pooling lie. ``over``: elements after the padding that windows of the
    last ones reach (``ceil_mode``)."""

    def __init__(
        self, x: Tensor, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str,
        ceil_mode: int,
    ) -> None:  # fmt: skip
        n = len(kernel)
        if len(x.shape) != n + 2:
            raise ShapeError(f"a kernel of {n} axes for {tuple(x.shape)}")
        self.kernel = list(kernel)
        check_count(math.prod(self.kernel), 1 << 20)
        self.strides, self.dilations = list(strides or [1] * n), list(dilations or [1] * n)
        self.pads = paddings(x, self.kernel, self.strides, self.dilations, pads, auto_pad)
        self.reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        self.sizes, self.over = [], []
        for i, (have, s, r) in enumerate(zip(x.shape[2:], self.strides, self.reach)):
            full = have + self.pads[i] + self.pads[n + i]
            count = (-(-(full - r) // s) if ceil_mode else (full - r) // s) + 1
            if ceil_mode and (count - 1) * s >= have + self.pads[i]:
                count = count - 1
            if count < 1:
                raise ShapeError(f"windows of {kernel} do not fit in {tuple(x.shape)} with padding")
            self.sizes.append(count)
            self.over.append(max(0, (count - 1) * s + r - full) if ceil_mode else 0)

    @property
    def even(self) -> bool:
        """Whether both sides are padded alike, no more than by half a kernel, and no more."""
        n = len(self.kernel)
        first, last = self.pads[:n], self.pads[n:]
        alike = all(type(p) is int for p in self.pads) and first == last
        return alike and all(2 * p <= k for p, k in zip(first, self.kernel)) and not any(self.over)

    def around(self, x: Tensor, fill: float, over: float | None = None) -> Tensor:
        """``x`` with the padding around, and behind it what the last windows reach."""
        out = padded(x, self.pads, fill)
        return padded(out, [0] * len(self.over) + self.over, fill if over is None else over)

    def pieces(self, full: Tensor) -> list[Tensor]:
        """For each place in a window the elements there, of all windows."""
        found = []
        for place in itertools.product(*map(range, self.kernel)):
            index: list[Any] = [slice(None), slice(None)]
            for p, d, s, n in zip(place, self.dilations, self.strides, self.sizes):
                index.append(slice(p * d, p * d + (n - 1) * s + 1, s))
            found.append(full[tuple(index)])
        return found


def _lowest(kind: dtypes.dtype) -> Any:
    return -math.inf if kind.is_floating_point else dtypes.iinfo(kind).min


@operator("MaxPool")
def _max_pool(
    x: Tensor, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Any = None, pads: Any = None, storage_order: int = 0, strides: Any = None, node: Any,
) -> Any:  # fmt: skip
    w = Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if x.dtype.is_floating_point and w.even:
        half = w.pads[: len(w.kernel)]
        out = spatial("pooling", _MAX, x)(
            x, w.kernel, w.strides, half, w.dilations, False, node.num_outputs > 1
        )
        values, places = out if node.num_outputs > 1 else (out, None)
    else:
        values, places = _largest(x, w, node.num_outputs > 1)
    if places is None:
        return values
    return values, _numbered(x, places, storage_order)


def _largest(x: Tensor, w: Windows, with_places: bool) -> tuple[Tensor, Tensor | None]:
    low = _lowest(x.dtype)
    pieces = w.pieces(w.around(x, low))
    if not with_places:
        out = pieces[0]
        for piece in pieces[1:]:
            out = api.maximum(out, piece)
        return out, None
    sizes = tuple(x.shape[2:])
    numbers = api.arange(math.prod(sizes)).reshape(1, 1, *sizes)
    where = api.stack([p.expand(pieces[0].shape) for p in w.pieces(w.around(numbers, -1))])
    stacked = api.stack(pieces)
    best = api.argmax(stacked, 0, keepdim=True)
    return api.gather(stacked, 0, best).squeeze(0), api.gather(where, 0, best).squeeze(0)


def _numbered(x: Tensor, places: Tensor, storage_order: int) -> Tensor:
    """Places in a channel as places in the whole tensor, also in the order of columns."""
    n, c, *sizes = x.shape
    if storage_order:
        parts, rest = [], places
        for size in reversed(sizes):
            parts.append(rest % size)
            rest = api.div(rest, size, rounding_mode="floor")
        places, step = api.zeros_like(places), 1
        for part, size in zip(reversed(parts), sizes):
            places = places + part * step
            step *= size
    channel = api.arange(n * c).reshape(n, c, *[1] * len(sizes))
    return places + channel * math.prod(sizes)


@operator("AveragePool")
def average_pool(
    x: Tensor, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Any = None, pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    """Means of windows."""
    w = Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if w.even and all(d == 1 for d in w.dilations):
        half = w.pads[: len(w.kernel)]
        function = spatial("pooling", _AVERAGE, x)
        return function(x, w.kernel, w.strides, half, False, bool(count_include_pad))
    total: Any = sum(w.pieces(w.around(x, 0.0)))
    ones = api.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    counted = padded(ones, w.pads, 1.0 if count_include_pad else 0.0)
    counted = padded(counted, [0] * len(w.over) + w.over, 0.0)
    return total / sum(w.pieces(counted))


@operator("LpPool")
def _lp_pool(
    x: Tensor, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Any = None, p: int = 2, pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    w = Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total: Any = sum(w.pieces(w.around(abs(x) ** p, 0.0)))
    return total ** (1.0 / p)


def _over(x: Tensor) -> list[int]:
    return list(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    """Means of channels."""
    return api.mean(x, _over(x), True)


@operator("GlobalMaxPool")
def _global_max_pool(x: Tensor) -> Tensor:
    return api.amax(x, _over(x), True)


@operator("GlobalLpPool")
def _global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return api.sum(abs(x) ** p, _over(x), True) ** (1.0 / p)


@operator("MaxUnpool", numbers=(2,))
def _max_unpool(
    x: Tensor, places: Tensor, output_shape: Any = None, *, kernel_shape: Any, pads: Any = None,
    strides: Any = None,
) -> Tensor:  # fmt: skip
    n = len(kernel_shape)
    strides, pads = strides or [1] * n, pads or [0] * (2 * n)
    inferred = list(x.shape[:2]) + [
        (have - 1) * s + k - pads[i] - pads[n + i]
        for i, (have, s, k) in enumerate(zip(x.shape[2:], strides, kernel_shape))
    ]
    sizes = inferred if output_shape is None else output_shape.list()
    check_count(math.prod(inferred))
    check_count(math.prod(sizes))
    flat = api.zeros((math.prod(inferred),), dtype=x.dtype)
    out = flat.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(inferred)
    return padded(out, [0] * n + [s - i for s, i in zip(sizes[2:], inferred[2:])])


@operator("RoiAlign")
def _roi_align(
    x: Tensor, rois: Tensor, batch: Tensor, *, coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg", output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0, node: Any,
) -> Tensor:  # fmt: skip
    """Samples within regions (He et al. 2017), by bilinear interpolation."""
    check_count(math.prod(rois.shape[:1]) * x.shape[1] * output_height * output_width, 1 << 28)
    check_count(sampling_ratio, 1 << 10)
    half = 0.5 if coordinate_transformation_mode == "half_pixel" and node.version >= 16 else 0.0
    out = []
    for box, index in zip(rois.numpy() * spatial_scale - half, batch.numpy()):
        left, top, right, bottom = (float(v) for v in box)
        width, height = right - left, bottom - top
        if not half:
            width, height = max(width, 1.0), max(height, 1.0)
        rows, weights_y, each_y = _samples(top, height, output_height, sampling_ratio, x.shape[2])
        columns, weights_x, each_x = _samples(left, width, output_width, sampling_ratio, x.shape[3])
        image = x[int(index)]
        found: Any = 0.0
        corners = []
        for (r, wy), (c, wx) in itertools.product(zip(rows, weights_y), zip(columns, weights_x)):
            weight = api.tensor(np.outer(wy, wx).astype(np.float32))
            corners.append(image[:, api.tensor(r)][:, :, api.tensor(c)] * weight)
        if mode == "max":
            found = corners[0]
            for corner in corners[1:]:
                found = api.maximum(found, corner)
        else:
            found = sum(corners)
        grid = found.reshape(-1, output_height, each_y, output_width, each_x)
        out.append(grid.mean((2, 4)) if mode == "avg" else grid.amax((2, 4)))
    return api.stack(out) if out else api.zeros((0, x.shape[1], output_height, output_width))


def _samples(start: float, length: float, bins: int, ratio: int, n: int) -> tuple[Any, Any, int]:
    """Neighbours of the samples along an axis, their weights, and samples of a bin."""
    each = ratio if ratio > 0 else max(1, math.ceil(length / bins))
    at = start + (np.arange(bins * each) + 0.5) * (length / bins / each)
    outside = (at < -1.0) | (at > n)
    at = at.clip(0, None)
    low = np.minimum(np.floor(at), n - 1).astype(np.int64)
    high = np.minimum(low + 1, n - 1)
    part = np.where(low >= n - 1, 0.0, at - low)
    keep = (~outside).astype(np.float64)
    return (low, high), ((1 - part) * keep, part * keep), each


@operator("MaxRoiPool")
def _max_roi_pool(
    x: Tensor, rois: Tensor, *, pooled_shape: Any, spatial_scale: float = 1.0
) -> Tensor:
    rows, columns = pooled_shape
    check_count(rows * columns, 1 << 20)
    out = []
    for roi in rois.numpy():
        left, top, right, bottom = (round(float(v) * spatial_scale) for v in roi[1:])
        image = x[int(roi[0])]
        high, wide = max(bottom - top + 1, 1), max(right - left + 1, 1)
        cells = []
        for i, j in itertools.product(range(rows), range(columns)):
            y = _bin(i, rows, high, top, x.shape[2])
            z = _bin(j, columns, wide, left, x.shape[3])
            part = image[:, y, z]
            empty = part.shape[1] == 0 or part.shape[2] == 0
            cells.append(api.zeros((x.shape[1],)) if empty else part.amax((1, 2)))
        out.append(api.stack(cells, 1).reshape(-1, rows, columns))
    return api.stack(out)


def _bin(i: int, bins: int, length: int, start: int, n: int) -> slice:
    first = min(max(math.floor(i * length / bins) + start, 0), n)
    return slice(first, min(max(math.ceil((i + 1) * length / bins) + start, 0), n))
