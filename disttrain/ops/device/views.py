"""Views of device memory, and what rearranges it. Views are the array module's own, with strides;
nothing is copied that the host would not copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ..primitives import aliases
from ..primitives import elementwise as el
from ..primitives import views as prim
from .segments import add_rows
from .table import cast, on_device


def strided(platform: Platform, a: RawArray, shape: tuple, strides: tuple) -> Any:
    """A view of ``a`` with these strides, in bytes."""
    return platform.xp.lib.stride_tricks.as_strided(a, shape, strides)


# --- the same elements -------------------------------------------------------------------------
@on_device("expand")
def _expand(platform: Platform, a: RawArray, shape: tuple) -> Any:
    return platform.xp.broadcast_to(a, shape)


@on_device("diagonal")
def _diagonal(platform: Platform, a: RawArray, offset: int, dim1: int, dim2: int) -> Any:
    return a.diagonal(offset, dim1, dim2)


@on_device("unfold")
def _unfold(platform: Platform, a: RawArray, dim: int, size: int, step: int) -> Any:
    if not a.ndim:
        return a.reshape(1)[:size]
    count = (a.shape[dim] - size) // step + 1
    shape = (*a.shape[:dim], count, *a.shape[dim + 1 :], size)
    along = a.strides[dim]
    return strided(
        platform, a, shape, (*a.strides[:dim], along * step, *a.strides[dim + 1 :], along)
    )


@on_device("view_as_real")
def _view_as_real(platform: Platform, a: RawArray) -> Any:
    part = a.real
    return strided(platform, part, (*a.shape, 2), (*a.strides, part.dtype.itemsize))


@on_device("view_as_complex")
def _view_as_complex(platform: Platform, a: RawArray) -> Any:
    if a.dtype.kind != "f" or a.dtype.itemsize < 4:
        raise TypeError(f"pairs of float32 or float64 are needed, not {a.dtype}")
    item = a.dtype.itemsize
    if a.strides[-1] != item or any(s % (2 * item) for s in a.strides[:-1]):
        a = platform.xp.ascontiguousarray(a)
    return a.view(np.dtype(f"c{item * 2}"))[..., 0]


@on_device("imag")
def _imag(platform: Platform, a: RawArray) -> Any:
    return a.imag if a.dtype.kind == "c" else platform.xp.zeros(a.shape, a.dtype)


# --- strides of a storage ----------------------------------------------------------------------
def layout_of(platform: Platform, a: RawArray) -> aliases.Layout:
    """How ``a`` lies in the array that owns its memory."""
    owner, item = platform.owner(a), a.dtype.itemsize
    first = platform.address(a) - platform.address(owner)
    total = owner.size * owner.dtype.itemsize // item
    return aliases.Layout(first // item, tuple(s // item for s in a.strides), total)


def _whole(platform: Platform, a: RawArray) -> Any:
    """All the memory of the owner of ``a``, as a row of elements of its type."""
    owner = platform.owner(a)
    flat = strided(platform, owner, (owner.size,), (owner.dtype.itemsize,))
    return flat if owner.dtype == a.dtype else flat.view(a.dtype)


def _placed(platform: Platform, cells: RawArray, size: tuple, stride: tuple, offset: int) -> Any:
    item = cells.dtype.itemsize
    if 0 in size:
        return platform.empty(size, cells.dtype)
    return strided(platform, cells[offset:], size, tuple(s * item for s in stride))


def _cells(platform: Platform, a: RawArray, layout: aliases.Layout) -> Any:
    if layout_of(platform, a) == layout:
        return _whole(platform, a)[: layout.total]
    cells = platform.xp.zeros(layout.total, a.dtype)
    _placed(platform, cells, a.shape, layout.stride, layout.first)[...] = a
    return cells


@on_device("as_strided")
def _as_strided(
    platform: Platform, a: RawArray, size: tuple, stride: tuple, offset: int, layout: aliases.Layout
) -> Any:
    return _placed(platform, _cells(platform, a, layout), size, stride, offset)


@on_device("unstride")
def _unstride(
    platform: Platform,
    g: RawArray,
    size: tuple,
    stride: tuple,
    offset: int,
    layout: aliases.Layout,
    shape: tuple,
) -> Any:
    """What falls on one cell is added up in a fixed order; cells that several elements share give
    equal parts to them."""
    xp, total = platform.xp, layout.total
    cells_of = _placed(platform, xp.arange(total), size, stride, offset).reshape(-1)
    cells = add_rows(platform, g.reshape(-1, 1), cells_of, total).reshape(-1)
    out = _placed(platform, cells, shape, layout.stride, layout.first).copy()
    if any(s == 0 and n > 1 for s, n in zip(layout.stride, shape, strict=True)):
        own = _placed(platform, xp.arange(total), shape, layout.stride, layout.first).reshape(-1)
        shared = add_rows(platform, xp.ones((own.size, 1), np.int64), own, total)
        shared = cast(platform, shared.reshape(-1)[own].reshape(shape), g.dtype)
        out = el.div.on_device(platform, out, shared)
    return out


# --- new memory --------------------------------------------------------------------------------
@on_device("embed")
def _embed(platform: Platform, a: RawArray, index: tuple, shape: tuple) -> Any:
    out = platform.xp.zeros(shape, a.dtype)
    out[index] = a
    return out


@on_device("diagonal_embed")
def _diagonal_embed(
    platform: Platform, a: RawArray, offset: int, dim1: int, dim2: int, shape: tuple
) -> Any:
    out = platform.xp.zeros(shape, a.dtype)
    out.diagonal(offset, dim1, dim2)[...] = a
    return out


@on_device("fold_windows")
def _fold_windows(
    platform: Platform, g: RawArray, dim: int, size: int, step: int, shape: tuple
) -> Any:
    """One kernel position after the other: a fixed order."""
    if not shape:
        return g.sum().reshape(())
    out = platform.xp.zeros(shape, g.dtype)
    ahead = (slice(None),) * dim
    for i in range(size):
        region = out[(*ahead, slice(i, i + (g.shape[dim] - 1) * step + 1, step))]
        region += g[..., i]
    return out


@on_device("flip")
def _flip(platform: Platform, a: RawArray, dims: tuple) -> Any:
    turned = tuple(slice(None, None, -1) if d in dims else slice(None) for d in range(a.ndim))
    return platform.xp.ascontiguousarray(a[turned]) if dims else a.copy()


@on_device("roll")
def _roll(platform: Platform, a: RawArray, shifts: tuple, dims: tuple) -> Any:
    """Dimension by dimension in two parts."""
    for shift, dim in zip(shifts, dims, strict=True):
        n = a.shape[dim]
        k = shift % n if n else 0
        if k:
            ahead = (slice(None),) * dim
            a = platform.xp.concatenate(
                (a[(*ahead, slice(n - k, n))], a[(*ahead, slice(0, n - k))]), dim
            )
    return a.copy() if not any(shifts) or not a.size else a


@on_device("tri")
def _tri(platform: Platform, a: RawArray, k: int, upper: bool) -> Any:
    rows, columns = a.shape[-2:]
    lower = platform.xp.tri(rows, columns, k - 1 if upper else k, bool)
    if a.dtype.kind == "V" or a.dtype.kind == "f":
        pair = (0.0, a) if upper else (a, 0.0)
        return el.where.on_device(platform, lower, *pair)
    zero = a.dtype.type(0)
    return platform.xp.where(lower, *((zero, a) if upper else (a, zero)))


@on_device("pad_constant")
def _pad(platform: Platform, a: RawArray, widths: tuple, value: float = 0.0) -> Any:
    shape = tuple(n + lo + hi for n, (lo, hi) in zip(a.shape, widths, strict=True))
    out = platform.xp.full(shape, value, a.dtype)
    out[prim._inside(widths, shape)] = a
    return out


@on_device("cat")
def _cat(platform: Platform, *arrays: RawArray, dim: int, sizes: tuple) -> Any:
    return platform.xp.concatenate(arrays, dim)
