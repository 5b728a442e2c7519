"""Order: sort, topk, median, unique, counts. Gradients go through ``gather`` at what was found."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from ...core.classes import values_of
from ...core.tensor import Tensor, beside
from ...core.types.casting import computes_in
from ...core.types.wide import is_half
from ...errors import ConfigError, DimError, DTypeError, ShapeError
from ...symbolic import as_int
from ..primitives import elementwise as el
from ..primitives import reduce
from ..primitives.gathering import gather, take
from ..primitives.sort import argsort_, median_places, sortable, top_places
from ..primitives.views import getitem, reshape
from ..promotion import refuse, same_type
from .args import kinds, one_dim
from .args import tensor as as_input
from .views.join import stack
from .views.split import unbind


class ValuesIndices(NamedTuple):
    """What functions along a dimension return."""

    values: Tensor
    indices: Tensor


# --- along a dimension -------------------------------------------------------------------------
def _line(where: str, input: Tensor, dim: int, allowed: str = "iufV") -> tuple[Tensor, int]:
    """The input with at least one dimension, and ``dim`` from 0 on."""
    kinds(where, allowed, as_input(input, where))
    d = one_dim(dim, as_input(input, where).ndim, where)
    return (input if input.ndim else reshape(input, shape=(1,))), d


def _shaped(input: Tensor, values: Tensor, places: Tensor) -> ValuesIndices:
    if input.ndim:
        return ValuesIndices(values, places)
    return ValuesIndices(reshape(values, shape=()), reshape(places, shape=()))


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesIndices:
    """Sorted values along ``dim`` and where they were. Always stable; nan is the largest."""
    x, d = _line("sort", input, dim, "biufV")
    places = argsort_(x, dim=d, descending=bool(descending))
    return _shaped(input, gather(x, places, dim=d), places)


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Where the elements in order along ``dim`` are."""
    x, d = _line("argsort", input, dim, "biufV")
    places = argsort_(x, dim=d, descending=bool(descending))
    return places if input.ndim else reshape(places, shape=())


def msort(input: Tensor) -> Tensor:
    """``sort`` along the first dimension, values only."""
    return sort(input, 0).values


def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> ValuesIndices:
    """The ``k`` largest (or smallest) values along ``dim``, best first, and where they are."""
    x, d = _line("topk", input, dim)
    k = 1 if not input.ndim and k == 0 else k  # without dimensions there is one value
    if not 0 <= k <= x.shape[d]:
        raise ShapeError(
            f"topk: k={k} given for dimension {d} of size {x.shape[d]}; it must lie in "
            f"0..{x.shape[d]}"
        )
    places = top_places(x, k=as_int(k), dim=d, largest=bool(largest))
    return _shaped(input, gather(x, places, dim=d), places)


def _kth(input: Tensor, k: int, dim: int, keepdim: bool) -> ValuesIndices:
    """The k-th smallest value along ``dim``, counted from 1."""
    where = (slice(None),) * dim + (slice(k - 1, k),)
    places = getitem(argsort_(input, dim=dim, descending=False), index=where)
    return _at(input, places, dim, keepdim)


def _at(input: Tensor, places: Tensor, dim: int, keepdim: bool) -> ValuesIndices:
    """The values at ``places``, of which there is one along ``dim``."""
    values = gather(input, places, dim=dim)
    if keepdim:
        return ValuesIndices(values, places)
    shape = tuple(n for i, n in enumerate(values.shape) if i != dim)
    return ValuesIndices(reshape(values, shape=shape), reshape(places, shape=shape))


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The ``k``-th smallest value along ``dim`` (counted from 1), and where it is."""
    x, d = _line("kthvalue", input, dim)
    if not 1 <= k <= x.shape[d]:
        raise DimError(
            f"kthvalue: k={k} given for dimension {d} of size {x.shape[d]}; it must lie in "
            f"1..{x.shape[d]}"
        )
    out = _kth(x, k, d, keepdim)
    return out if input.ndim else _shaped(input, *out)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements; along ``dim`` with its places."""
    x, d = _line("median", input, 0 if dim is None else dim)
    if dim is None:
        flat = reshape(input, shape=(-1,))
        if flat.shape[0] == 0:
            return _of_nothing(flat)
        middle = _middle(flat, 0, False).values
        return shared(flat, middle.detach()) if input.requires_grad else middle
    if x.shape[d] == 0:
        return _no_median(input)
    out = _middle(x, d, keepdim)
    return out if input.ndim else _shaped(input, *out)


