"""Sorting, searching, counting and sets, with NumPy's arguments. Results whose size depends on values
can be had in a ``size`` that is known beforehand, so that captured programs and batches have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axis_of
from .shapes import resize


# --- order -----------------------------------------------------------------------------------------
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


def sort(
    a: Tensor, axis: int | None = -1, stable: bool = True, descending: bool = False
) -> Tensor:
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
        raise ValueError(f"{side!r} is an invalid value for keyword 'side'. Expected one of ['left', 'right'].")  # noqa: E501
    if a.ndim != 1:
        raise ValueError("a should be 1-dimensional")
    if sorter is not None:
        a = ops.index_select(a, 0, sorter)
    return ops.searchsorted(a, v.contiguous(), right=side == "right")


def digitize(x: Tensor, bins: Tensor, right: bool = False) -> Tensor:
    """Between which of ``bins``, which rise or fall, ``x`` lies."""
    if bins.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got bins of shape {tuple(bins.shape)}")  # noqa: E501
    n = bins.shape[0]
    if not n:
        return ops.zeros(tuple(x.shape), dtype=dtypes.int64)
    up = searchsorted(bins, x, "left" if right else "right")
    down = n - searchsorted(ops.flip(bins, (0,)), x, "right" if right else "left")
    return ops.where(bins[n - 1] >= bins[0], up, down)


# --- places ----------------------------------------------------------------------------------------
def nonzero(a: Tensor, size: int | None = None, fill_value: Any = None) -> tuple[Tensor, ...]:
    """Where ``a`` is not 0: one tensor for each dimension, of ``size`` elements if it is given."""
    if not a.ndim:
        a = a.reshape(1)
    flags = a != 0
    if size is None:
        return tuple(ops.nonzero(flags, as_tuple=True))
    flat = flags.reshape(-1)
    found = _scattered(ops.arange(flat.shape[0]), _rank(flat, size), size)
    there = ops.arange(size) < ops.sum(flat)
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * a.ndim
    out = []
    for d in range(a.ndim):
        at = (found // max(math.prod(a.shape[d + 1 :]), 1)) % max(a.shape[d], 1)
        out.append(ops.where(there, at, 0 if fills[d] is None else fills[d]))
    return tuple(out)


def _rank(flags: Tensor, size: int) -> Tensor:
    return ops.where(flags, ops.cumsum(flags.to(dtypes.int64), 0) - 1, size)


def _scattered(values: Tensor, rank: Tensor, size: int, start: Tensor | None = None) -> Tensor:
    """``start`` (zeros) with ``values[i]`` in row ``rank[i]``; ranks from ``size`` on are left out."""
    rest = tuple(values.shape[1:])
    room = values.new_zeros((size + 1, *rest))
    if start is not None:
        room = ops.cat([start, values.new_zeros((1, *rest))])
    if not values.shape[0]:
        return room[:size]
    return ops.index_put(room, (ops.clamp(rank, max=size),), values)[:size]


def argwhere(a: Tensor, size: int | None = None, fill_value: Any = None) -> Tensor:
    """Where ``a`` is not 0: a row for each place."""
    if not a.ndim:
        return ops.zeros((int(bool(a)) if size is None else size, 0), dtype=dtypes.int64)
    return ops.stack(list(nonzero(a, size, fill_value)), 1)


def flatnonzero(a: Tensor, size: int | None = None, fill_value: Any = None) -> Tensor:
    """Where the flattened ``a`` is not 0."""
    return nonzero(a.reshape(-1), size, fill_value)[0]


def compress(
    condition: Tensor, a: Tensor, axis: int | None = None, size: int | None = None,
    fill_value: Any = 0,
) -> Tensor:  # fmt: skip
    """The slices of ``a`` along ``axis`` for which ``condition`` holds."""
    if condition.ndim != 1:
        raise ValueError("condition must be a 1D array")
    a = a.reshape(-1) if axis is None else a
    d = 0 if axis is None else axis_of(axis, a.ndim)
    flags = condition[: a.shape[d]] != 0
    if size is None:
        return ops.index_select(a, d, nonzero(flags)[0])
    found = ops.index_select(a, d, nonzero(flags, size, 0)[0])
    line = [1] * a.ndim
    line[d] = size
    return ops.where((ops.arange(size) < ops.sum(flags)).reshape(line), found, fill_value)


def extract(condition: Tensor, arr: Tensor, size: int | None = None, fill_value: Any = 0) -> Tensor:
    """The elements for which ``condition`` holds."""
    return compress(condition.reshape(-1), arr.reshape(-1), None, size, fill_value)


# --- sets ------------------------------------------------------------------------------------------
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
            order = lexsort([_lined(flat, k) for k in reversed(range(flat.shape[1]))] or [_row(flat)])
        rows = ops.index_select(x, 0, order)
        new = _changes(rows.reshape(n, flat.shape[1]), equal_nan)
        total = ops.sum(new)
        if size is None:
            size = int(total)
        rank = ops.cumsum(new.to(dtypes.int64), 0) - 1
        kept = ops.where(new, rank, size)
        least = rows[:1] if fill is None and n else x.new_zeros((1, *x.shape[1:]))
        least = least if fill is None else least + fill
        start = ops.broadcast_to(least, (size, *x.shape[1:])) if size else x.new_zeros(least[:0].shape)
        self.values = _scattered(rows, kept, size, start)
        first = _scattered(order, kept, size)
        there = ops.arange(size) < total
        self.index = ops.where(there, first, order[0]) if n else first
        inverse = ops.index_put(ops.zeros_like(order), (order,), ops.clamp(rank, max=max(size - 1, 0)))
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
    return ops.cat([first, ops.any(differ, 1) if rows.shape[1] else differ.new_zeros(differ.shape[0])])


def unique(
    ar: Tensor, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, equal_nan: bool = True,
    size: int | None = None, fill_value: Any = None,
) -> Any:  # fmt: skip
    """The distinct elements, or slices along ``axis``, in order."""
    shape = tuple(ar.shape)
    d = 0 if axis is None else axis_of(axis, ar.ndim)
    x = ar.reshape(-1) if axis is None else ops.movedim(ar, d, 0)
    found = Distinct(x, size, fill_value, equal_nan)
    inverse = found.inverse.reshape(shape) if axis is None else found.inverse
    values = found.values if axis is None else ops.movedim(found.values, 0, d)
    chosen = zip((return_index, return_inverse, return_counts), (found.index, inverse, found.counts))
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
    return _scattered(values, _rank(flags, size), size, start)


def setdiff1d(
    ar1: Tensor, ar2: Tensor, assume_unique: bool = False, size: int | None = None,
    fill_value: Any = None,
) -> Tensor:  # fmt: skip
    """What is in the first, not in the second."""
    values = ar1.reshape(-1)
    if not assume_unique:
        values = unique(values, size=values.shape[0] if size is not None else None)
    keep = isin(values, ar2, invert=True)
    if size is not None and not assume_unique:
        keep = keep & _changes(values.reshape(-1, 1), True)
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
    keep = isin(one.values, ar2)
    if size is not None and n:
        keep = keep & _changes(one.values.reshape(-1, 1), True)
    out = _sized(one.values, keep, size, fill_value)
    if not return_indices:
        return out
    two = Distinct(ar2.reshape(-1), ar2.reshape(-1).shape[0] if size is not None else None)
    first = _sized(one.index, keep, size, n)
    at = ops.searchsorted(two.values, out.contiguous())
    second = two.index[ops.clamp(at, max=max(two.index.shape[0] - 1, 0))]
    return out, first, second


# --- counts ----------------------------------------------------------------------------------------
def bincount(
    x: Tensor, weights: Tensor | None = None, minlength: int = 0, length: int | None = None
) -> Tensor:
    """How often each number from 0 on occurs: up to the largest, or ``length`` of them."""
    if x.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    if length is None:
        length = max(int(minlength), int(ops.amax(x)) + 1 if x.shape[0] else 0)
    places = ops.clamp(x.to(dtypes.int64), min=0)
    places = ops.where(places < length, places, length)
    ones = ops.ones_like(places) if weights is None else weights
    room = ones.new_zeros(length + 1)
    return ops.index_put(room, (places,), ones, accumulate=True)[:length]


def histogram_bin_edges(
    a: Tensor, bins: Any = 10, range: Any = None, weights: Tensor | None = None  # noqa: A002
) -> Tensor:
    """The edges of ``bins`` (a number, or edges) between the least and the largest element."""
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    if isinstance(bins, Tensor) and bins.ndim:
        return bins
    n = int(bins)
    if range is None:
        empty = not math.prod(a.shape)
        low, high = (a.new_zeros(()), a.new_ones(())) if empty else (ops.amin(a), ops.amax(a))
    else:
        low, high = (ops.as_tensor(r).to(a.dtype) for r in range)
    flat = low == high
    low, high = ops.where(flat, low - 0.5, low), ops.where(flat, high + 0.5, high)
    share = ops.arange(n + 1).to(a.dtype) / n
    inner = low * (1 - share) + high * share
    return ops.cat([inner[:n], high.reshape(1)])


def histogram(
    a: Tensor, bins: Any = 10, weights: Tensor | None = None, range: Any = None,  # noqa: A002
    density: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """How many elements lie between neighbouring edges, of which the last is taken in, and the
    edges."""
    counts, edges = histogramdd(a.reshape(-1, 1), [bins], weights, [range], density)
    return counts.to(edges[0].dtype), edges[0]


def histogramdd(
    sample: Tensor, bins: Any = 10, weights: Tensor | None = None, range: Any = None,  # noqa: A002
    density: bool | None = None,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """``histogram`` of points (a row each) in as many dimensions as there are columns."""
    n, dims = sample.shape
    bins = list(bins) if isinstance(bins, (list, tuple)) else [bins] * dims
    spans = [None] * dims if range is None else list(range)
    if len(bins) != dims:
        raise ValueError(f"should be {dims} bins, got {len(bins)}")
    columns = [sample[:, d] for d in builtin_range(dims)]
    edges = [histogram_bin_edges(c, b, s) for c, b, s in zip(columns, bins, spans)]
    place, inside = ops.zeros((n,), dtype=dtypes.int64), ops.ones((n,), dtype=dtypes.bool)
    for column, edge in zip(columns, edges):
        last = edge.shape[0] - 1
        at = ops.searchsorted(edge, column.contiguous(), right=True) - 1
        at = ops.where(column == edge[last], last - 1, at)
        inside = inside & (at >= 0) & (at < last)
        place = place * last + at
    total = math.prod(e.shape[0] - 1 for e in edges)
    ones = ops.ones_like(place) if weights is None else weights
    room = ones.new_zeros(total + 1)
    counts = ops.index_put(room, (ops.where(inside, place, total),), ones, accumulate=True)[:total]
    counts = counts.reshape([e.shape[0] - 1 for e in edges])
    if density:
        area = sample.new_ones(())
        for d, edge in enumerate(edges):
            line = [1] * dims
            line[d] = -1
            area = area * ops.diff(edge).reshape(line)
        counts = counts.to(sample.dtype) / area / ops.sum(counts)
    return counts, edges


builtin_range = range


def histogram2d(
    x: Tensor, y: Tensor, bins: Any = 10, weights: Tensor | None = None, range: Any = None,  # noqa: A002
    density: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``histogramdd`` of points in a plane."""
    if isinstance(bins, Tensor) and bins.ndim:
        bins = [bins, bins]
    counts, edges = histogramdd(ops.stack([x, y], 1), bins, weights, range, density)
    return counts, edges[0], edges[1]


