"""Primitives that rearrange: views, joins, slices, padding, windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ops.declare import REGISTRY
from ..types import INT64, Ref, Unmapped, computed, is_number, same_size, static
from ..writer import Writer, rule

_END = np.iinfo(np.int64).max  # where a slice goes to the end


@rule("reshape")
def _reshape(w: Writer, a: Ref, shape: tuple) -> Ref:
    return w.reshape(a, w.outs[0].shape)


@rule("permute")
def _permute(w: Writer, a: Ref, dims: tuple) -> Ref:
    return w.transpose(a, dims)


@rule("expand")
def _expand(w: Writer, a: Ref, shape: tuple) -> Ref:
    return w.expand(a, w.outs[0].shape)


# --- indices -----------------------------------------------------------------------------------
def steps_of(index: tuple, rank: int) -> list[Any]:
    """A basic index with a slice, a number or None (a new dimension) for each dimension."""
    used = sum(i is not None and i is not Ellipsis for i in index)
    index = index if any(i is Ellipsis for i in index) else (*index, Ellipsis)
    out: list[Any] = []
    for item in index:
        out += [slice(None)] * (rank - used) if item is Ellipsis else [item]
    return out


def _bounds(s: slice, n: Any) -> tuple[Any, Any, int] | None:
    """Where a slice begins and ends; None for the whole dimension."""
    step = 1 if s.step is None else int(s.step)
    start = 0 if s.start is None else s.start
    stop = _END if s.stop is None else s.stop
    whole = is_number(start) and int(start) == 0 and step == 1
    if whole and (same_size(stop, n) or (is_number(stop) and int(stop) == _END)):
        return None
    return start, stop, step


@rule("getitem")
def getitem(w: Writer, a: Ref, index: tuple) -> Ref:
    """One ``Slice`` of all dimensions; numbers are slices of one that are squeezed."""
    assert a.shape is not None
    cuts: list[tuple] = []  # dimension, start, stop, step
    gone, new, dim, at = list[int](), list[int](), 0, 0
    for item in steps_of(index, len(a.shape)):
        if item is None:
            new.append(at)
            at += 1
            continue
        if isinstance(item, slice):
            found = _bounds(item, a.shape[dim])
            if found is not None:
                cuts.append((dim, *found))
            at += 1
        else:
            last = is_number(item) and int(item) == -1
            cuts.append((dim, item, _END if last else computed("+", item, 1), 1))
            gone.append(dim)
        dim += 1
    out = _cut(w, a, cuts, gone)
    return w.unsqueeze(out, new) if new else out


def _cut(w: Writer, a: Ref, cuts: list[tuple], gone: list[int]) -> Ref:
    if len(cuts) == 1 and gone and is_number(cuts[0][1]):  # one number: a Gather
        return w.node("Gather", a, w.constant(int(cuts[0][1]), INT64), axis=gone[0])
    if cuts:
        dims, starts, stops, strides = zip(*cuts, strict=True)
        given = [w.ints(starts), w.ints(stops), w.constant(list(dims), INT64)]
        if any(s != 1 for s in strides):
            given.append(w.constant(list(strides), INT64))
        a = w.node("Slice", a, *given)
    return w.squeeze(a, gone) if gone else a


@rule("flip")
def _flip(w: Writer, a: Ref, dims: tuple) -> Ref:
    if not dims:
        return a
    n = len(dims)
    given = ([-1] * n, [-(2**63 - 1)] * n, list(dims), [-1] * n)
    return w.node("Slice", a, *(w.constant(x, INT64) for x in given))


@rule("roll")
def _roll(w: Writer, a: Ref, shifts: tuple, dims: tuple) -> Ref:
    shape = a.shape
    assert shape is not None
    for shift, dim in zip(shifts, dims, strict=True):
        n = shape[dim]
        if is_number(n) and is_number(shift):
            shift = int(shift) % max(int(n), 1)
        if is_number(shift) and int(shift) == 0:
            continue
        at = computed("-", 0, shift)
        parts = (w.slice(a, dim, at, _END), w.slice(a, dim, 0, at))
        a = w.node("Concat", *parts, axis=dim, shape=shape)
    return a


@rule("tri")
def _tri(w: Writer, a: Ref, k: Any, upper: bool) -> Ref:
    diagonal = None if is_number(k) and int(k) == 0 else w.size(k)
    return w.node("Trilu", a, diagonal, upper=int(upper))


# --- padding, joining, cutting -----------------------------------------------------------------
@rule("pad_constant")
def pad(w: Writer, a: Ref, widths: tuple, value: Any = 0.0) -> Ref:
    """``Pad`` with a constant."""
    pads = [lo for lo, _ in widths] + [hi for _, hi in widths]
    if all(is_number(p) and int(p) == 0 for p in pads):
        return a
    fill = None if value == 0.0 else w.operand(value, a.dtype)
    return w.node("Pad", a, w.ints(pads), fill)


@rule("cat")
def _cat(w: Writer, *arrays: Ref, dim: int, sizes: tuple) -> Ref:
    return arrays[0] if len(arrays) == 1 else w.node("Concat", *arrays, axis=dim)


@rule("split")
def _split(w: Writer, a: Ref, dim: int, sizes: tuple) -> tuple:
    if len(sizes) == 1:
        return (a,)
    found = w.node("Split", a, w.ints(sizes), outputs=len(sizes), axis=dim)
    return tuple(found)


@rule("unbind")
def _unbind(w: Writer, a: Ref, dim: int) -> tuple:
    n = len(w.outs)
    if n == 1:
        return (w.squeeze(a, (dim,)),)
    parts = w.node("Split", a, w.constant([1] * n, INT64), outputs=n, axis=dim)
    return tuple(w.squeeze(p, (dim,)) for p in parts)


# --- by places that are known ------------------------------------------------------------------
def placed(w: Writer, a: Ref, index: np.ndarray, hole: int | None = None) -> Ref:
    """Elements of ``a``, whose shape is known, at places of its row; ``hole``: the place that
    stands for zero."""
    row = w.reshape(a, (int(np.prod(a.shape or (1,), dtype=int)),))
    if hole is not None:
        row = w.node("Pad", row, w.constant([0, 1], INT64))
    return w.node("Gather", row, w.constant(index, INT64), axis=0)


def numbered(a: Ref, name: str, params: dict) -> np.ndarray:
    """What a primitive does to the places of ``a``: 1 for the first, 0 where nothing comes from."""
    if not static(a.shape):
        raise Unmapped(f"{name} of sizes that depend on the input")
    shape = tuple(map(int, a.shape or ()))
    places = np.arange(1, int(np.prod(shape, dtype=int)) + 1, dtype=np.int64).reshape(shape)
    return np.asarray(REGISTRY[name].forward(places, **params))


def _moves(name: str) -> Any:
    """The rule of a primitive that moves elements, or leaves zeros."""

    def run(w: Writer, a: Ref, **params: Any) -> Ref:
        places = numbered(a, name, params) - 1
        hole = int(np.prod(a.shape or (1,), dtype=int))
        if (places < 0).any():
            return placed(w, a, np.where(places < 0, hole, places), hole)
        return placed(w, a, places)

    return run


for _name in ("embed", "diagonal_embed"):
    rule(_name)(_moves(_name))


@rule("diagonal")
def _diagonal(w: Writer, a: Ref, offset: int, dim1: int, dim2: int) -> Ref:
    if static(a.shape):
        moved: Ref = _moves("diagonal")(w, a, offset=offset, dim1=dim1, dim2=dim2)
        return moved
    assert a.shape is not None
    dim1, dim2 = dim1 % a.rank, dim2 % a.rank
    lead = [d for d in range(a.rank) if d not in (dim1, dim2)]
    columns, rows = a.shape[dim2], a.shape[dim1]
    turned = w.transpose(a, [*lead, dim1, dim2])
    row = w.reshape(turned, (*(a.shape[d] for d in lead), computed("*", rows, columns)))
    first = computed("*", columns, -offset) if offset < 0 else offset
    places = w.node(
        "Range", w.constant(0, INT64), w.size(w.outs[0].shape[-1]), w.constant(1, INT64)
    )
    at = w.node("Mul", places, w.size(computed("+", columns, 1)))
    at = w.node("Add", at, w.size(first))
    return w.node("Gather", row, at, axis=len(lead))


def windows(w: Writer, count: Any, step: int, inside: np.ndarray) -> Ref:
    """The places ``inside`` of each window, which begin at 0, ``step``, ...: a matrix."""
    if is_number(count):
        return w.constant(np.add.outer(np.arange(int(count)) * step, inside), INT64)
    at = w.node("Range", w.constant(0, INT64), w.size(count), w.constant(1, INT64))
    at = w.node("Mul", at, w.constant(step, INT64)) if step != 1 else at
    return w.node("Add", w.unsqueeze(at, (1,)), w.constant(inside, INT64))


@rule("as_strided")
def _as_strided(w: Writer, a: Ref, **params: Any) -> Ref:
    places = np.array(numbered(a, "as_strided", params)) - 1
    hole = int(np.prod(a.shape or (1,), dtype=int))
    return placed(w, a, np.where(places < 0, hole, places), hole)


@rule("unfold")
def _unfold(w: Writer, a: Ref, dim: int, size: int, step: int) -> Ref:
    rank = a.rank
    if not rank:
        return w.reshape(a, (1,))
    at = windows(w, w.outs[0].shape[dim], step, np.arange(size))
    found = w.node("Gather", a, at, axis=dim)
    dims = [*range(dim + 1), *range(dim + 2, rank + 1), dim + 1]
    return w.transpose(found, dims)


@rule("fold_windows")
def _fold_windows(w: Writer, g: Ref, dim: int, size: int, step: int, shape: tuple) -> Ref:
    if not static(g.shape) or not static(shape) or not shape:
        raise Unmapped("fold_windows of sizes that depend on the input")
    rank, count = g.rank, int(g.shape[dim])  # type: ignore[index]
    dims = [*range(dim + 1), rank - 1, *range(dim + 1, rank - 1)]
    row = w.reshape(w.transpose(g, dims), (*shape[:dim], count * size, *shape[dim + 1 :]))
    at = (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1)
    at = at.reshape(*(1,) * dim, -1, *(1,) * (len(shape) - dim - 1))
    index = np.broadcast_to(at, (*shape[:dim], count * size, *shape[dim + 1 :]))
    zeros = w.full(shape, 0, g.dtype)
    return w.node("ScatterElements", zeros, w.constant(index, INT64), row, axis=dim,
                  reduction="add")  # fmt: skip
