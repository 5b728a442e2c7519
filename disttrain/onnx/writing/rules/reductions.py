"""Primitives that reduce or run along dimensions, and those that find places by order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import BOOL, INT64, Ref, Unmapped, computed, is_number
from ..writer import Writer, rule

_INT32 = np.dtype(np.int32)


def _counted(w: Writer, a: Ref) -> Ref:
    """Integers and booleans as the type of their sums."""
    return w.cast(a, w.outs[0].dtype)


@rule("sum")
def _sum(w: Writer, a: Ref, dims: tuple, keepdim: bool) -> Ref:
    return w.reduce("ReduceSum", _counted(w, a), dims, keepdim)


@rule("mean")
def _mean(w: Writer, a: Ref, dims: tuple, keepdim: bool) -> Ref:
    return w.reduce("ReduceMean", a, dims, keepdim)


@rule("prod")
def _prod(w: Writer, a: Ref, dim: int, keepdim: bool) -> Ref:
    return w.reduce("ReduceProd", _counted(w, a), (dim,), keepdim)


@rule("logsumexp")
def _logsumexp(w: Writer, a: Ref, dims: tuple, keepdim: bool) -> Ref:
    return w.reduce("ReduceLogSumExp", a, dims, keepdim)


def _extreme(kind: str) -> Any:
    def run(w: Writer, a: Ref, dims: tuple, keepdim: bool) -> Ref:
        given = w.cast(a, _INT32) if a.dtype.kind in "b" or a.dtype.str[1:] == "i2" else a
        return w.cast(w.reduce(kind, given, dims, keepdim), a.dtype)

    return run


rule("amax")(_extreme("ReduceMax"))
rule("amin")(_extreme("ReduceMin"))


def _flags(kind: str) -> Any:
    def run(w: Writer, a: Ref, dims: tuple, keepdim: bool) -> Ref:
        whether = w.cast(w.bool_of(a), _INT32)
        return w.cast(w.reduce(kind, whether, dims, keepdim), BOOL)

    return run


rule("any")(_flags("ReduceMax"))
rule("all")(_flags("ReduceMin"))


def _place(kind: str) -> Any:
    def run(w: Writer, a: Ref, dim: int, keepdim: bool) -> Ref:
        given = w.cast(a, _INT32) if a.dtype.kind in "biu" and a.dtype.itemsize <= 2 else a
        return w.node(kind, given, dtype=INT64, axis=dim, keepdims=int(keepdim))

    return run


rule("argmax")(_place("ArgMax"))
rule("argmin")(_place("ArgMin"))


@rule("cumsum")
def _cumsum(w: Writer, a: Ref, dim: int) -> Ref:
    a = _counted(w, a)
    return a if not a.rank else w.node("CumSum", a, w.constant(dim, INT64))


@rule("cumprod")
def _cumprod(w: Writer, a: Ref, dim: int) -> Ref:
    """From version 26 on an operator; before, products of what a triangle leaves."""
    a = _counted(w, a)
    if not a.rank:
        return a
    if w.opset >= 26:
        return w.node("CumProd", a, w.constant(dim, INT64))
    assert a.shape is not None
    n = a.shape[dim]
    if not is_number(n):
        raise Unmapped("cumprod of a size that depends on the input needs opset_version=26")
    behind = (1,) * (len(a.shape) - dim - 1)
    seen = np.tri(int(n), dtype=bool).reshape(int(n), int(n), *behind)
    rows = w.unsqueeze(a, (dim,))
    return w.reduce("ReduceProd", w.where(w.constant(seen), rows, 1, a.dtype), (dim + 1,), False)


# --- places by order ---------------------------------------------------------------------------
def _top(w: Writer, a: Ref, k: Any, dim: int, largest: bool) -> Ref:
    given = w.cast(a, _INT32) if a.dtype.itemsize < 4 and a.dtype.kind in "iub" else a
    given = w.cast(given, np.float32) if given.dtype.kind == "V" else given
    _, places = w.node("TopK", given, w.ints([k]), outputs=2, axis=dim, largest=int(largest))
    return Ref(places.name, INT64)


@rule("argsort")
def _argsort(w: Writer, a: Ref, dim: int, descending: bool) -> Ref:
    if not a.rank:
        return w.constant(0, INT64)
    assert a.shape is not None
    return _top(w, a, a.shape[dim], dim, descending)


@rule("top_places")
def _top_places(w: Writer, a: Ref, k: Any, dim: int, largest: bool) -> Ref:
    return _top(w, a, k, dim, largest)


@rule("median_places")
def _median_places(w: Writer, a: Ref, dim: int) -> Ref:
    assert a.shape is not None
    n = a.shape[dim]
    before = computed("//", computed("-", n, 1), 2)
    k = computed("+", before, 1)
    return w.slice(_top(w, a, k, dim, False), dim, before, k)
