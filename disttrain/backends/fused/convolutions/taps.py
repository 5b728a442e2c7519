"""Sums of scaled shifts of an array, in one pass: what convolutions of single channels are.

    weighted_sum(views, scales, out)      out = views[0] * scales[0] + views[1] * scales[1] + ...
    products(g, views) -> list            per row of g, the sums of g * view along the last axis

The terms are added in their order, a few at a time where they are many. ``views`` have any strides
(they overlap), and broadcast with ``scales`` to the shape of ``out``. float32 and float64; other
types by numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy import ndarray

from ...family import Family
from ...lang.expr import Expr, var
from ...lang.kernel import Array, Kernel, Loop, Put, Reduce, Store

_TOGETHER = 16  # terms of one kernel


def _sum(count: int, more: bool, dtype: str) -> Kernel:
    views = [Array(f"x{k}", dtype) for k in range(count)]
    scales = [Array(f"w{k}", dtype) for k in range(count)]
    total: Expr | None = var("y") if more else None
    for k in range(count):
        term = var(f"x{k}") * var(f"w{k}")
        total = term if total is None else total + term
    assert total is not None
    out = Array("y", dtype, writes=True)
    name = f"weighted_sum_{count}{'_more' if more else ''}"
    return Kernel(name, (*views, *scales, out), (Loop((Store("y", total),)),), flat=True)


def _products(count: int, dtype: str) -> Kernel:
    views = [Array(f"x{k}", dtype) for k in range(count)]
    outs = [Array(f"y{k}", dtype, "row", writes=True) for k in range(count)]
    body = tuple(Reduce(f"s{k}", "sum", var("g") * var(f"x{k}")) for k in range(count))
    puts = tuple(Put(f"y{k}", var(f"s{k}")) for k in range(count))
    return Kernel(f"products_{count}", (Array("g", dtype), *views, *outs), (Loop(body), *puts))


_COUNTS = range(1, _TOGETHER + 1)
_SUMS = {(n, more): Family(partial(_sum, n, more)) for n in _COUNTS for more in (False, True)}
_PRODUCTS = {n: Family(partial(_products, n)) for n in _COUNTS}


def _has_kernel(*arrays: ndarray) -> bool:
    return {a.dtype.char for a in arrays} in ({"f"}, {"d"})


def weighted_sum(views: Sequence[ndarray], scales: Sequence[ndarray], out: ndarray) -> None:
    """``out`` becomes the sum of ``views``, each times its scale."""
    if not _has_kernel(out, *views, *scales):
        out[...] = views[0] * scales[0]
        for view, scale in zip(views[1:], scales[1:], strict=True):
            out += view * scale
        return
    for first in range(0, len(views), _TOGETHER):
        xs, ws = views[first : first + _TOGETHER], scales[first : first + _TOGETHER]
        _SUMS[len(xs), first > 0][out.dtype].slow(*xs, *ws, out)


def products(g: ndarray, views: Sequence[ndarray]) -> list[ndarray]:
    """For each view, which broadcasts with ``g``, the sums along the last axis of both's product:
    arrays of the shape of ``g`` without it."""
    if not _has_kernel(g, *views):
        return [(g * view).sum(axis=-1) for view in views]
    found = [np.empty(g.shape[:-1], g.dtype) for _ in views]
    for first in range(0, len(views), _TOGETHER):
        xs, ys = views[first : first + _TOGETHER], found[first : first + _TOGETHER]
        spread = [np.broadcast_to(x, g.shape) for x in xs]
        _PRODUCTS[len(xs)][g.dtype].slow(g, *spread, *ys)
    return found


__all__ = ["products", "weighted_sum"]
