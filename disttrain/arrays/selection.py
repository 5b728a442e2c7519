"""Where elements are, and what is chosen, put in or left out by places or flags. Results whose size
depends on values can be had in a ``size`` that is known beforehand, so that captured programs and
batches have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axis_of
from .shapes import resize


def nonzero(a: Tensor, size: int | None = None, fill_value: Any = None) -> tuple[Tensor, ...]:
    """Where ``a`` is not 0: one tensor for each dimension, of ``size`` elements if it is given."""
    if not a.ndim:
        a = a.reshape(1)
    flags = a != 0
    if size is None:
        return tuple(ops.nonzero(flags, as_tuple=True))
    flat = flags.reshape(-1)
    found = scattered(ops.arange(flat.shape[0]), rank_of(flat, size), size)
    there = ops.arange(size) < ops.sum(flat)
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * a.ndim
    out = []
    for d in range(a.ndim):
        at = (found // max(math.prod(a.shape[d + 1 :]), 1)) % max(a.shape[d], 1)
        out.append(ops.where(there, at, 0 if fills[d] is None else fills[d]))
    return tuple(out)


def rank_of(flags: Tensor, size: int) -> Tensor:
    return ops.where(flags, ops.cumsum(flags.to(dtypes.int64), 0) - 1, size)


def scattered(values: Tensor, rank: Tensor, size: int, start: Tensor | None = None) -> Tensor:
    """``start`` (zeros) with ``values[i]`` in row ``rank[i]``; others are left out."""
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


# --- choosing ------------------------------------------------------------------------------
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``x`` where the condition is not 0, ``y`` elsewhere."""
    return ops.where(condition if condition.dtype is dtypes.bool else condition != 0, x, y)


def select(condlist: Sequence[Tensor], choicelist: Sequence[Tensor], default: Tensor) -> Tensor:
    """The first of ``choicelist`` whose condition holds."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})"
        )
    out = default
    condlist = [c if c.dtype is dtypes.bool else c != 0 for c in condlist]
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


def _listed(obj: Any, n: int) -> list[int]:
    """Places that a number, a slice, flags or a list of numbers name."""
    if isinstance(obj, slice):
        return list(range(*obj.indices(n)))
    if isinstance(obj, Tensor) and obj.dtype is dtypes.bool:
        return [int(i) for i in ops.nonzero(obj)[:, 0]]
    found = obj.tolist() if isinstance(obj, Tensor) else obj
    return [int(i) for i in (found if isinstance(found, (list, tuple)) else [found])]


def insert(arr: Tensor, obj: Any, values: Tensor, axis: int | None = None) -> Tensor:
    """``values`` before the slices of ``arr`` that ``obj`` (a number, a slice, places) names."""
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    d = axis_of(axis, arr.ndim)
    n, one = arr.shape[d], not isinstance(obj, slice) and not getattr(obj, "ndim", 0)
    one = one and not isinstance(obj, (list, tuple))
    given = _listed(obj, n)
    for p in given:
        if not -n <= p <= n:
            raise IndexError(f"index {p} is out of bounds for axis {d} with size {n}")
    at = [p + n if p < 0 else p for p in given]
    x, values = ops.movedim(arr, d, 0), values.to(arr.dtype)
    if one:
        values = ops.unsqueeze(values, 0) if values.ndim < arr.ndim else ops.movedim(values, d, 0)
    elif values.ndim == arr.ndim and arr.ndim > 1:
        values = ops.movedim(values, d, 0)
    count = values.shape[0] if one and values.ndim == arr.ndim else len(at)
    rows = ops.broadcast_to(values, (count, *x.shape[1:]))
    at = at * count if len(at) == 1 else at
    pieces, last = [], 0
    for k in sorted(range(len(at)), key=lambda k: at[k]):
        pieces += [x[last : at[k]], rows[k : k + 1]]
        last = at[k]
    return ops.movedim(ops.cat([*pieces, x[last:]]), 0, d)


def delete(
    arr: Tensor, obj: Any, axis: int | None = None, assume_unique_indices: bool = False
) -> Tensor:
    """``arr`` without the slices that ``obj`` (a number, a slice, places) names."""
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    d = axis_of(axis, arr.ndim)
    n = arr.shape[d]
    gone = {axis_of(p, n) for p in _listed(obj, n)}
    kept = [k for k in range(n) if k not in gone]
    return ops.index_select(arr, d, ops.as_tensor(kept, dtype=dtypes.int64))


def open_grid(lines: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Places (or flags) along each dimension so that together they index a grid."""
    out = []
    for d, x in enumerate(lines):
        x = nonzero(x)[0] if x.dtype is dtypes.bool else x
        if x.ndim != 1:
            raise ValueError(f"Arguments to ix_ must be 1-dimensional, got shape {tuple(x.shape)}")
        out.append(x.reshape([-1 if k == d else 1 for k in range(len(lines))]))
    return tuple(out)


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
    step = columns + 1 if a.ndim == 2 else 1 + sum(columns**k for k in range(1, a.ndim))
    n = math.prod(a.shape)
    end = n if a.ndim > 2 or wrap else min(columns * columns, n)
    places = ops.arange(0, end, step)
    values = resize(val.reshape(-1), (places.shape[0],)) if val.ndim else val
    values = ops.broadcast_to(values.to(a.dtype), (places.shape[0],))
    return ops.index_put(a.reshape(-1), (places,), values).reshape(a.shape)
