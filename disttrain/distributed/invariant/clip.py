"""The norm of gradients in an order that depends on no sharding.

A row (a slice along the dimension that a parameter is cut along, dimension 0 for a whole one) is
never cut. Its squares are summed alone, in float64; the rows of all parameters are then summed in
one order, on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_BLOCK = 256  # rows at a time, so that float64 copies stay small


def clip_grad_norm_(parameters: Iterable[Any], max_norm: float) -> float:
    """Scale the gradients of ``parameters`` so that their common norm is at most ``max_norm``;
    returns the norm before. Gradients may be whole on every rank or cut (``fully_shard``, tensor
    parallelism). Bitwise the same on any number of ranks; all of them call it."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = _norm([_all_rows(g.array) for g in grads])
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        for g in grads:
            local = getattr(g.array, "local", g.array)
            np.multiply(local, local.dtype.type(factor), out=local)
    return norm


def squared_rows(gradient: np.ndarray, dim: int = 0) -> np.ndarray:
    """The sum of squares of each row of ``gradient`` along ``dim``, float64 [rows]."""
    if gradient.ndim == 0:
        gradient = gradient.reshape(1)
    front = np.moveaxis(gradient, dim, 0)
    rows = front.shape[0]
    if gradient.ndim == 1:
        return np.square(front.astype(np.float64))
    out = np.empty(rows, np.float64)
    for lo in range(0, rows, _BLOCK):
        block = np.square(front[lo : lo + _BLOCK].astype(np.float64, order="C"))
        for i, row in enumerate(block.reshape(len(block), -1), lo):
            out[i] = np.add.reduce(row)  # alone: numpy's order may depend on the shape
    return out


def _all_rows(array: Any) -> np.ndarray:
    """The rows of a gradient, of all ranks."""
    if isinstance(array, np.ndarray):
        return squared_rows(array)
    cut = [(axis, p.dim) for axis, p in enumerate(array.placements) if p.is_shard()]
    if len(cut) > 1:  # by tensor parallelism, too, whose rows are the same without the other
        fixed = array.mesh.fixed_axes()
        inner = next((dim for axis, dim in cut if axis in fixed), cut[-1][1])
        return squared_rows(array.whole(), inner)
    if not cut:
        return squared_rows(array.local)
    axis, dim = cut[0]
    group = array.mesh.line(axis)
    rows = np.zeros(array.shape[dim], np.float64)
    first = group.rank * -(-len(rows) // group.size)
    own = squared_rows(array.local, dim)
    rows[first : first + len(own)] = own
    group.all_reduce(rows)  # the others' are zeros: exact
    return rows


def _norm(rows: Sequence[np.ndarray]) -> float:
    return math.sqrt(float(np.add.reduce(np.array([np.add.reduce(r) for r in rows]))))
