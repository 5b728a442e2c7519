"""Primitives that read and write at places given by integer tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import BOOL, FLOAT, INT64, Ref
from ..writer import Writer, rule

_REDUCED = {"amax": "max", "amin": "min", "prod": "mul"}


@rule("take")
def _take(w: Writer, a: Ref, index: Ref, dim: int, skip: Any = None) -> Ref:
    return w.node("Gather", a, index, axis=dim)


@rule("gather")
def _gather(w: Writer, a: Ref, index: Ref, dim: int) -> Ref:
    return w.node("GatherElements", a, index, axis=dim)


def _combined(w: Writer, kind: str, base: Ref, index: Ref, g: Ref, **how: Any) -> Ref:
    """What falls on one place taken together; of half types in float32."""
    wide = FLOAT if base.dtype.itemsize == 2 and base.dtype.kind in "fV" else base.dtype
    found = w.node(kind, w.cast(base, wide), index, w.cast(g, wide), **how)
    return w.cast(found, base.dtype)


def _added(w: Writer, zeros: Ref, index: Ref, g: Ref, dim: int, reduction: str = "add") -> Ref:
    return _combined(w, "ScatterElements", zeros, index, g, axis=dim, reduction=reduction)


@rule("put_along")
def _put_along(w: Writer, g: Ref, index: Ref, dim: int, shape: tuple) -> Ref:
    return _added(w, w.full(shape, 0, g.dtype), index, g, dim)


@rule("scatter")
def _scatter(w: Writer, a: Ref, index: Ref, src: Any, dim: int) -> Ref:
    assert index.shape is not None
    given = w.expand(w.operand(src, a.dtype), index.shape)
    return w.node("ScatterElements", a, index, given, axis=dim)


@rule("scatter_reduce")
def _scatter_reduce(
    w: Writer, a: Ref, index: Ref, src: Ref, dim: int, reduce: str, include_self: bool
) -> Ref:
    if reduce != "prod":
        w.needs(18, f"scatter_reduce(reduce={reduce!r})")
    if not include_self:
        kind = a.dtype
        ends = np.iinfo(kind) if kind.kind in "iu" else None
        neutral: Any = {
            "prod": 1, "amax": ends.min if ends else -np.inf, "amin": ends.max if ends else np.inf
        }[reduce]  # fmt: skip
        a = _scatter(w, a, index, neutral, dim)
    return _added(w, a, index, src, dim, _REDUCED[reduce])


@rule("spread")
def _spread(w: Writer, g: Ref, index: Ref, dim: int, shape: tuple, skip: Any = None) -> Ref:
    """Rows added up by number: a ``ScatterND`` whose rows stand in front."""
    k, rank = index.rank, g.rank
    order = [*range(dim, dim + k), *range(dim), *range(dim + k, rank)]
    rows = w.transpose(g, order)
    if skip is not None:
        kept = w.node("Equal", index, w.constant(skip, index.dtype), dtype=BOOL)
        kept = w.unsqueeze(kept, list(range(k, rank))) if rank > k else kept
        rows = w.where(kept, 0, rows, g.dtype)
    front = (shape[dim], *shape[:dim], *shape[dim + 1 :])
    at = w.unsqueeze(w.cast(index, INT64), (k,))
    found = _combined(w, "ScatterND", w.full(front, 0, g.dtype), at, rows, reduction="add")
    back = [*range(1, dim + 1), 0, *range(dim + 1, len(shape))]
    return w.transpose(found, back)


@rule("put")
def _put(w: Writer, a: Ref, index: Ref, values: Any, accumulate: bool) -> Ref:
    """Any places of the flattened array."""
    row, at = w.reshape(a, (-1,)), w.reshape(w.cast(index, INT64), (-1,))
    given = w.operand(values, a.dtype)
    assert index.shape is not None
    given = w.reshape(w.expand(given, index.shape), (-1,))
    if accumulate:
        out = _added(w, row, at, given, 0)
    else:
        out = w.node("ScatterElements", row, at, given, axis=0)
    return w.reshape(Ref(out.name, out.dtype), w.outs[0].shape)


@rule("searchsorted")
def _searchsorted(
    w: Writer, edges: Ref, values: Ref, sorter: Ref | None = None, *, side: str, kind: Any
) -> Ref:
    """How many edges come before each value."""
    if sorter is not None:
        edges = w.node("GatherElements", edges, sorter, axis=-1)
    if edges.rank > 1:
        edges = w.unsqueeze(edges, (edges.rank - 1,))
    common = np.result_type(edges.dtype, values.dtype)
    column = w.unsqueeze(w.cast(values, common), (values.rank,))
    test = "Less" if side == "left" else "LessOrEqual"
    before = w.node(test, w.cast(edges, common), column, dtype=BOOL)
    return w.cast(w.reduce("ReduceSum", w.cast(before, INT64), (values.rank,), False), kind)
