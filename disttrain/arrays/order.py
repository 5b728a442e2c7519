"""Sorting and searching, with NumPy's arguments."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axis_of


def _key(x: Tensor) -> Tensor:
    return x.to(dtypes.uint8) if x.dtype is dtypes.bool else x


def argsort(
    a: Tensor, axis: int | None = -1, stable: bool = True, descending: bool = False
) -> Tensor:
    """The places of the elements in their order; nan are last, complex numbers by their parts."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    if not a.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension 0")
    d = axis_of(axis, a.ndim)
    if a.is_complex():
        if descending:
            raise NotImplementedError("argsort: complex numbers in descending order")
        return lexsort([ops.imag(a), ops.real(a)], d)
    return ops.argsort(_key(a), d, descending, stable=True)


def sort(a: Tensor, axis: int | None = -1, stable: bool = True, descending: bool = False) -> Tensor:
    """The elements in their order."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    order = argsort(a, axis, stable, descending)
    if a.is_complex() or a.dtype is dtypes.bool:
        return ops.gather(a, axis_of(axis, a.ndim), order)
    return ops.sort(a, axis_of(axis, a.ndim), descending, stable=True)[0]


def lexsort(keys: Sequence[Tensor], axis: int = -1) -> Tensor:
    """The order that sorts by the last of ``keys``, then by the one before it, and so on."""
    keys = list(keys)
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if not keys[0].ndim:
        return ops.zeros((), dtype=dtypes.int64)
    d = axis_of(axis, keys[0].ndim)
    order = ops.argsort(_key(keys[0]), d, stable=True)
    for key in keys[1:]:
        again = ops.argsort(ops.gather(_key(key), d, order), d, stable=True)
        order = ops.gather(order, d, again)
    return order


def sort_complex(a: Tensor) -> Tensor:
    """Sorted along the last dimension."""
    return sort(a)


def partition(a: Tensor, kth: int, axis: int = -1) -> Tensor:
    """Sorted, which is one of the orders that have the ``kth`` in its place."""
    axis_of(kth, a.shape[axis_of(axis, a.ndim)])
    return sort(a, axis)


def argpartition(a: Tensor, kth: int, axis: int = -1) -> Tensor:
    """The places of ``partition``."""
    axis_of(kth, a.shape[axis_of(axis, a.ndim)])
    return argsort(a, axis)


def searchsorted(a: Tensor, v: Tensor, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where ``v`` would go in ``a``, which is sorted."""
    if side not in ("left", "right"):
        raise ValueError(
            f"{side!r} is an invalid value for keyword 'side'. Expected one of ['left', 'right']."
        )
    if a.ndim != 1:
        raise ValueError("a should be 1-dimensional")
    if sorter is not None:
        a = ops.index_select(a, 0, sorter)
    return ops.searchsorted(a, v.contiguous(), right=side == "right")


def digitize(x: Tensor, bins: Tensor, right: bool = False) -> Tensor:
    """Between which of ``bins``, which rise or fall, ``x`` lies."""
    if bins.ndim != 1:
        raise ValueError(
            f"digitize: bins must be a 1-dimensional array; got bins of shape {tuple(bins.shape)}"
        )
    n = bins.shape[0]
    if not n:
        return ops.zeros(tuple(x.shape), dtype=dtypes.int64)
    up = searchsorted(bins, x, "left" if right else "right")
    down = n - searchsorted(ops.flip(bins, (0,)), x, "right" if right else "left")
    return ops.where(bins[n - 1] >= bins[0], up, down)
