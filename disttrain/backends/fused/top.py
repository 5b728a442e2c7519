"""The places of the few largest or smallest numbers along an axis, by generated code.

    top(a, k, axis, largest) -> places (int64), best first, or None: left to numpy

The first of equal numbers comes first; nan is the largest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy import ndarray

from .. import threads
from ..addresses import address

_SPLIT = 1 << 18  # elements from which it takes several threads
MOST = 128  # places of a row
_SHORT = 32  # places up to which rows may be of any length (both measured)
_LONG = 128  # numbers for each place, from which a row is long enough for more of them


@cache
def _code(kind: np.dtype, largest: bool) -> Any:
    """The code for a type, loaded with the first array of it; None where there is none."""
    if kind.char not in "fdilq" or not kind.isnative:
        return None
    return importlib.import_module("..llvm.kernels.top", __package__).code(kind.name, largest)


def top(a: Any, k: int, axis: int, largest: bool) -> ndarray | None:
    """Along ``axis`` (not negative), of which ``k`` places remain."""
    if a.__class__ is not ndarray or not 0 < k <= MOST or not a.size:
        return None
    if k > _SHORT and a.shape[axis] < k * _LONG:
        return None
    run = _code(a.dtype, largest)
    if run is None:
        return None
    last = axis == a.ndim - 1
    rows = a if last else np.moveaxis(a, axis, -1)
    rows = rows if rows.flags.c_contiguous else np.ascontiguousarray(rows)
    n = rows.shape[-1]
    places = np.empty((*rows.shape[:-1], k), np.int64)
    to, source = address(places), address(rows)
    if a.size < _SPLIT:
        run(to, source, n, k, rows.size // n)
    else:
        _spread(run, to, source, n, k, rows)
    return places if last else np.moveaxis(places, -1, axis)


def _spread(run: Callable, to: int, source: int, n: int, k: int, rows: ndarray) -> None:
    """Some of the rows on each thread."""
    step = rows.itemsize * n
    threads.spread([
        partial(run, to + 8 * k * some.start, source + step * some.start, n, k,
                some.stop - some.start)
        for some in threads.portions(rows.size // n)
    ])  # fmt: skip


__all__ = ["MOST", "top"]
