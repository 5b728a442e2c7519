"""Distinct elements and sets, in order, with NumPy's arguments and in sizes that are known before
(``size``)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axis_of
from .order import argsort, lexsort
from .selection import nonzero, rank_of, scattered


class Distinct:
    """The distinct slices of ``x`` along dimension 0, in order.

    ``values``; ``index`` of the first of each; ``inverse``: which value each slice is; ``counts``.
    ``size``: how many there are to be, ``fill`` (None: the least) for what is missing.
    """

    def __init__(
        self, x: Tensor, size: int | None, fill: Any = None, equal_nan: bool = True
    ) -> None:
        n = x.shape[0]
        flat = x.reshape(n, math.prod(x.shape[1:]))
        if n and flat.shape[1] == 1:
            order = argsort(flat[:, 0])
        else:
            order = lexsort(
                [_lined(flat, k) for k in reversed(range(flat.shape[1]))] or [_row(flat)]
            )
        rows = ops.index_select(x, 0, order)
        new = _changes(rows.reshape(n, flat.shape[1]), equal_nan)
        total = ops.sum(new)
        if size is None:
            size = int(total)
        rank = ops.cumsum(new.to(dtypes.int64), 0) - 1
        kept = ops.where(new, rank, size)
        least = rows[:1] if fill is None and n else x.new_zeros((1, *x.shape[1:]))
        least = least if fill is None else (least * 0 + fill).to(x.dtype)
        start = (
            ops.broadcast_to(least, (size, *x.shape[1:])) if size else x.new_zeros(least[:0].shape)
        )
        self.values = scattered(rows, kept, size, start)
        first = scattered(order, kept, size)
        self.there = there = ops.arange(size) < total  # what is no filling
        self.index = ops.where(there, first, order[0]) if n else first
        inverse = ops.index_put(
            ops.zeros_like(order), (order,), ops.clamp(rank, max=max(size - 1, 0))
        )
        self.inverse = inverse
        room = order.new_zeros(size + 1)
        spread = (ops.clamp(rank, max=size),)
        self.counts = ops.index_put(room, spread, ops.ones_like(order), accumulate=True)[:size]


def _lined(flat: Tensor, k: int) -> Tensor:
    return flat[:, k]


def _row(flat: Tensor) -> Tensor:
    return ops.zeros((flat.shape[0],), dtype=dtypes.int64)


def _changes(rows: Tensor, equal_nan: bool) -> Tensor:
    """Which rows differ from the one before; the first does."""
    a, b = rows[1:], rows[:-1]
    differ = a != b
    if equal_nan and rows.meta()[1].kind not in "biu":
        differ = differ & ~(ops.isnan(a) & ops.isnan(b))
    first = ops.ones((min(rows.shape[0], 1),), dtype=dtypes.bool)
    return ops.cat(
        [first, ops.any(differ, 1) if rows.shape[1] else differ.new_zeros(differ.shape[0])]
    )


def unique(
    ar: Tensor, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, equal_nan: bool = True,
    size: int | None = None, fill_value: Any = None, sorted: bool = True,  # noqa: A002
) -> Any:  # fmt: skip
    """The distinct elements, or slices along ``axis``, in order."""
    shape = tuple(ar.shape)
    d = 0 if axis is None else axis_of(axis, ar.ndim)
    x = ar.reshape(-1) if axis is None else ops.movedim(ar, d, 0)
    found = Distinct(x, size, fill_value, equal_nan)
    inverse = found.inverse.reshape(shape) if axis is None else found.inverse
    values = found.values if axis is None else ops.movedim(found.values, 0, d)
    chosen = zip(
        (return_index, return_inverse, return_counts), (found.index, inverse, found.counts)
    )
    more = tuple(value for want, value in chosen if want)
    return (values, *more) if more else values


def isin(
    element: Tensor, test_elements: Tensor, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Which elements are among ``test_elements``."""
    tests = test_elements.reshape(-1)
    found = ops.any(ops.unsqueeze(element, -1) == tests, -1) if tests.shape[0] else None
    if found is None:
        found = ops.zeros(tuple(element.shape), dtype=dtypes.bool)
    return ~found if invert else found


def union1d(ar1: Tensor, ar2: Tensor, size: int | None = None, fill_value: Any = None) -> Tensor:
    """What is in one of two arrays."""
    both = ops.cat([ar1.reshape(-1), ar2.reshape(-1)])
    return unique(both, size=size, fill_value=fill_value)