def shared(flat: Tensor, value: Tensor) -> Tensor:
    """``value``, which is among ``flat``, with a gradient that all equal elements share."""
    odd = el.logical_and(el.isnan(value), el.isnan(flat))
    equal = el.logical_or(el.eq(flat, value), odd)
    most, least = (
        extreme(el.where(equal, flat, other), dims=(0,), keepdim=False)
        for extreme, other in ((reduce.amax, -inf), (reduce.amin, inf))
    )
    return el.where(
        el.lt(value, 0), least, most
    )  # none is infinite as what the others are taken for


def _of_nothing(flat: Tensor) -> Tensor:
    """nan, and for integers the smallest one, which PyTorch takes for nan."""
    if flat.meta()[1].kind in "iu":
        least = np.asarray(np.iinfo(flat.meta()[1]).min, flat.meta()[1])
        return beside(flat, least)
    return reduce.sum_(flat, dims=(0,), keepdim=False) * nan


def _no_median(input: Tensor) -> Any:
    raise DimError(f"median: the tensor is empty (shape {list(input.shape)}); it has none")


def _middle(x: Tensor, d: int, keepdim: bool) -> ValuesIndices:
    """The lower median along ``d``; the first nan where there is one."""
    return _at(x, median_places(x, dim=d), d, keepdim)


@computes_in("own")
def quantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:  # fmt: skip
    """The value below which the share ``q`` (in [0, 1]; several give a first dimension) of the
    elements lies, interpolated; nan where there is one."""
    kinds("quantile", "fV", as_input(input, "quantile"))
    if is_half(input.meta()[1]):
        raise refuse("quantile", input.meta()[1])
    if interpolation not in _BETWEEN:
        raise ConfigError(
            f"quantile: interpolation={interpolation!r} given; needed one of {', '.join(_BETWEEN)}"
        )
    if isinstance(q, Tensor):
        same_type("quantile", input, q)
        if q.ndim > 1:
            raise ShapeError(f"quantile: q of shape {list(q.shape)} given; needed 0-d or 1-d")
        if q.ndim:
            shares = unbind(q) if q.requires_grad else [float(share) for share in q.tolist()]
            return stack(
                [quantile(input, p, dim, keepdim, interpolation=interpolation) for p in shares], 0
            )
    share = float(q)
    if not 0 <= share <= 1:
        raise ConfigError(f"quantile: q={q} given; it must lie in [0, 1]")
    if dim is None:
        ones = (1,) * input.ndim
        flat = quantile(reshape(input, shape=(-1,)), q, 0, interpolation=interpolation)
        return reshape(flat, shape=ones) if keepdim else flat
    x, d = _line("quantile", input, dim)
    if not input.shape.numel():
        raise ShapeError(f"quantile: the tensor is empty (shape {list(input.shape)})")
    follows = isinstance(q, Tensor) and q.requires_grad and interpolation == "linear"
    out = _quantile(x, share, d, keepdim, _BETWEEN[interpolation], q if follows else None)
    odd = reduce.any_(el.isnan(x), dims=(d,), keepdim=keepdim)
    if x.requires_grad:  # it goes to what makes the result nan: the last one in order
        out = el.where(odd, _kth(x, x.shape[d], d, keepdim).values, out)
    else:
        out = el.where(odd, nan, out)
    return out if input.ndim else reshape(out, shape=())


_BETWEEN: dict[str, Callable[[float], float]] = {  # how far from the element below, by the place
    "linear": lambda place: place % 1, "lower": lambda place: 0.0, "higher": lambda place: 1.0,
    "midpoint": lambda place: 0.5, "nearest": lambda place: round(place) - int(place),
}  # fmt: skip


def _quantile(
    x: Tensor, share: float, d: int, keepdim: bool, between: Callable[[float], float], q: Any
) -> Tensor:
    """``q``: ``share`` as a Tensor where gradients follow it. At an element its derivative is 0."""
    last = x.shape[d] - 1
    place = share * last
    low = int(place)
    below = _kth(x, low + 1, d, keepdim).values
    part: Any = 0.0 if place == low else between(place)
    if not part:
        return below if q is None else below + q * 0.0
    above = _kth(x, low + 2, d, keepdim).values
    return below + (above - below) * (part if q is None else q * last - low)


