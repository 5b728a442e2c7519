"""Reductions with NumPy's arguments: any axes, ``keepdims``, ``where``, ``initial``, nan left out.

Element types are the caller's: a sum is in the type of what is summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import ShapeError
from ..ops import api as ops
from . import elements
from .axes import Axis, axes_of, axis_of


def _cast(x: Tensor, kind: Any) -> Tensor:
    return x if kind is None or x.dtype is kind else x.to(kind)


def _least(x: Tensor) -> Any:
    kind = x.meta()[1]
    if kind.kind == "b":
        return False
    return np.iinfo(kind).min if kind.kind in "iu" else -float("inf")


def _most(x: Tensor) -> Any:
    kind = x.meta()[1]
    if kind.kind == "b":
        return True
    return np.iinfo(kind).max if kind.kind in "iu" else float("inf")


def _chosen(x: Tensor, where: Tensor | None, neutral: Any) -> Tensor:
    return x if where is None else ops.where(where, x, ops.full_like(x, neutral))


def _of_complex(fn: Callable, sign: float) -> Callable:
    """An extreme; of complex numbers by real parts first."""

    def run(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if not x.is_complex():
            return fn(x, axes, keepdims)
        best = fn(ops.real(x), axes, True)
        rest = ops.where(ops.real(x) == best, ops.imag(x), sign * float("inf"))
        out = ops.complex(best, fn(rest, axes, True))
        return out if keepdims else out.reshape([n for d, n in enumerate(x.shape) if d not in axes])

    return run


def _reduced(fn: Callable, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    axes = axes_of(axis, x.ndim)
    return fn(x, axes, keepdims) if axes else fn(ops.unsqueeze(x, 0), (0,), False)


def _extreme(name: str, fn: Callable, pair: Callable, neutral: Callable) -> Callable:
    def run(
        a: Tensor, axis: Axis = None, keepdims: bool = False, initial: Tensor | None = None,
        where: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        axes = axes_of(axis, a.ndim)
        if initial is None:
            if where is not None:
                raise ValueError(
                    f"reduction operation {name} does not have an identity, so to use a where mask "
                    "one has to specify 'initial'"
                )
            if any_(not a.shape[d] for d in axes):
                raise ValueError(
                    f"zero-size array to reduction operation {name} which has no identity"
                )
        else:
            shape = [1 if d in axes else n for d, n in enumerate(a.shape)]
            if any_(not a.shape[d] for d in axes):
                out = a.new_full([n for d, n in enumerate(shape) if keepdims or d not in axes],
                                 neutral(a))  # fmt: skip
                return pair(out, _cast(initial, out.dtype))
        out = _reduced(fn, _chosen(a, where, neutral(a)), axis, keepdims)
        return out if initial is None else pair(out, _cast(initial, out.dtype))

    return run


any_ = any
max = _extreme("max", _of_complex(ops.amax, -1.0), elements.maximum, _least)  # noqa: A001
min = _extreme("min", _of_complex(ops.amin, 1.0), elements.minimum, _most)  # noqa: A001


def sum(  # noqa: A001
    a: Tensor, axis: Axis = None, dtype: Any = None, keepdims: bool = False,
    initial: Tensor | None = None, where: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The sum, in the type of ``a`` or in ``dtype``."""
    a = _chosen(_cast(a, dtype), where, 0)
    if a.meta()[1].kind == "b":
        return any(a, axis, keepdims)
    out = _reduced(lambda x, d, k: ops.sum(x, d, k, dtype=x.dtype), a, axis, keepdims)
    return out if initial is None else out + _cast(initial, out.dtype)


