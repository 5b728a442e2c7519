"""Convolution on devices: by the platform's library where that has a way, else windows as columns,
one launch, and products of matrices, batched. Columns of a whole batch may be much memory, so that
some samples at a time are unfolded. All sums have a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from disttrain.backends.device.raw import RawArray

from ...backends.device.codes.columns import numbers
from ...backends.device.codes.table import COLUMNS, UNCOLUMNS
from ...backends.device.platform import Platform
from ...backends.device.structs import C_STORED
from ...core.types.wide import is_half
from ..primitives import elementwise as el
from ..primitives import windows as win
from .table import F32, converted, on_device

_COLUMNS = 1 << 28  # bytes of columns at a time
_FEW_GROUPS = 4  # that are multiplied one after the other


def _five(x: RawArray) -> Any:
    """Images (N, C, ...) of one to three dimensions as (N, C, D, H, W)."""
    ones = (1,) * (5 - x.ndim)
    return x.reshape((*x.shape[:2], *ones, *x.shape[2:]))


def _parts(x: RawArray, n: int, rows: int, places: int) -> Iterator[slice]:
    """As many of ``n`` samples at a time as memory allows columns of."""
    step = max(1, _COLUMNS // max(rows * places * x.dtype.itemsize, 1))
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def _unfolded(platform: Platform, x: RawArray, rows: int, places: int, given: tuple) -> Any:
    """Columns (N, rows, places) of images (N, C, D, H, W); ``given``: as the codes take it."""
    if given[:3] == given[6:9] == (1, 1, 1) and not any(given[9:12]):
        return x.reshape(len(x), rows, places)
    out = platform.empty((len(x), rows, places), x.dtype)
    platform.run_code(COLUMNS, (x, out, *given))
    return out


def _product(
    platform: Platform, a: RawArray, b: RawArray, out: RawArray, add: bool = False
) -> None:
    """``a`` (groups, m, k) by each of ``b`` (N, groups, k, n) into ``out`` (N, groups, m, n)."""
    if len(a) > _FEW_GROUPS:  # one batch, for which the library wants ``a`` as often as ``b``
        platform.matmul(a, b, out, add=add)
        return
    for i in range(len(a)):
        platform.matmul(a[i], b[:, i], out[:, i], add=add)


@on_device("conv")
def _conv(
    platform: Platform,
    x: RawArray,
    w: RawArray,
    b: RawArray | None = None,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    groups: int,
) -> Any:
    kernel, n, channels = w.shape[2:], x.shape[0], w.shape[0]
    out = win.out_sizes(x.shape[2:], kernel, stride, padding, dilation)
    whole = platform.empty((n, channels, *out), x.dtype)
    if platform.convolve("forward", x, w, whole, stride, padding, dilation):
        if b is None:
            return whole
        return el.add.on_device(platform, whole, b.reshape(-1, *(1,) * len(out)))
    places, each, rows = math.prod(out), channels // groups, w.shape[1] * math.prod(kernel)
    y = whole.reshape(n, groups, each, places)
    if b is not None:
        y[...] = b.reshape(groups, each, 1)
    weights, images = w.reshape(groups, each, rows), _five(x)
    given = numbers(kernel, out, stride, padding, dilation)
    for part in _parts(x, n, groups * rows, places):
        columns = _unfolded(platform, images[part], groups * rows, places, given)
        columns = columns.reshape(-1, groups, rows, places)
        _product(platform, weights, columns, y[part], add=b is not None)
    return whole


@on_device("conv_input_grad")
def _input_grad(
    platform: Platform, g: RawArray, w: RawArray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int, size: tuple,
) -> Any:  # fmt: skip
    kernel, out, n, each = w.shape[2:], g.shape[2:], g.shape[0], w.shape[1]
    whole = platform.empty((n, groups * each, *size), g.dtype)
    if platform.convolve("input_grad", whole, w, g, stride, padding, dilation):
        return whole
    places, count = math.prod(out), math.prod(kernel)
    weights = w.reshape(groups, -1, each * count).swapaxes(-1, -2)
    flat = g.reshape(n, groups, -1, places)
    for part in _parts(g, n, groups * each * count, places):
        columns = platform.empty((part.stop - part.start, groups, each * count, places), g.dtype)
        _product(platform, weights, flat[part], columns)
        columns = columns.reshape(-1, groups * each * count, places)
        _fold_into(platform, columns, whole[part], (kernel, out, stride, padding, dilation))
    return whole


@on_device("conv_weight_grad")
def _weight_grad(
    platform: Platform, g: RawArray, x: RawArray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int, kernel: tuple,
) -> Any:  # fmt: skip
    """One product over all places of the samples at hand, added up in float32 or wider."""
    n, channels = g.shape[:2]
    out, kind, each = g.shape[2:], g.dtype, x.shape[1] // groups
    whole = platform.empty((channels, each, *kernel), kind)
    if platform.convolve("weight_grad", x, whole, g, stride, padding, dilation):
        return whole
    places, rows, per = math.prod(out), each * math.prod(kernel), channels // groups
    total = platform.xp.zeros((groups, per, rows), F32 if is_half(kind) else kind)
    for part in _parts(x, n, groups * rows, places):
        columns = _side_by_side(platform, x[part], groups * rows, out, kernel, stride, padding,
                                dilation).reshape(groups, rows, -1)  # fmt: skip
        flat = g[part].reshape(-1, channels, places).swapaxes(0, 1).reshape(groups, per, -1)
        platform.matmul(flat, columns.swapaxes(-1, -2), total, add=True)
    return converted(platform, total, kind).reshape(whole.shape)


def _side_by_side(
    platform: Platform, x: RawArray, rows: int, out: tuple, kernel: tuple, stride: tuple,
    padding: tuple, dilation: tuple,
) -> Any:  # fmt: skip
    """Columns (rows, N * places). Where there is a dimension to spare, the samples are it."""
    n, places = len(x), math.prod(out)
    if len(out) == 3:
        given = numbers(kernel, out, stride, padding, dilation)
        return _unfolded(platform, x, rows, places, given).swapaxes(0, 1).reshape(rows, -1)
    space = (1,) * (2 - len(out))
    images = x.swapaxes(0, 1).reshape((1, x.shape[1], n, *space, *x.shape[2:]))
    given = numbers(
        (1, *space, *kernel), (n, *space, *out), (1, *space, *stride),
        (0, *(0,) * len(space), *padding), (1, *space, *dilation),
    )  # fmt: skip
    made = platform.empty((1, rows, n * places), x.dtype)
    platform.run_code(COLUMNS, (images, made, *given))
    return made[0]


@on_device("im2col")
def _unfold(
    platform: Platform, x: RawArray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> Any:
    out = win.out_sizes(x.shape[2:], kernel, stride, padding, dilation)
    shape = (x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out))
    made = platform.empty(shape, x.dtype)
    given = numbers(kernel, out, stride, padding, dilation)
    platform.run_code(COLUMNS, (_five(x), made, *given))
    return made


@on_device("col2im")
def _fold(
    platform: Platform,
    columns: RawArray,
    size: tuple,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
) -> Any:
    out = win.out_sizes(size, kernel, stride, padding, dilation)
    channels = columns.shape[1] // math.prod(kernel)
    whole = platform.empty((columns.shape[0], channels, *size), columns.dtype)
    columns = platform.xp.ascontiguousarray(columns)
    _fold_into(platform, columns, whole, (kernel, out, stride, padding, dilation))
    return whole


def _fold_into(platform: Platform, columns: RawArray, whole: RawArray, how: tuple) -> None:
    """Write the sum of what lies on each place of ``whole`` (N, C, ...)."""
    if columns.dtype.name in C_STORED:
        platform.run_code(UNCOLUMNS, (columns, _five(whole), *numbers(*how)))
        return
    kernel, out, stride, padding, dilation = how  # complex numbers
    n, channels, *size = whole.shape
    shape = tuple(s + 2 * p for s, p in zip(size, padding, strict=True))
    full = platform.xp.zeros((n, channels, *shape), columns.dtype)
    columns = columns.reshape(n, channels, math.prod(kernel), *out)
    for i, (_, where) in enumerate(win.taps(kernel, out, stride, dilation)):
        region = full[(Ellipsis, *where)]
        region += columns[:, :, i]
    whole[...] = full[win.inside(tuple(size), padding)]
