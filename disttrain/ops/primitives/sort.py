"""Primitives that find places by order: argsort, and the first of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..declare import primitive
from .batching import front


# --- places ------------------------------------------------------------------------------------
def sortable(a: np.ndarray) -> Any:
    """``a`` in a type that numpy sorts."""
    return a.astype(np.float32) if a.dtype.kind == "V" else a


def _argsort(a: np.ndarray, dim: int, descending: bool) -> Any:
    """Equal elements keep their order, in both directions; nan counts as the largest."""
    a = sortable(a)
    if not descending:
        return np.argsort(a, axis=dim, kind="stable")
    back = np.flip(a, dim)
    order = np.argsort(back, axis=dim, kind="stable")
    return a.shape[dim] - 1 - np.flip(order, dim)


def _dim_batch(args: tuple, dims: tuple, params: dict, size: int, prim: Any) -> tuple:
    return prim(front(args[0], dims[0]), **{**params, "dim": params["dim"] + 1}), 0


argsort_ = primitive(
    "argsort", _argsort, "a", shape=lambda a, dim, descending: (a.shape, np.dtype(np.int64)),
    batch=lambda *a: _dim_batch(*a, argsort_),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"dim": 1, "descending": True})],
)  # fmt: skip


def _median_places(a: np.ndarray, dim: int) -> Any:
    """Where the lower median along ``dim`` is, or the first nan; the dimension stays, of size 1."""
    n = a.shape[dim]
    places = np.take(_argsort(a, dim, False), [(n - 1) // 2], axis=dim)
    if a.dtype.kind in "fV":
        odd = np.isnan(a)
        if odd.any():
            first = odd.argmax(dim, keepdims=True)
            return np.where(odd.any(dim, keepdims=True), first, places)
    return places


median_places = primitive(
    "median_places", _median_places, "a",
    shape=lambda a, dim: ((*a.shape[:dim], 1, *a.shape[dim + 1 :]), np.dtype(np.int64)),
    batch=lambda *a: _dim_batch(*a, median_places),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"dim": 1})],
)  # fmt: skip


def _top_places(a: np.ndarray, k: int, dim: int, largest: bool) -> Any:
    """The places of the ``k`` largest (or smallest) along ``dim``, best first."""
    n = a.shape[dim]
    if 4 * k >= n or n < 64:
        return np.take(_argsort(a, dim, largest), range(k), axis=dim)
    a = np.moveaxis(sortable(a), dim, -1)
    if largest:
        found = np.argpartition(a, n - k, axis=-1)[..., n - k :]
    else:
        found = np.argpartition(a, k - 1, axis=-1)[..., :k]
    found.sort(axis=-1)
    order = _argsort(np.take_along_axis(a, found, -1), a.ndim - 1, largest)
    return np.moveaxis(np.take_along_axis(found, order, -1), -1, dim)


def _top_shape(a: Any, k: int, dim: int, largest: bool) -> tuple:
    return (*a.shape[:dim], k, *a.shape[dim + 1 :]), np.dtype(np.int64)


top_places = primitive(
    "top_places", _top_places, "a", shape=_top_shape, batch=lambda *a: _dim_batch(*a, top_places),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"k": 2, "dim": 1, "largest": True})],
)  # fmt: skip