# --- counting ----------------------------------------------------------------------------------
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False,  # noqa: A002
    return_counts: bool = False, dim: int | None = None,
) -> Any:  # fmt: skip
    """The distinct elements (or slices along ``dim``) in order, and when asked for: which of them
    each element is, and how often each stands."""
    kinds("unique", "biufV", as_input(input, "unique"))
    array = values_of(input)
    if dim is not None:
        dim = one_dim(dim, input.ndim, "unique")
    found, first, inverse, counts = np.unique(
        sortable(array),
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=dim,
        equal_nan=False,
    )
    found = found.astype(array.dtype, copy=False)
    inverse = inverse.reshape(array.shape if dim is None else -1)
    out = [_picked(input, found, first, dim)]
    out += [beside(input, inverse.astype(np.int64, copy=False))] if return_inverse else []
    out += [beside(input, counts.astype(np.int64, copy=False))] if return_counts else []
    return out[0] if len(out) == 1 else tuple(out)


def _picked(input: Tensor, found: np.ndarray, first: np.ndarray, dim: int | None) -> Tensor:  # noqa: A002
    """What was found; as elements of ``input``, the first of equals, where it wants a gradient."""
    if not input.requires_grad:
        return beside(input, found)
    flat = reshape(input, shape=(-1,)) if dim is None else input
    return take(flat, beside(input, first.astype(np.int64, copy=False)), dim=dim or 0)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The flattened input (along ``dim``: its slices) with runs of equal elements as one."""
    array = values_of(as_input(input, "unique_consecutive"))
    d = None if dim is None else one_dim(dim, input.ndim, "unique_consecutive")
    rows = array.reshape(-1) if d is None else np.moveaxis(array, d, 0)
    n = len(rows)
    changes = (rows[1:] != rows[:-1]).reshape(max(n - 1, 0), -1).any(1) if n > 1 else ()
    starts = np.flatnonzero(np.append(True, changes)) if n else np.zeros(0, np.int64)
    counts = np.diff(np.append(starts, n))
    found = rows[starts] if d is None else np.moveaxis(rows[starts], 0, d)
    out = [_picked(input, np.ascontiguousarray(found), starts, d)]
    if return_inverse:
        places = np.repeat(np.arange(len(starts)), counts)
        out.append(beside(input, places.reshape(input.shape) if d is None else places))
    if return_counts:
        out.append(beside(input, counts))
    return out[0] if len(out) == 1 else tuple(out)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on stands in ``input`` (or the sums of ``weights`` there)."""
    array = values_of(as_input(input, "bincount"))
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise DTypeError(
            f"bincount: {input.dtype!r} of shape {list(input.shape)} given; needed one dimension "
            "of integers"
        )
    if array.size and array.min() < 0:
        raise ShapeError(f"bincount: {int(array.min())} given; numbers must not be negative")
    if weights is None:
        return beside(input, np.bincount(array, minlength=minlength))
    given = values_of(weights)
    out = np.bincount(array, given, minlength)
    return beside(input, out.astype(given.dtype) if given.dtype == np.float32 else out)


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:  # noqa: A002
    """How many elements lie in each of ``bins`` equal intervals of [min, max]; of the input's own
    range when both are equal."""
    as_input(input, "histc")
    if bins < 1:
        raise ConfigError(f"histc: bins={bins} given; at least one is needed")
    if min > max:
        raise ConfigError(f"histc: min={min}, max={max} given; max must be larger than min")
    kinds("histc", "fV", input)
    array = values_of(input)
    low, high = float(min), float(max)
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
    if not (low <= high and isfinite(high - low)):
        raise ConfigError(
            f"histc: the range of [{low}, {high}] given (or that of the input); it must be finite, "
            "and max must not be below min"
        )
    if low == high:
        low, high = low - 1, high + 1
    counts, _ = np.histogram(array.astype(np.float64), bins, (low, high))
    return beside(input, counts.astype(array.dtype))


__all__ = [
    "argsort",
    "bincount",
    "histc",
    "kthvalue",
    "median",
    "msort",
    "quantile",
    "sort",
    "topk",
    "unique",
    "unique_consecutive",
]
