"""How often numbers occur: alone, and between edges."""

from __future__ import annotations

import math
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops


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
    a: Tensor,
    bins: Any = 10,
    range: Any = None,
    weights: Tensor | None = None,  # noqa: A002
) -> Tensor:
    """The edges of ``bins`` (a number, or edges) between the least and the largest element."""
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    if isinstance(bins, Tensor) and bins.ndim:
        return bins.to(a.dtype)
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
    a: Tensor, bins: Any = 10, range: Any = None, weights: Tensor | None = None,  # noqa: A002
    density: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """How many elements lie between neighbouring edges, of which the last is taken in, and the
    edges."""
    counts, edges = histogramdd(a.reshape(-1, 1), [bins], [range], weights, density)
    return counts.to(edges[0].dtype), edges[0]


def histogramdd(
    sample: Tensor, bins: Any = 10, range: Any = None, weights: Tensor | None = None,  # noqa: A002
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
    x: Tensor, y: Tensor, bins: Any = 10, range: Any = None, weights: Tensor | None = None,  # noqa: A002
    density: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``histogramdd`` of points in a plane."""
    if isinstance(bins, Tensor) and bins.ndim:
        bins = [bins, bins]
    counts, edges = histogramdd(ops.stack([x, y], 1), bins, range, weights, density)
    return counts, edges[0], edges[1]
