"""Convolutions, and the padding that operators with windows share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....errors import ShapeError
from ....nn import functional as F
from ....ops import api
from ..table import operator
from .elementwise import check_count
from .reductions import plain
from .shapes import pad_axis

_CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def same_pads(sizes: Any, kernel: Any, strides: Any, dilations: Any, upper: bool) -> list[Any]:
    """Paddings before and after each axis with which a result has ceil(size / stride) elements."""
    first, last = [], []
    for n, k, s, d in zip(sizes, kernel, strides, dilations):
        total = (-(-n // s) - 1) * s + (k - 1) * d + 1 - n
        total = total if total > 0 else 0
        small, large = total // 2, total - total // 2
        first.append(small if upper else large)
        last.append(large if upper else small)
    return first + last


def paddings(
    x: Tensor, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str
) -> list[Any]:
    """What ``pads`` and ``auto_pad`` say together."""
    n = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return same_pads(x.shape[2:], kernel, strides, dilations, auto_pad == "SAME_UPPER")
    if auto_pad == "VALID" or pads is None:
        return [0] * (2 * n)
    if auto_pad not in ("NOTSET", ""):
        raise ShapeError(f"auto_pad {auto_pad!r}; known are NOTSET, SAME_UPPER, SAME_LOWER, VALID")
    if len(pads) != 2 * n or any(p < 0 for p in pads):
        raise ShapeError(f"pads {tuple(pads)}; needed are {2 * n} numbers of 0 or more")
    return list(pads)


def padded(x: Tensor, pads: list[Any], fill: float = 0.0) -> Tensor:
    """``x`` with ``fill`` around its last axes."""
    n = len(pads) // 2
    for i in range(n):
        x = pad_axis(x, x.ndim - n + i, pads[i], pads[n + i], "constant", fill)
    return x


def split_even(x: Tensor, pads: list[Any], fill: float = 0.0) -> tuple[Tensor, list[Any]]:
    """An equal padding on both sides for a function that takes one, the rest being put around."""
    n = len(pads) // 2
    if all(type(p) is int for p in pads) and pads[:n] == pads[n:]:
        return x, pads[:n]
    return padded(x, pads, fill), [0] * n


def spatial(name: str, table: dict[int, Any], x: Tensor) -> Any:
    """The function for as many axes as ``x`` has after the first two."""
    if x.ndim - 2 not in table:
        raise ShapeError(f"{name} of {x.ndim} dimensions; there are those of 3 to 5")
    return table[x.ndim - 2]


@operator("Conv")
def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution, with padding on either side."""
    n = x.ndim - 2
    kernel = w.shape[2:]
    strides, dilations = list(strides or [1] * n), list(dilations or [1] * n)
    x, padding = split_even(x, paddings(x, kernel, strides, dilations, pads, auto_pad))
    function = spatial("convolutions", _CONVOLVE, x)
    return function(x, w, b, strides, padding, dilations, group)


