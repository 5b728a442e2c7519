"""How a sum over some dimensions goes over memory. Pure.

Dimensions are put in the order of memory and joined where neighbours are both kept or both summed.
What is left is one of few patterns: ``R`` (everything), ``KR`` (rows), ``RK`` (columns), ``RKR``
(rows, then columns); any other pattern goes another way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PATTERNS = ("R", "KR", "RK", "RKR")


class Folds(NamedTuple):
    """``order``: of the dimensions; ``sizes``: of the joined groups, as ``pattern`` names them;
    ``kept``: the kept dimensions in that order."""

    pattern: str
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    kept: tuple[int, ...]


def folds(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> Folds | None:
    """How to sum an array of ``shape`` over ``dims``; None where no pattern fits. ``AxisError`` for
    a dimension that it has not."""
    for d in dims:
        if not 0 <= d < len(shape):
            raise np.exceptions.AxisError(d, len(shape))
    real = [d for d, n in enumerate(shape) if n != 1]
    real.sort(key=lambda d: -abs(strides[d]))
    order = (*(d for d, n in enumerate(shape) if n == 1), *real)
    pattern, sizes = "", list[int]()
    for d in real:
        kind = "R" if d in dims else "K"
        if pattern.endswith(kind):
            sizes[-1] *= shape[d]
        else:
            pattern, sizes = pattern + kind, [*sizes, shape[d]]
    if "R" not in pattern:  # one element, or single ones
        pattern, sizes = pattern + "R", [*sizes, 1]
    if pattern not in PATTERNS:
        return None
    return Folds(pattern, order, tuple(sizes), tuple(d for d in order if d not in dims))


def split_rows(rows: int, columns: int) -> int:
    """Into how many parts each of few long rows is cut, so that there is work for many blocks."""
    parts = 1
    while rows * parts < 512 and columns % (parts * 2) == 0 and columns // (parts * 2) >= 4096:
        parts *= 2
    return parts


def restored(kept: Sequence[int]) -> tuple[int, ...] | None:
    """The transposition that brings dimensions in the order ``kept`` back to ascending order; None
    where they are."""
    order = tuple(sorted(range(len(kept)), key=kept.__getitem__))
    return None if order == tuple(range(len(kept))) else order


def count(shape: Sequence[int], dims: Sequence[int]) -> int:
    """How many elements one result is made of."""
    return math.prod(shape[d] for d in dims)