# --- choosing --------------------------------------------------------------------------------------
def select(condlist: Sequence[Tensor], choicelist: Sequence[Tensor], default: Tensor) -> Tensor:
    """The first of ``choicelist`` whose condition holds."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})"
        )
    out = default
    for flags, value in zip(reversed(list(condlist)), reversed(list(choicelist))):
        out = ops.where(flags, value, out)
    return out


def choose(a: Tensor, choices: Sequence[Tensor], mode: str = "raise") -> Tensor:
    """Of the arrays ``choices`` the one that ``a`` numbers, element by element."""
    n, a = len(choices), a.to(dtypes.int64)
    spread = ops.broadcast_tensors(a, *choices)
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    places = ops.remainder(spread[0], n) if mode == "wrap" else ops.clamp(spread[0], 0, n - 1)
    return ops.gather(ops.stack(list(spread[1:])), 0, ops.unsqueeze(places, 0))[0]


def take_along_axis(arr: Tensor, indices: Tensor, axis: int | None = -1) -> Tensor:
    """The elements that ``indices`` names along ``axis``; the other dimensions are broadcast."""
    if axis is None:
        if indices.ndim != 1:
            raise ValueError("take_along_axis indices must be 1D if axis=None, got shape "
                             f"{tuple(indices.shape)}")  # fmt: skip
        arr, axis = arr.reshape(-1), 0
    if arr.ndim != indices.ndim:
        raise ValueError(
            "indices and arr must have the same number of dimensions; "
            f"{indices.ndim} vs. {arr.ndim}"
        )
    d = axis_of(axis, arr.ndim)
    n = arr.shape[d]
    places = ops.where(indices < 0, indices + n, indices)
    inside = (places >= 0) & (places < n)
    sizes = [max(a, b) if a and b else 0 for a, b in zip(arr.shape, indices.shape)]
    shape = [*sizes[:d], n, *sizes[d + 1 :]]
    at = ops.broadcast_to(ops.clamp(places, 0, max(n - 1, 0)).to(dtypes.int64),
                          [*sizes[:d], indices.shape[d], *sizes[d + 1 :]])  # fmt: skip
    found = ops.gather(ops.broadcast_to(arr, shape), d, at)
    kind = arr.meta()[1].kind
    if kind in "biu":
        return found
    return ops.where(inside, found, float("nan"))


def trim_zeros(filt: Tensor, trim: str = "fb") -> Tensor:
    """``filt`` without the zeros in front and behind."""
    places = nonzero(filt)[0]
    if not places.shape[0]:
        return filt[:0]
    start = int(places[0]) if "f" in trim.lower() else 0
    end = int(places[-1]) + 1 if "b" in trim.lower() else filt.shape[0]
    return filt[start:end]


def insert(arr: Tensor, places: Any, values: Tensor, axis: int | None = None) -> Tensor:
    """``values`` before the slices at ``places`` (a list of numbers, or one number) of ``arr``."""
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    d = axis_of(axis, arr.ndim)
    n, one = arr.shape[d], isinstance(places, int)
    given = [places] if one else list(places)
    for p in given:
        if not -n <= p <= n:
            raise IndexError(f"index {p} is out of bounds for axis {d} with size {n}")
    at = [p + n if p < 0 else p for p in given]
    x = ops.movedim(arr, d, 0)
    values = values.to(arr.dtype)
    if one:
        values = ops.unsqueeze(values, 0) if values.ndim < arr.ndim else ops.movedim(values, d, 0)
    elif values.ndim == arr.ndim and arr.ndim > 1:
        values = ops.movedim(values, d, 0)
    count = values.shape[0] if one and values.ndim == arr.ndim else len(at)
    rows = ops.broadcast_to(values, (count, *x.shape[1:]))
    at = at * count if len(at) == 1 else at
    order = sorted(builtin_range(len(at)), key=lambda k: at[k])
    pieces, last = [], 0
    for k in order:
        pieces += [x[last : at[k]], rows[k : k + 1]]
        last = at[k]
    return ops.movedim(ops.cat([*pieces, x[last:]]), 0, d)


def delete(arr: Tensor, places: Sequence[int], axis: int | None = None) -> Tensor:
    """``arr`` without the slices at ``places``."""
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    d = axis_of(axis, arr.ndim)
    n = arr.shape[d]
    for p in places:
        if not -n <= p < n:
            raise ValueError(f"index {p} is out of bounds for axis {d} with size {n}")
    gone = {p % n for p in places}
    kept = [k for k in builtin_range(n) if k not in gone]
    return ops.index_select(arr, d, ops.as_tensor(kept, dtype=dtypes.int64))


def ravel_multi_index(places: Sequence[Tensor], dims: Sequence[int], mode: str = "raise") -> Tensor:
    """Places in an array of shape ``dims`` as places in the flattened one."""
    if len(places) != len(dims):
        raise ValueError(f"len(multi_index)={len(places)} != len(dims)={len(dims)}")
    total = places[0] * 0
    for at, n in zip(places, dims):
        if mode == "clip":
            at = ops.clamp(at, 0, n - 1)
        elif mode == "wrap":
            at = ops.remainder(at, n)
        elif mode != "raise":
            raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', or 'clip'")
        elif getattr(at, "interp", None) is None and bool(ops.any((at < 0) | (at >= n))):
            raise ValueError("invalid entry in coordinates array")
        total = total * n + at
    return total


def unravel_index(indices: Tensor, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Places in the flattened array as places in one of ``shape``, cut to what there is."""
    sizes = [shape] if isinstance(shape, int) else list(shape)
    total = math.prod(sizes)
    at = ops.where(indices < 0, indices + total, indices)
    at = ops.clamp(at, 0, max(total - 1, 0))
    out: list[Tensor] = []
    for n in reversed(sizes):
        out.append(ops.remainder(at, n))
        at = ops.div(at, n, rounding_mode="floor")
    return tuple(reversed(out))


def ediff1d(ary: Tensor, to_end: Tensor | None = None, to_begin: Tensor | None = None) -> Tensor:
    """The differences of neighbours in the flattened array, between what is given."""
    steps = ops.diff(ary.reshape(-1))
    ends = [p.reshape(-1) for p in (to_begin,) if p is not None]
    return ops.cat([*ends, steps, *(p.reshape(-1) for p in (to_end,) if p is not None)])


def fill_diagonal(a: Tensor, val: Tensor, wrap: bool = False) -> Tensor:
    """``a`` with ``val`` on its diagonal."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    columns = a.shape[-1]
    step = columns + 1 if a.ndim == 2 else 1 + sum(columns**k for k in builtin_range(1, a.ndim))
    n = math.prod(a.shape)
    end = n if a.ndim > 2 or wrap else min(columns * columns, n)
    places = ops.arange(0, end, step)
    values = resize(val.reshape(-1), (places.shape[0],)) if val.ndim else val
    values = ops.broadcast_to(values.to(a.dtype), (places.shape[0],))
    return ops.index_put(a.reshape(-1), (places,), values).reshape(a.shape)

