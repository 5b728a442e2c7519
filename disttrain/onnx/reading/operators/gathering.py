"""Operators with places: gather and scatter, chosen rows, one-hot, places of what is not zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import DimError, ShapeError
from ....ops import api
from ..table import operator
from .elementwise import check_sizes
from .reductions import whole


def _wrapped(places: Tensor, n: Any) -> Tensor:
    """Places that count from the end, from the start."""
    places = places.to(dtypes.int64)
    return api.where(places < 0, places + n, places)


@operator("Gather")
def _gather(x: Any, places: Tensor, *, axis: int = 0) -> Any:
    if isinstance(x, np.ndarray):
        return np.take(x, places.numpy(), axis)
    axis = axis + x.ndim if axis < 0 else axis
    index = _wrapped(places, x.shape[axis])
    if index.ndim == 1:
        return api.index_select(x, axis, index)
    out = api.index_select(x, axis, index.reshape(-1))
    return out.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def _gather_elements(x: Tensor, places: Tensor, *, axis: int = 0) -> Tensor:
    return api.gather(x, axis, _wrapped(places, x.shape[axis]))


def _coordinates(x: Tensor, places: Tensor, first: int = 0) -> tuple[Tensor, ...]:
    """Tensors of places along the axes from ``first`` on, of rows of coordinates."""
    return tuple(_wrapped(places[..., i], x.shape[first + i]) for i in range(places.shape[-1]))


@operator("GatherND")
def _gather_nd(x: Tensor, places: Tensor, *, batch_dims: int = 0) -> Tensor:
    if batch_dims == 0:
        return x[_coordinates(x, places)]
    batch = tuple(x.shape[:batch_dims])
    rows = x.reshape(-1, *x.shape[batch_dims:])
    index = places.reshape(rows.shape[0], -1, places.shape[-1])
    each = api.arange(rows.shape[0]).reshape(-1, 1).expand(index.shape[:2])
    out = rows[(each, *_coordinates(rows, index, 1))]
    return out.reshape(*batch, *places.shape[batch_dims:-1], *out.shape[2:])


_WAYS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements", "Scatter")
def _scatter_elements(
    x: Tensor, places: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    index = _wrapped(places, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, _WAYS[reduction], include_self=True)


@operator("ScatterND")
def _scatter_nd(x: Tensor, places: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    deep = places.shape[-1]
    coordinates = _coordinates(x, places)
    if reduction in ("none", "add"):
        return api.index_put(x, coordinates, updates, accumulate=reduction == "add")
    if deep == 0 or deep > x.ndim:
        raise ShapeError(f"places of {deep} coordinates in {x.ndim} dimensions")
    inner = math.prod(x.shape[deep:])
    row = api.zeros_like(coordinates[0])
    for i, c in enumerate(coordinates):
        row = row * x.shape[i] + c
    index = row.reshape(-1, 1) * inner + api.arange(inner).reshape(1, -1)
    flat = x.reshape(-1).scatter_reduce(
        0, index.reshape(-1), updates.reshape(-1), _WAYS[reduction], include_self=True
    )
    return flat.reshape(x.shape)


@operator("Compress")
def _compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    chosen = np.flatnonzero(condition.numpy())
    if chosen.size and chosen[-1] >= x.shape[axis]:
        raise DimError(f"row {chosen[-1]} of {x.shape[axis]} is chosen")
    return api.index_select(x, axis, api.tensor(chosen))


@operator("NonZero")
def _non_zero(x: Tensor) -> Tensor:
    if x.ndim == 0:
        return api.tensor(np.array(np.nonzero(np.atleast_1d(x.numpy()))))
    return api.nonzero(x).t()


@operator("OneHot", numbers=(1,))
def _one_hot(places: Tensor, depth: Any, values: Tensor, *, axis: int = -1, node: Any) -> Tensor:
    n = int(whole(depth))
    check_sizes(math.prod(places.shape) * n, node)
    index = places.to(dtypes.int64)
    index = api.where(index < 0, index + n, index).unsqueeze(axis)
    shape = [1] * index.ndim
    shape[axis] = n
    hot = index == api.arange(n).reshape(shape)
    return api.where(hot, values[1], values[0])


@operator("Unique")
def _unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> Any:
    array = x.numpy()
    found, first, back, counts = np.unique(
        array.ravel() if axis is None else array,
        return_index=True, return_inverse=True, return_counts=True, axis=axis,
    )  # fmt: skip
    back = back.ravel()
    if not sorted:
        order = np.argsort(first)
        found = np.take(found, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        back = np.argsort(order)[back]
    return tuple(map(api.tensor, (found, *(p.astype(np.int64) for p in (first, back, counts)))))


@operator("ReverseSequence")
def _reverse_sequence(
    x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    n = x.shape[time_axis]
    times = api.arange(n).reshape(1, -1)
    until = lengths.to(dtypes.int64).reshape(-1, 1)
    index = api.where(times < until, until - 1 - times, times)
    if time_axis < batch_axis:
        index = index.t()
    index = index.reshape(*index.shape, *[1] * (x.ndim - 2)).expand(x.shape)
    return api.gather(x, time_axis, index)


@operator("TensorScatter")
def _tensor_scatter(
    past: Tensor,
    update: Tensor,
    starts: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    along = axis + past.ndim if axis < 0 else axis
    count, most = update.shape[along], past.shape[along]
    first = api.zeros((past.shape[0],), dtype=dtypes.int64) if starts is None else starts
    index = first.to(dtypes.int64).reshape(-1, 1) + api.arange(count).reshape(1, -1)
    if mode == "circular":
        index = index % most
    shape = [1] * past.ndim
    shape[0], shape[along] = past.shape[0], count
    return past.scatter(along, index.reshape(shape).expand(update.shape), update)
