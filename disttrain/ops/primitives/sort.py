"""Primitives that find places by order: argsort, and the first of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.fused.top import top
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ..declare import primitive
from .views import Batched, up


# --- places ------------------------------------------------------------------------------------
def sortable(a: Any) -> Any:
    """``a`` in a type that numpy sorts."""
    return a.astype(np.float32) if a.dtype.kind == "V" else a


_MANY = 512  # elements from which it pays to sort keys in place of places


def _keys(a: Any, dim: int, descending: bool) -> Any:
    """Whole numbers, all different, in the order of the elements of ``a`` along ``dim``, which is
    the last one here; the lower half of each is its place. None for types that are too wide, and
    few elements. (Numpy sorts them by vectors, which it does not do with places.)"""
    kind, n = a.dtype, a.shape[dim]
    if a.size < _MANY or n >= 1 << 32 or kind.itemsize > 4 or kind.kind not in "fiub":
        return None
    a = np.moveaxis(a, dim, -1)
    if kind.kind == "f":
        wide = a.astype(np.float32) + np.float32(0)  # (0.0 for -0.0: they are equal)
        bits = wide.view(np.uint32)
        order = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
        order[np.isnan(wide)] = ~np.uint32(0)
    elif kind.kind == "i":
        order = a.astype(np.int32).view(np.uint32) ^ np.uint32(1 << 31)
    else:
        order = a.astype(np.uint32)
    keys = (~order if descending else order).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(n, dtype=np.uint64)
    return keys


def _places(keys: Any, dim: int) -> Any:
    """The places that sorted keys stand for, along ``dim`` again."""
    return np.moveaxis((keys & np.uint64(0xFFFFFFFF)).astype(np.int64), -1, dim)


def _argsort(a: Any, dim: int, descending: bool) -> Any:
    """Equal elements keep their order, in both directions; nan counts as the largest."""
    a = sortable(a)
    keys = _keys(a, dim, descending)
    if keys is not None:
        keys.sort(axis=-1)
        return _places(keys, dim)
    if not descending:
        return np.argsort(a, axis=dim, kind="stable")
    back = np.flip(a, dim)
    order = np.argsort(back, axis=dim, kind="stable")
    return a.shape[dim] - 1 - np.flip(order, dim)


argsort_: Primitive = primitive(
    "argsort", _argsort, "a", shape=lambda a, dim, descending: (a.shape, np.dtype(np.int64)),
    batch=Batched(lambda: argsort_, up("dim")),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"dim": 1, "descending": True})],
)  # fmt: skip


def _place_of(a: Any, k: int, dim: int) -> Any:
    """What ``_argsort`` has at ``k``; the dimension stays, of size 1."""
    a = sortable(a)
    keys = _keys(a, dim, False)
    if keys is None:
        return np.take(_argsort(a, dim, False), [k], axis=dim)
    keys.partition(k, axis=-1)
    return _places(keys[..., k : k + 1], dim)


def _median_places(a: Any, dim: int) -> Any:
    """Where the lower median along ``dim`` is, or the first nan; the dimension stays, of size 1."""
    places = _place_of(a, (a.shape[dim] - 1) // 2, dim)
    if a.dtype.kind in "fV":
        odd = np.isnan(a)
        if odd.any():
            first = odd.argmax(dim, keepdims=True)
            return np.where(odd.any(dim, keepdims=True), first, places)
    return places


median_places: Primitive = primitive(
    "median_places", _median_places, "a",
    shape=lambda a, dim: ((*a.shape[:dim], 1, *a.shape[dim + 1 :]), np.dtype(np.int64)),
    batch=Batched(lambda: median_places, up("dim")),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"dim": 1})],
)  # fmt: skip


def _candidates(rows: Value, k: int, largest: bool) -> Any:
    """Places along the last axis among which the ``k`` best are, ascending: columns of the rows,
    folded, whose best element is one of the ``k`` best of all columns. (nan is the largest.)"""
    n = rows.shape[-1]
    height = max(2, int((n / k) ** 0.5))
    width = n // height
    folded = rows[..., : height * width].reshape(*rows.shape[:-1], height, width)
    heads = folded.max(axis=-2) if largest else np.fmin.reduce(folded, axis=-2)
    columns = _top_columns(heads, k, largest)
    places = columns[..., None, :] + np.arange(0, height * width, width)[:, None]
    places = places.reshape(*rows.shape[:-1], height * k)
    rest = np.arange(height * width, n)
    places = np.concatenate([places, np.broadcast_to(rest, (*rows.shape[:-1], len(rest)))], -1)
    places.sort(axis=-1)
    return places


def _top_columns(heads: Any, k: int, largest: bool) -> Any:
    width = heads.shape[-1]
    if largest:
        return np.argpartition(heads, width - k, axis=-1)[..., width - k :]
    return np.argpartition(heads, k - 1, axis=-1)[..., :k]


def _top_places(a: Any, k: int, dim: int, largest: bool) -> Any:
    """The places of the ``k`` largest (or smallest) along ``dim``, best first."""
    n = a.shape[dim]
    found = top(sortable(a), k, dim, largest)
    if found is not None:
        return found
    if 4 * k >= n or n < 64 or k == 0:
        return np.take(_argsort(a, dim, largest), range(k), axis=dim)
    a = sortable(a)
    rows = np.moveaxis(a, dim, -1)
    among = _candidates(rows, k, largest) if a.size >= _MANY and k <= n // 64 else None
    if among is not None:
        best = _top_places(np.take_along_axis(rows, among, -1), k, a.ndim - 1, largest)
        return np.moveaxis(np.take_along_axis(among, best, -1), -1, dim)
    a = rows
    if largest:
        found = np.argpartition(a, n - k, axis=-1)[..., n - k :]
    else:
        found = np.argpartition(a, k - 1, axis=-1)[..., :k]
    found.sort(axis=-1)
    order = _argsort(np.take_along_axis(a, found, -1), a.ndim - 1, largest)
    return np.moveaxis(np.take_along_axis(found, order, -1), -1, dim)


def _top_shape(a: Shaped, k: int, dim: int, largest: bool) -> tuple:
    return (*a.shape[:dim], k, *a.shape[dim + 1 :]), np.dtype(np.int64)


top_places: Primitive = primitive(
    "top_places", _top_places, "a", shape=_top_shape, batch=Batched(lambda: top_places, up("dim")),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"k": 2, "dim": 1, "largest": True})],
)  # fmt: skip
