"""Sums of the last axes of an array that is in order, by generated code where it gains.

    of_rows(a, width) -> the sums of so many neighbours each, or None: left to numpy

A sum is added up in some dozens of parts side by side, a longer one in blocks of ``BLOCK``, which
several threads may do for a single row.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from ..family import Family
from ..lang.expr import var
from ..lang.kernel import Array, Kernel, Loop, Put, Reduce

BLOCK = 4096  # numbers of a sum that is not made of others
_LEAST = 2048  # elements from which it gains (measured)
_SHORT = 64  # and numbers of a sum


def _sum(dtype: str) -> Kernel:
    params = Array("x", dtype), Array("out", dtype, "row", writes=True)
    steps = Loop((Reduce("total", "sum", var("x")),)), Put("out", var("total"))
    return Kernel("row_sums", params, steps)


_SUMS = Family(_sum)


def of_rows(a: ndarray, width: int) -> ndarray | None:
    """As many as there are rows of ``width`` numbers."""
    if a.size < _LEAST or width < _SHORT or a.dtype.char not in "fd" or not a.dtype.isnative:
        return None
    if a.__class__ is not ndarray or not a.flags.c_contiguous:
        return None
    if width > BLOCK:
        return _in_blocks(a, width)
    return _added(a.reshape(-1, width))


def _added(rows: ndarray) -> ndarray:
    out = np.empty(len(rows), rows.dtype)
    _SUMS[rows.dtype](rows, out)
    return out


def _in_blocks(a: ndarray, width: int) -> ndarray:
    rows, (count, rest) = a.size // width, divmod(width, BLOCK)
    if rows > 1 and rest:
        return _added(a.reshape(-1, width))
    blocks = _added(a.reshape(-1)[: a.size - rest].reshape(-1, BLOCK)).reshape(rows, count)
    sums = np.add.reduce(blocks, axis=1)
    return sums + np.add.reduce(a.reshape(-1)[a.size - rest :]) if rest else sums


__all__ = ["BLOCK", "of_rows"]
