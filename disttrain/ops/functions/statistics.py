"""Statistics of what lies along a dimension: the commonest, the middle without nan, membership."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np

from ...context import SLOW, thread
from ...core.annotations import Dims, DTypeLike, Scalar
from ...core.classes import values_of
from ...core.tensor import Tensor, beside
from ...core.tracer import Tracer
from ...core.types.casting import computes_in
from ...errors import ConfigError, DimError, DTypeError, ShapeError
from ..primitives import elementwise as el
from ..promotion import refuse
from .args import dims, kinds, one_dim
from .args import tensor as as_input
from .elementwise import clamp
from .gathering import gather
from .reduce import amax, amin, nansum, sum
from .sort import ValuesIndices, argsort, quantile, shared
from .views.join import stack
from .views.shapes import movedim, reshape
from .views.split import narrow, select, unbind


class MinMax(NamedTuple):
    """What ``aminmax`` gives."""

    min: Tensor
    max: Tensor


class Histogram(NamedTuple):
    """What ``histogram`` gives."""

    hist: Tensor
    bin_edges: Tensor


class Histogramdd(NamedTuple):
    """What ``histogramdd`` gives."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest element (along ``dim``; None: of all)."""
    kinds("aminmax", "biufV", as_input(input, "aminmax"))
    over = () if dim is None else (one_dim(dim, input.ndim, "aminmax"),)
    where: Any = over or None
    if not input.ndim:
        return MinMax(el.copy(input), el.copy(input))
    return MinMax(amin(input, where, keepdim), amax(input, where, keepdim))


