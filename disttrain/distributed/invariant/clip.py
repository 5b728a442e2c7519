"""The norm of gradients in an order that depends on no sharding.

A row (a slice along dimension 0) is never cut by sharding along dimension 0. Its squares are
summed alone, in float64; the rows of all parameters are then summed in one order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor

_BLOCK = 256  # rows at a time, so that float64 copies stay small


def squared_rows(gradient: np.ndarray) -> np.ndarray:
    """The sum of squares of each row of ``gradient``, float64 [rows]."""
    rows = gradient.shape[0] if gradient.ndim else 1
    flat = gradient.reshape(rows, -1)
    if flat.shape[1] == 1:
        return np.square(flat[:, 0].astype(np.float64))
    out = np.empty(rows, np.float64)
    for lo in range(0, rows, _BLOCK):
        block = np.square(flat[lo : lo + _BLOCK].astype(np.float64))
        for i, row in enumerate(block, lo):  # alone: numpy's order may depend on the shape
            out[i] = np.add.reduce(row)
    return out


def norm_of_rows(rows: Sequence[np.ndarray]) -> float:
    """The norm of all gradients, from the ``squared_rows`` of each in the program's order."""
    return math.sqrt(float(np.add.reduce(np.array([np.add.reduce(r) for r in rows]))))


def clip_grad_norm_(parameters: Iterable[Any], max_norm: float) -> float:
    """Scale the gradients of ``parameters`` (whole on every rank) so that their common norm is at
    most ``max_norm``; returns the norm before. Bitwise the same on any number of ranks."""
    grads = [p.grad for p in parameters if isinstance(p, Tensor) and p.grad is not None]
    norm = norm_of_rows([squared_rows(g.array) for g in grads])
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        for g in grads:
            np.multiply(g.array, g.array.dtype.type(factor), out=g.array)
    return norm
