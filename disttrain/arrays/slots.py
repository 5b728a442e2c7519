"""Places that are rows of indices [..., depth] into the first dimensions of a tensor: read, set,
added to; and sums and other reductions of rows that have one number (segments)."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..core.types.dtypes import finfo, iinfo
from ..errors import DimError
from ..ops import api as ops


def gather_nd(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """What lies at each row of ``indices``."""
    if batch_dims:
        pairs = zip(x.unbind(0), indices.unbind(0), strict=True)
        return ops.stack([gather_nd(p, i, batch_dims - 1) for p, i in pairs])
    return x[tuple(indices.long().unbind(-1))]


def put_nd(x: Tensor, indices: Tensor, updates: Tensor, how: str = "update") -> Tensor:
    """``x`` with ``updates`` at ``indices``: set ("update"), or joined to what is there ("add",
    "sub", "amin", "amax")."""
    depth, places = indices.shape[-1], tuple(indices.long().unbind(-1))
    for d, place in enumerate(places):
        if bool(((place < 0) | (place >= x.shape[d])).any()):
            raise DimError(f"indices {indices.tolist()} do not index into shape {list(x.shape)}")
    if how in ("update", "add", "sub"):
        rows = -updates if how == "sub" else updates
        return ops.index_put(x, places, rows, accumulate=how != "update")
    inner = x.shape[depth:]
    line = ops.zeros_like(places[0])
    for place, n in zip(places, x.shape[:depth], strict=True):
        line = line * n + place
    wide = line.reshape(-1, *[1] * len(inner)).expand(line.numel(), *inner)
    flat = x.reshape(-1, *inner)
    return flat.scatter_reduce(0, wide, updates.reshape(-1, *inner), how).reshape(x.shape)


def scatter_nd(indices: Tensor, updates: Tensor, shape: Any) -> Tensor:
    """Zeros in ``shape``, with ``updates`` added at ``indices``."""
    return put_nd(ops.zeros([int(n) for n in shape], dtype=updates.dtype), indices, updates, "add")


def take_rows(x: Tensor, indices: Tensor, dim: int = 0, batch_dims: int = 0) -> Tensor:
    """``x`` at ``indices`` along ``dim``, whose dimensions stand in its place; the first
    ``batch_dims`` of both belong together."""
    if batch_dims:
        pairs = zip(x.unbind(0), indices.unbind(0), strict=True)
        return ops.stack([take_rows(p, i, dim - 1, batch_dims - 1) for p, i in pairs])
    found = x.index_select(dim, indices.reshape(-1).long())
    return found.reshape(*x.shape[:dim], *indices.shape, *x.shape[dim + 1 :])


def segment_reduce(rows: Tensor, ids: Tensor, count: int | None = None, how: str = "sum") -> Tensor:
    """One row for each number from 0 to ``count`` (None: to the largest): the "sum", "mean",
    "prod", "amax" or "amin" of the rows that have it. Numbers below 0 are left out. What has no
    rows is 0 (1 for "prod"); with a ``count``, the least or greatest number for "amax" and "amin".
    """
    at = ids.reshape(-1).long()
    rows = rows.reshape(at.shape[0], *rows.shape[ids.ndim :])
    n = count if count is not None else int(at.max()) + 1 if len(at) else 0
    keep = at >= 0
    if not bool(keep.all()):
        rows, at = rows[keep], at[keep]
    found = ops.full((n, *rows.shape[1:]), _neutral(rows.dtype, how), dtype=rows.dtype)
    if how == "sum":
        return found.index_add(0, at, rows)
    wide = at.reshape(-1, *[1] * (rows.ndim - 1)).expand(rows.shape)
    found = found.scatter_reduce(0, wide, rows, how, include_self=how != "mean")
    if count is None and how in ("amax", "amin"):
        there = ops.bincount(at, minlength=n).reshape(-1, *[1] * (rows.ndim - 1)) > 0
        found = ops.where(there, found, ops.zeros_like(found))
    return found


def _neutral(kind: Any, how: str) -> Any:
    if how in ("amax", "amin"):
        about = finfo(kind) if kind.is_floating_point else iinfo(kind)
        return about.min if how == "amax" else about.max
    return 1 if how == "prod" else 0


def unique_in_order(x: Tensor, kind: Any = None) -> tuple[Tensor, Tensor]:
    """The different numbers of ``x`` in the order in which they come, and for each of ``x`` which
    of them it is, in the type ``kind``."""
    values, places = ops.unique(x, sorted=True, return_inverse=True)
    first = ops.full(values.shape, x.shape[0], dtype=places.dtype)
    first = first.scatter_reduce(0, places, ops.arange(x.shape[0]), "amin")
    order = ops.argsort(first)
    return values[order], ops.argsort(order)[places].to(kind or dtypes.int64)


def confusion_matrix(
    labels: Tensor,
    predictions: Tensor,
    classes: int | None = None,
    weights: Tensor | None = None,
    kind: Any = None,
) -> Tensor:
    """[classes, classes]: how often each pair of label and prediction comes, or the sum of its
    ``weights``, in the type ``kind``."""
    classes = classes or int(ops.maximum(labels.max(), predictions.max())) + 1
    weights = ops.ones(labels.shape, dtype=kind) if weights is None else weights.to(kind)
    places = labels.long() * classes + predictions.long()
    zeros = ops.zeros(classes * classes, dtype=weights.dtype)
    return zeros.index_add(0, places, weights).reshape(classes, classes)


# --- arrays that are written one element after the other: [size, *element] ------------------------
def _within(place: Any, count: int) -> int:
    if not 0 <= int(place) < count:
        raise DimError(f"Tried to access index {int(place)} of an array of size {count}")
    return int(place)


def item(array: Tensor, place: Any) -> Tensor:
    """The element at ``place``."""
    return array[_within(place, len(array))]


def put_item(array: Tensor, place: Any, value: Tensor, grows: bool = False) -> Tensor:
    """``array`` with ``value`` at ``place``; if it ``grows``, with zeros up to there. The sizes of
    elements are those of the first that is written to an array of shape [size, 0]."""
    count = max(len(array), int(place) + 1) if grows else len(array)
    at = _within(place, count)
    if array.shape[1:] != value.shape:
        if tuple(array.shape[1:]) != (0,):
            raise DimError(f"Shape {list(value.shape)} of an element of an array that holds "
                           f"{list(array.shape[1:])}")  # fmt: skip
        array = ops.zeros(len(array), *value.shape, dtype=value.dtype)
    if len(array) < count:
        more = ops.zeros(count - len(array), *value.shape, dtype=value.dtype)
        array = ops.cat([array, more])
    return ops.cat([array[:at], value[None], array[at + 1 :]])