def nanmean(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The mean over ``dim`` (None: all) of what is not nan."""
    kind = as_input(input, "nanmean").dtype
    if not (kind.is_floating_point or kind.is_complex):
        raise DTypeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {kind!r}"
        )
    known = el.logical_not(el.isnan(input))
    over = None if dim is None else dims(dim, input.ndim, "nanmean")
    counts = sum(known, over, keepdim)
    totals = nansum(input, over, keepdim, dtype=dtype)
    return totals / el.cast(counts, dtype=totals.meta()[1])


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of what is not nan; along ``dim`` with its places. Of nothing it is nan."""
    kinds("nanmedian", "iufV", as_input(input, "nanmedian"))
    d = one_dim(0 if dim is None else dim, input.ndim, "nanmedian")
    if dim is None or not input.ndim:
        flat = reshape(input, (-1,))
        if not flat.shape[0]:
            return flat.median()
        places = _middle_places(flat, 0)
        value = reshape(gather(flat, 0, places), ())
        if dim is None:
            return shared(flat, value.detach()) if input.requires_grad else value
        return ValuesIndices(value, reshape(places, ()))
    if not input.shape[d]:
        raise DimError(f"nanmedian: Expected reduction dim {d} to have non-zero size.")
    places = _middle_places(input, d)
    values = gather(input, d, places)
    if keepdim:
        return ValuesIndices(values, places)
    return ValuesIndices(select(values, d, 0), select(places, d, 0))


def _middle_places(x: Tensor, d: int) -> Tensor:
    """Where the lower median of the numbers along ``d`` is: nan is sorted to the end."""
    order = argsort(x.detach(), d)
    if not x.dtype.is_floating_point:
        return narrow(order, d, (x.shape[d] - 1) // 2, 1)
    counts = sum(el.logical_not(el.isnan(x.detach())), d, True)
    middle = clamp(counts - 1, min=0) // 2
    return gather(order, d, middle)


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The commonest element along ``dim`` (the smallest of several), and where it stands last."""
    kinds("mode", "biufV", as_input(input, "mode"))
    d = one_dim(dim, input.ndim, "mode")
    if not input.ndim:
        return ValuesIndices(el.copy(input), beside(input, np.zeros((), np.int64)))
    if not input.shape[d]:
        raise DimError(f"mode: Expected reduction dim {d} to have non-zero size.")
    if isinstance(input, Tracer):
        found = _commonest_places(movedim(input.detach(), d, -1)).unsqueeze(d)
        values = gather(input, d, found)
        if keepdim:
            return ValuesIndices(values, found)
        return ValuesIndices(select(values, d, 0), select(found, d, 0))
    array = values_of(input)
    rows = np.moveaxis(array, d, -1).astype(np.float32 if array.dtype.kind == "V" else array.dtype)
    places = np.apply_along_axis(_commonest, -1, rows) if rows.size else np.zeros(rows.shape[:-1])
    found = beside(input, np.expand_dims(places.astype(np.int64), d))
    values = gather(input, d, found)
    if keepdim:
        return ValuesIndices(values, found)
    return ValuesIndices(select(values, d, 0), select(found, d, 0))


def _commonest_places(rows: Any) -> Tensor:
    """``_commonest`` of each of ``rows``, without their numbers: by how many are equal to each
    element, and how many are less."""
    n = rows.shape[-1]
    where = el.where
    each, other = rows.unsqueeze(-1), rows.unsqueeze(-2)
    counts = (each == other).sum(-1).clamp(min=1)
    rank = where(rows == rows, (other < each).sum(-1), n)  # nan is equal to none, and comes last
    score = where(counts == counts.amax(-1, keepdim=True), rank, n + 1)
    last = score == score.amin(-1, keepdim=True)
    places = beside(rows, np.arange(n, dtype=np.int64))
    return where(last, places, -1).amax(-1)


def _commonest(row: np.ndarray) -> int:
    values, counts = np.unique(row, return_counts=True, equal_nan=False)
    best = values[counts.argmax()]
    same = np.isnan(row) if best != best else row == best
    return int(np.flatnonzero(same)[-1])


@computes_in("own")
def nanquantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:  # fmt: skip
    """``quantile`` of what is not nan; nan where there is nothing else."""
    kinds("nanquantile", "fV", as_input(input, "nanquantile"))
    if isinstance(q, Tensor) and q.ndim == 1:
        each = [nanquantile(input, p, dim, keepdim, interpolation=interpolation) for p in unbind(q)]
        return stack(each, 0)
    share = q if isinstance(q, Tensor) else float(q)
    quantile(narrow(reshape(input, (-1,)), 0, 0, 1), q, interpolation=interpolation)  # its checks
    if dim is None or not input.ndim:
        flat = _nanquantile(reshape(input, (-1,)), share, 0, interpolation)
        return reshape(flat, (1,) * input.ndim if keepdim else ())
    d = one_dim(dim, input.ndim, "nanquantile")
    out = _nanquantile(input, share, d, interpolation)
    return out if keepdim else select(out, d, 0)


def _nanquantile(x: Tensor, share: float | Tensor, d: int, interpolation: str) -> Tensor:
    """The quantile along ``d``, which stays, of what is not nan."""
    order = argsort(x.detach(), d)
    counts = sum(el.logical_not(el.isnan(x.detach())), d, True)
    last = clamp(counts - 1, min=0)
    place = el.cast(last, dtype=x.meta()[1]) * share
    low, high = place.floor(), place.ceil()
    ends = [gather(x, d, gather(order, d, side.long())) for side in (low, high)]
    part = {
        "linear": lambda: place - low, "lower": lambda: place * 0, "midpoint": lambda: (
            (high - low) * 0.5
        ), "higher": lambda: high - low, "nearest": lambda: place.round() - low,
    }[interpolation]()  # fmt: skip
    return el.where(part == 0, ends[0], ends[0] + (ends[1] - ends[0]) * part)


def isin(
    elements: Tensor | Scalar, test_elements: Tensor | Scalar, *, assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:  # fmt: skip
    """Whether each of ``elements`` is among ``test_elements`` (with ``invert``: is not)."""
    near = elements if isinstance(elements, Tensor) else test_elements
    if not isinstance(near, Tensor):
        raise TypeError("isin: one of elements and test_elements must be a Tensor")
    kinds("isin", "biufV", near)
    if thread.mode == SLOW:  # (interpreters have numbers that nobody may read)
        among = test_elements.reshape(-1) if isinstance(test_elements, Tensor) else test_elements
        each = elements.unsqueeze(-1) if isinstance(elements, Tensor) else elements
        found = el.eq(each, among)
        found = found.any(-1) if found.ndim > getattr(elements, "ndim", 0) else found
        return ~found if invert else found
    own, others = _plain(elements), _plain(test_elements)
    return beside(near, np.isin(own, others, invert=invert))


def _plain(given: Tensor | Scalar) -> np.ndarray:
    array = values_of(given) if isinstance(given, Tensor) else np.asarray(given)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


# --- histograms --------------------------------------------------------------------------------
def histogram(
    input: Tensor, bins: int | Tensor, *, range: Sequence[float] | None = None,  # noqa: A002
    weight: Tensor | None = None, density: bool = False,
) -> Histogram:  # fmt: skip
    """How much (of ``weight``) lies in each of ``bins`` equal intervals of ``range``, or between
    the edges given; the counts and the edges, in the input's type."""
    flat = reshape(as_input(input, "histogram"), (-1, 1))
    one = weight if weight is None else reshape(weight, (-1,))
    counts, (edges,) = _histogram("histogram", flat, [bins], range, one, density)
    return Histogram(counts, edges)


def histogramdd(
    input: Tensor, bins: Any, *, range: Sequence[float] | None = None,  # noqa: A002
    weight: Tensor | None = None, density: bool = False,
) -> Histogramdd:  # fmt: skip
    """``histogram`` of points, whose coordinates are the last dimension of ``input``."""
    n = as_input(input, "histogramdd").shape[-1]
    each = [bins] * n if isinstance(bins, int) else list(bins)
    if len(each) != n:
        raise ShapeError(f"histogramdd: {len(each)} bins given for points of {n} coordinates")
    if not n:  # points without coordinates lie nowhere
        return Histogramdd(input.new_full((), nan if density else 0.0), ())
    one = weight if weight is None else reshape(weight, (-1,))
    return Histogramdd(
        *_histogram(
            "histogramdd", reshape(input, (input.shape[:-1].numel(), n)), each, range, one, density
        )
    )


def _histogram(
    where: str, points: Tensor, bins: list, span: Any, weight: Tensor | None, density: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    kinds(where, "f", points)
    kind = points.meta()[1]
    if kind.itemsize < 4:
        raise refuse(where, kind)
    if weight is not None and weight.dtype is not points.dtype:
        raise DTypeError(f"{where}: weight of {weight.dtype!r} given for {points.dtype!r}")
    array = values_of(points)
    edges = []
    for i, n in enumerate(bins):
        if isinstance(n, Tensor):
            edges.append(_edges(where, n, points))
            continue
        if n < 1:
            raise ConfigError(f"{where}: bins must be > 0, but got {n} for dimension {i}")
        low, high = _span(where, array[:, i], None if span is None else span[2 * i : 2 * i + 2])
        edges.append(np.linspace(low, high, n + 1, dtype=kind))
    given = None if weight is None else values_of(weight)
    counts, _ = np.histogramdd(array, edges, density=bool(density), weights=given)
    return beside(points, counts.astype(kind)), tuple(beside(points, e.astype(kind)) for e in edges)


def _edges(where: str, given: Tensor, points: Tensor) -> np.ndarray:
    if given.dtype is not points.dtype:
        raise ConfigError(f"{where}: bins of {given.dtype!r} given for {points.dtype!r}")
    edges = values_of(given)
    if given.ndim != 1 or not edges.size:
        raise ShapeError(f"{where}: bins of shape {list(given.shape)} given; needed a row of edges")
    if (edges[1:] < edges[:-1]).any():
        raise ConfigError(f"{where}: bins must increase; {edges.tolist()} given")
    return edges


def _span(where: str, column: np.ndarray, span: Any) -> tuple[float, float]:
    if span is None:
        low, high = (float(column.min()), float(column.max())) if column.size else (0.0, 1.0)
    else:
        low, high = map(float, span)
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise ConfigError(f"{where}: range [{low}, {high}] is not finite, or its ends are swapped")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


__all__ = [
    "aminmax",
    "histogram",
    "histogramdd",
    "isin",
    "mode",
    "nanmean",
    "nanmedian",
    "nanquantile",
]