@operator("ConvTranspose")
def _conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Any = None, group: int = 1, kernel_shape: Any = None, output_padding: Any = None,
    output_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    n = x.ndim - 2
    strides, dilations = list(strides or [1] * n), list(dilations or [1] * n)
    more = list(output_padding or [0] * n)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations)]
    full = [(i - 1) * s + r for i, s, r in zip(x.shape[2:], strides, reach)]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = list(output_shape or [i * s for i, s in zip(x.shape[2:], strides)])[-n:]
        total = [f + m - o for f, m, o in zip(full, more, wanted)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if auto_pad == "SAME_UPPER" else large + small
    elif pads is None:
        pads = [0] * (2 * n)
    check_count(
        x.shape[0] * w.shape[1] * group * math.prod([f + abs(m) for f, m in zip(full, more)])
    )
    function = spatial("transposed convolutions", _TRANSPOSED, x)
    out = function(x, w, None, strides, 0, 0, group, dilations)
    for i in range(n):
        out = _cut(out, i + 2, pads[i], full[i] + more[i] - pads[n + i])
    return out if b is None else out + b.reshape(1, -1, *[1] * n)


def _cut(x: Tensor, axis: int, start: Any, end: Any) -> Tensor:
    """Elements ``start`` to ``end``; outside of ``x`` they are 0."""
    n = x.shape[axis]
    check_count(math.prod(x.shape[:axis]) * (end - start))
    before, after = max(0, -start), max(0, end - n)
    x = pad_axis(x, axis, before, after, "constant")
    return api.narrow(x, axis, start + before, end - start)


@operator("DeformConv")
def _deform_conv(
    x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None, *,
    dilations: Any = None, group: int = 1, kernel_shape: Any = None, offset_group: int = 1,
    pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    """Over two axes: values between elements by bilinear interpolation (Dai et al. 2017)."""
    n, c, height, width = x.shape
    (kh, kw), (oh, ow) = w.shape[2:], offset.shape[2:]
    (sh, sw), (dh, dw) = strides or (1, 1), dilations or (1, 1)
    top, left = (pads or (0, 0, 0, 0))[:2]
    shift = offset.reshape(n, offset_group, kh * kw, 2, oh, ow)
    rows = np.arange(kh).repeat(kw)[:, None, None] * dh + np.arange(oh)[None, :, None] * sh - top
    columns = (
        np.tile(np.arange(kw), kh)[:, None, None] * dw + np.arange(ow)[None, None, :] * sw - left
    )
    y = shift[:, :, :, 0] + api.tensor(rows.astype(np.float32))
    z = shift[:, :, :, 1] + api.tensor(columns.astype(np.float32))
    grid = api.stack([(2 * z + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    parts = x.reshape(n * offset_group, c // offset_group, height, width)
    grid = grid.reshape(n * offset_group, kh * kw * oh, ow, 2)
    values = F.grid_sample(parts, grid, align_corners=False)
    values = values.reshape(n, offset_group, c // offset_group, kh * kw, oh, ow)
    if mask is not None:
        values = values * mask.reshape(n, offset_group, 1, kh * kw, oh, ow)
    columns_ = values.reshape(n, group, c // group * kh * kw, oh * ow)
    weights = w.reshape(group, w.shape[0] // group, -1)
    out = api.matmul(weights, columns_).reshape(n, w.shape[0], oh, ow)
    return out if b is None else out + b.reshape(1, -1, 1, 1)


@operator("Col2Im", numbers=(1, 2))
def _col2im(
    x: Tensor, image_shape: Any, block_shape: Any, *, dilations: Any = None, pads: Any = None,
    strides: Any = None,
) -> Tensor:  # fmt: skip
    sizes, block = plain(image_shape) or [], plain(block_shape) or []
    n = len(sizes)
    strides, dilations = list(strides or [1] * n), list(dilations or [1] * n)
    pads = list(pads or [0] * (2 * n))
    count = math.prod(block)
    check_count(count, 1 << 16)
    if n not in _TRANSPOSED:
        raise ShapeError(f"columns of {n} axes; there are those of 1 to 3")
    channels = x.shape[1] // count
    full = [s + pads[i] + pads[n + i] for i, s in enumerate(sizes)]
    check_count(x.shape[0] * channels * math.prod(full))
    one_hot = api.eye(count, dtype=x.dtype).reshape(count, 1, *block)
    one_hot = one_hot.repeat(channels, *[1] * (n + 1))
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, block)]
    steps = [(f - r) // s + 1 for f, r, s in zip(full, reach, strides)]
    x = x.reshape(x.shape[0], x.shape[1], *steps)
    out = _TRANSPOSED[n](x, one_hot, None, strides, 0, 0, channels, dilations)
    for i in range(n):
        out = _cut(out, i + 2, pads[i], pads[i] + sizes[i])
    return out