def _sized(values: Tensor, flags: Tensor, size: int | None, fill: Any) -> Tensor:
    if size is None:
        return ops.index_select(values, 0, nonzero(flags)[0])
    start = values.new_zeros(size) if fill is None else values.new_zeros(size) + fill
    if fill is None and values.shape[0]:
        start = start + ops.amin(values) * 0
    return scattered(values, rank_of(flags, size), size, start)


def setdiff1d(
    ar1: Tensor, ar2: Tensor, assume_unique: bool = False, size: int | None = None,
    fill_value: Any = None,
) -> Tensor:  # fmt: skip
    """What is in the first, not in the second."""
    values = ar1.reshape(-1)
    if assume_unique:
        keep = isin(values, ar2, invert=True)
    else:
        found = Distinct(values, values.shape[0] if size is not None else None)
        values, keep = found.values, found.there & isin(found.values, ar2, invert=True)
    return _sized(values, keep, size, 0 if fill_value is None else fill_value)


def setxor1d(
    ar1: Tensor, ar2: Tensor, assume_unique: bool = False, size: int | None = None,
    fill_value: Any = None,
) -> Tensor:  # fmt: skip
    """What is in one of two arrays only."""
    both, seconds = _sorted_pair(ar1, ar2)
    new = _changes(both.reshape(-1, 1), True)
    ends = ops.cat([new[1:], new.new_ones(1)]) if new.shape[0] else new
    first, last = _spans(both, seconds, new)
    return _sized(both, ends & (first == last), size, fill_value)


def _sorted_pair(ar1: Tensor, ar2: Tensor) -> tuple[Tensor, Tensor]:
    one, two = ar1.reshape(-1), ar2.reshape(-1)
    both = ops.cat([one, two])
    second = ops.cat([one.new_zeros(one.shape[0]), two.new_ones(two.shape[0])]).to(dtypes.int64)
    order = argsort(both)
    return ops.index_select(both, 0, order), ops.index_select(second, 0, order)


def _spans(both: Tensor, seconds: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Of the run of equals that each element is in, the least and the largest of ``seconds``."""
    rank = ops.cumsum(new.to(dtypes.int64), 0) - 1
    total = ops.index_put(ops.zeros_like(rank), (rank,), seconds, accumulate=True)
    length = ops.index_put(ops.zeros_like(rank), (rank,), ops.ones_like(rank), accumulate=True)
    some, every = total[rank] > 0, total[rank] == length[rank]
    return every.to(dtypes.int64), some.to(dtypes.int64)


def intersect1d(
    ar1: Tensor, ar2: Tensor, assume_unique: bool = False, return_indices: bool = False,
    size: int | None = None, fill_value: Any = None,
) -> Any:  # fmt: skip
    """What is in both arrays; ``return_indices``: and where it is first in each."""
    n = ar1.reshape(-1).shape[0]
    one = Distinct(ar1.reshape(-1), n if size is not None else None)
    keep = one.there & isin(one.values, ar2)
    out = _sized(one.values, keep, size, fill_value)
    if not return_indices:
        return out
    two = Distinct(ar2.reshape(-1), ar2.reshape(-1).shape[0] if size is not None else None)
    first = _sized(one.index, keep, size, n)
    at = ops.searchsorted(two.values, out.contiguous())
    second = two.index[ops.clamp(at, max=max(two.index.shape[0] - 1, 0))]
    return out, first, second


class UniqueAll(NamedTuple):
    """What the array standard says of distinct elements."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct elements, and how often they occur."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct elements, and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Distinct elements, where nan differ from each other, with all that is known of them."""
    return UniqueAll(*unique(x, True, True, True, None, False, size, fill_value))


def unique_counts(x: Tensor, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Distinct elements and their counts."""
    return UniqueCounts(*unique(x, False, False, True, None, False, size, fill_value))


def unique_inverse(x: Tensor, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Distinct elements, and which of them each element is."""
    return UniqueInverse(*unique(x, False, True, False, None, False, size, fill_value))


def unique_values(x: Tensor, size: int | None = None, fill_value: Any = None) -> Tensor:
    """Distinct elements."""
    return unique(x, False, False, False, None, False, size, fill_value)