def prod(
    a: Tensor, axis: Axis = None, dtype: Any = None, keepdims: bool = False,
    initial: Tensor | None = None, where: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The product, in the type of ``a`` or in ``dtype``."""
    out = _chosen(_cast(a, dtype), where, 1)
    if out.meta()[1].kind == "b":
        return all(out, axis, keepdims)
    for d in reversed(axes_of(axis, a.ndim)):
        out = ops.prod(out, d, keepdims, dtype=out.dtype)
    return out if initial is None else out * _cast(initial, out.dtype)


def any(  # noqa: A001
    a: Tensor, axis: Axis = None, keepdims: bool = False, where: Tensor | None = None
) -> Tensor:
    """Whether one element is not 0."""
    return _reduced(ops.any, _chosen(a, where, 0), axis, keepdims).to(dtypes.bool)


def all(  # noqa: A001
    a: Tensor, axis: Axis = None, keepdims: bool = False, where: Tensor | None = None
) -> Tensor:
    """Whether no element is 0."""
    return _reduced(ops.all, _chosen(a, where, 1), axis, keepdims).to(dtypes.bool)


def count(a: Tensor, axis: Axis, where: Tensor | None) -> Any:
    """How many elements there are to reduce: a number, or a tensor where ``where`` chooses."""
    if where is None:
        total = 1
        for d in axes_of(axis, a.ndim):
            total *= a.shape[d]
        return total
    flags = ops.broadcast_to(where, tuple(a.shape))
    return sum(flags.to(ops.real(a).dtype), axis, keepdims=True)


def _share(total: Tensor, n: Any) -> Tensor:
    if isinstance(n, Tensor):
        return total / n.reshape(total.shape)
    if n:
        return total / n
    return total / ops.zeros_like(ops.real(total))


def mean(
    a: Tensor, axis: Axis = None, dtype: Any = None, keepdims: bool = False,
    where: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The mean; half types are summed in float32."""
    kind, n = dtype or a.dtype, count(a, axis, where)
    total = sum(_wide(_cast(a, dtype)), axis, None, keepdims, where=where)
    return _cast(_share(total, n), kind)


def _wide(x: Tensor) -> Tensor:
    return x.to(dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x


def var(
    a: Tensor, axis: Axis = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False,
    where: Tensor | None = None, mean: Tensor | None = None, correction: float | None = None,
) -> Tensor:  # fmt: skip
    """The variance: the mean square of what is beside the mean, over n - ``ddof``."""
    kind, x = dtype or ops.real(a).dtype, _wide(_cast(a, dtype))
    n = count(a, axis, where)
    middle = _share(sum(x, axis, None, True, where=where), n) if mean is None else mean
    beside = x - middle
    square = ops.real(beside * ops.conj(beside)) if beside.is_complex() else beside * beside
    less = ddof if correction is None else correction
    rest = ops.maximum(n - less, ops.zeros_like(n)) if isinstance(n, Tensor) else n - less
    rest = rest if isinstance(rest, Tensor) or rest > 0 else 0
    return _cast(_share(sum(square, axis, None, keepdims, where=where), rest), kind)


def std(a: Tensor, axis: Axis = None, dtype: Any = None, **more: Any) -> Tensor:
    """The root of the variance."""
    return ops.sqrt(var(a, axis, dtype, **more))


def sem(a: Tensor, axis: Axis = 0, ddof: int = 1, keepdims: bool = False) -> Tensor:
    """The standard error of the mean."""
    return std(a, axis, ddof=ddof, keepdims=keepdims) / count(a, axis, None) ** 0.5


def _arg(fn: Callable, name: str) -> Callable:
    def run(a: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
        ndim, flat = a.ndim, axis is None
        x = a.reshape(-1) if flat else a
        d = 0 if flat else axis_of(axis, x.ndim)
        if not x.shape[d]:
            raise ValueError(f"attempt to get {name} of an empty sequence")
        if x.dtype is dtypes.bool:
            x = x.to(dtypes.uint8)
        out = fn(x, d, keepdims and not flat)
        return out.reshape((1,) * ndim) if flat and keepdims else out

    return run


argmax, argmin = _arg(ops.argmax, "argmax"), _arg(ops.argmin, "argmin")


def ptp(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest less the least."""
    return max(a, axis, keepdims) - min(a, axis, keepdims)


def count_nonzero(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0."""
    return sum((a != 0).to(dtypes.int64), axis, keepdims=keepdims)


# --- with nan left out ----------------------------------------------------------------------------
def _without(x: Tensor, neutral: Any) -> Tensor:
    if x.meta()[1].kind in "biu":
        return x
    return ops.where(ops.isnan(x), ops.full_like(x, neutral), x)


def nansum(a: Tensor, axis: Axis = None, dtype: Any = None, **more: Any) -> Tensor:
    """The sum of what is a number."""
    return sum(_without(a, 0), axis, dtype, **more)


def nanprod(a: Tensor, axis: Axis = None, dtype: Any = None, **more: Any) -> Tensor:
    """The product of what is a number."""
    return prod(_without(a, 1), axis, dtype, **more)


def _nan_extreme(fn: Callable, sign: float) -> Callable:
    def run(a: Tensor, axis: Axis = None, keepdims: bool = False, **more: Any) -> Tensor:
        out = fn(_without(a, sign * float("inf")), axis, keepdims, **more)
        if a.meta()[1].kind in "biu":
            return out
        none = all(ops.isnan(a), axis, keepdims, where=more.get("where"))
        if more.get("initial") is not None:
            return out
        return ops.where(none, ops.full_like(out, float("nan")), out)

    return run


nanmax, nanmin = _nan_extreme(max, -1.0), _nan_extreme(min, 1.0)


def _nan_arg(fn: Callable, sign: float) -> Callable:
    def run(a: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
        out = fn(_without(a, sign * float("inf")), axis, keepdims)
        if a.meta()[1].kind in "biu":
            return out
        return ops.where(all(ops.isnan(a), axis, keepdims), ops.full_like(out, -1), out)

    return run


nanargmax, nanargmin = _nan_arg(argmax, -1.0), _nan_arg(argmin, 1.0)


def _numbers(a: Tensor, where: Tensor | None) -> Tensor | None:
    if a.meta()[1].kind in "biu":
        return where
    there = ops.logical_not(ops.isnan(a))
    return there if where is None else there & where


def nanmean(a: Tensor, axis: Axis = None, dtype: Any = None, **more: Any) -> Tensor:
    """The mean of what is a number."""
    return mean(a, axis, dtype, where=_numbers(a, more.pop("where", None)), **more)


def nanvar(a: Tensor, axis: Axis = None, dtype: Any = None, **more: Any) -> Tensor:
    """The variance of what is a number."""
    return var(a, axis, dtype, where=_numbers(a, more.pop("where", None)), **more)


def nanstd(a: Tensor, axis: Axis = None, dtype: Any = None, **more: Any) -> Tensor:
    """The root of the variance of what is a number."""
    return ops.sqrt(nanvar(a, axis, dtype, **more))


# --- order statistics -----------------------------------------------------------------------------
METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantiles(fn: Callable, a: Tensor, q: Any, axis: Axis, keepdims: bool, method: str) -> Tensor:
    if method not in METHODS:
        raise ValueError("method can only be 'linear', 'lower', 'higher', 'midpoint', or 'nearest'")
    several = tuple(q.shape) if isinstance(q, Tensor) else ()
    if len(several) > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {several}")
    axes = axes_of(axis, a.ndim)
    rest = [d for d in range(a.ndim) if d not in axes]
    flat = ops.permute(a, (*rest, *axes)).reshape(
        (*[a.shape[d] for d in rest], math.prod(a.shape[d] for d in axes))
    )
    wide = _wide(flat)
    if not wide.shape[-1]:
        raise ShapeError("quantile: of no elements")
    out = fn(wide, _cast(q, wide.dtype) if isinstance(q, Tensor) else q, -1, interpolation=method)
    if keepdims:
        kept = [1 if d in axes else n for d, n in enumerate(a.shape)]
        out = out.reshape((*several, *kept))
    return _cast(out, a.dtype)


def quantile(
    a: Tensor, q: Tensor, axis: Axis = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """What a share ``q`` of the elements is below."""
    return _quantiles(ops.quantile, a, q, axis, keepdims, method)


def nanquantile(
    a: Tensor, q: Tensor, axis: Axis = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """``quantile`` of what is a number."""
    return _quantiles(ops.nanquantile, a, q, axis, keepdims, method)


def percentile(
    a: Tensor, q: Tensor, axis: Axis = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """``quantile``, in hundredths."""
    return _quantiles(ops.quantile, a, q / 100, axis, keepdims, method)


def nanpercentile(
    a: Tensor, q: Tensor, axis: Axis = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """``nanquantile``, in hundredths."""
    return _quantiles(ops.nanquantile, a, q / 100, axis, keepdims, method)


def median(
    a: Tensor, axis: Axis = None, overwrite_input: bool = False, keepdims: bool = False
) -> Tensor:
    """The middle element, or the mean of the two."""
    return _quantiles(ops.quantile, a, 0.5, axis, keepdims, "midpoint")


def nanmedian(
    a: Tensor, axis: Axis = None, overwrite_input: bool = False, keepdims: bool = False
) -> Tensor:
    """The median of what is a number."""
    return _quantiles(ops.nanquantile, a, 0.5, axis, keepdims, "midpoint")


def average(
    a: Tensor, axis: Axis = None, weights: Tensor | None = None, returned: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The mean with weights, and (``returned``) their sum."""
    if weights is None:
        out = mean(a, axis, keepdims=keepdims)
        total = ops.full_like(out, count(a, axis, None))
        return (out, total) if returned else out
    if weights.ndim != a.ndim:
        if axis is None:
            raise ValueError("Axis must be specified when shapes of a and weights differ.")
        line = [1] * a.ndim
        line[axis_of(axis, a.ndim)] = weights.shape[0]
        if weights.ndim != 1 or weights.shape[0] != a.shape[axis_of(axis, a.ndim)]:
            raise ValueError("Length of weights not compatible with specified axis.")
        weights = weights.reshape(line)
    spread = ops.broadcast_to(weights, tuple(a.shape))
    total = sum(spread, axis, keepdims=keepdims)
    out = sum(a * weights, axis, keepdims=keepdims) / total
    return (out, total) if returned else out


# --- running --------------------------------------------------------------------------------------
def _running(fn: Callable, start: int) -> Callable:
    def run(
        a: Tensor, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Tensor:
        x = _cast(a, dtype)
        x = x.reshape(-1) if axis is None else x
        d = axis_of(0 if axis is None else axis, x.ndim)
        out = fn(x, d, dtype=x.dtype)
        if include_initial:
            shape = list(x.shape)
            shape[d] = 1
            out = ops.cat([x.new_full(shape, start), out], d)
        return out

    return run


cumsum, cumprod = _running(ops.cumsum, 0), _running(ops.cumprod, 1)


def nancumsum(a: Tensor, axis: int | None = None, dtype: Any = None) -> Tensor:
    """The running sum of what is a number."""
    return cumsum(_without(a, 0), axis, dtype)


def nancumprod(a: Tensor, axis: int | None = None, dtype: Any = None) -> Tensor:
    """The running product of what is a number."""
    return cumprod(_without(a, 1), axis, dtype)


def trace(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """The sum along a diagonal."""
    return sum(ops.diagonal(a, offset, axis1, axis2), -1, dtype)


__all__ = [
    "all", "any", "argmax", "argmin", "average", "count_nonzero", "cumprod", "cumsum", "max",
    "mean", "median", "min", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax",
    "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd",
    "nansum", "nanvar", "percentile", "prod", "ptp", "quantile", "std", "sum", "trace", "var",
]  # fmt: skip
