"""Public reductions and running sums: sum, var, max, cumsum. Torch's names."""

from __future__ import annotations

import math as _math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...context import SLOW, thread
from ...core import Algebra
from ...core.annotations import Dims, DTypeLike
from ...core.fast import reducer
from ...core.gate import Primitive
from ...core.grad_mode import no_grad
from ...core.overriding import refused
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...errors import DimError, DTypeError, ShapeError
from ...trace import warn
from ..primitives import elementwise as el
from ..primitives import reduce
from ..primitives.gathering import gather
from ..primitives.views import reshape
from ..promotion import refuse
from .args import dims, in_float32, kinds, numpy_names, one_dim
from .args import tensor as as_input
from .elementwise import isnan, sqrt, square
from .sort import ValuesIndices


def typed(input: Tensor, dtype: DTypeLike | None) -> Tensor:
    """``input`` as ``dtype``, or as it is (None)."""
    if dtype is None:
        return input
    kind = dtypes.as_dtype(dtype).np
    return input if input.meta()[1] == kind else el.cast(input, dtype=kind)


def sum(  # noqa: A001
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *,
    dtype: DTypeLike | None = None,
    axis: Dims | None = None, keepdims: bool = False, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The sum over ``dim`` (None: all). ``axis`` and ``keepdims`` are numpy's names."""
    if out is not None:
        how = {"keepdim": keepdim or keepdims, "dtype": dtype}
        return Algebra.into(out, sum, (input, dim if axis is None else axis), how)
    if not isinstance(input, Tensor):
        given = (input, dim if axis is None else axis, keepdim or keepdims)
        return refused(sum, given, f"sum: input must be a Tensor, not {type(input).__name__}")
    if dtype is not None:
        narrow = sum(typed(input, dtype), dim if axis is None else axis, keepdim or keepdims)
        return typed(narrow, dtype)
    if axis is not None:
        dim = axis
    if dim is not None:
        dim = dims(dim, input.ndim, "sum")
    return _sum(input, dim, keepdim or keepdims)


_sum, _mean = reducer(reduce.sum_, np.add), reducer(reduce.mean)
_amax, _amin = reducer(reduce.amax, np.maximum), reducer(reduce.amin, np.minimum)


@numpy_names
def nansum(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The sum, nan counted as zero."""
    kinds("nansum", "biufV", as_input(input, "nansum"))
    if dtype is not None and dtypes.as_dtype(dtype).is_complex and input.dtype.is_floating_point:
        raise refuse("nansum", dtypes.as_dtype(dtype).np)
    if input.meta()[1].kind in "fV":
        input = el.where(isnan(input), 0.0, input)
    return sum(input, dim, keepdim, dtype=dtype)


def mean(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *,
    dtype: DTypeLike | None = None,
    axis: Dims | None = None, keepdims: bool = False, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The mean over ``dim`` (None: all). Integer tensors need ``dtype``. ``axis`` and ``keepdims``
    are numpy's names."""
    if out is not None:
        how = {"keepdim": keepdim or keepdims, "dtype": dtype}
        return Algebra.into(out, mean, (input, dim if axis is None else axis), how)
    if not isinstance(input, Tensor):
        given = (input, dim if axis is None else axis, keepdim or keepdims)
        return refused(mean, given, f"mean: input must be a Tensor, not {type(input).__name__}")
    input = typed(input, dtype)
    if axis is not None:
        dim = axis
    _needs_floating("mean", input)
    if dim is not None:
        dim = dims(dim, input.ndim, "mean")
    return _mean(input, dim, keepdim or keepdims)


def _needs_floating(where: str, input: Tensor) -> None:
    if input.meta()[1].kind not in "fcV":
        raise DTypeError(
            f"{where}: a floating-point or complex tensor is needed, {input.dtype!r} given; "
            "convert it with .float() first"
        )


def _less(unbiased: bool | None, correction: float | None) -> float:
    return (1 if unbiased is None or unbiased else 0) if correction is None else correction


@numpy_names
@in_float32
def var(
    input: Tensor, dim: Dims | None = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: float | None = None,
) -> Tensor:  # fmt: skip
    """The variance over ``dim``; divides by ``n - correction`` (1 unless ``unbiased=False``).
    That of complex numbers is real: the mean of the squared distances."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    _needs_floating("var", input)
    where = dims(dim, input.ndim, "var")
    n = _math.prod(input.shape[d] for d in where)
    centred = input - reduce.mean(input, dims=where, keepdim=True)
    if input.dtype.is_complex:
        squares = el.real(centred * el.conj(centred))
    else:
        squares = square(centred)
    total = reduce.sum_(squares, dims=where, keepdim=keepdim)
    if total.meta()[1].itemsize < 8:
        total = total - _rounding(centred, where, keepdim)
    free = n - _less(unbiased, correction)
    if free <= 0:
        warn(
            f"var: degrees of freedom is <= 0: {n} elements, correction {n - free} (input of shape "
            f"{list(input.shape)}, dim={dim}); the result is nan or inf"
        )
    return total / (free if free > 0 else 0.0)


def _rounding(centred: Tensor, where: tuple, keepdim: bool) -> Tensor:
    """What squares around a rounded mean are too large by: the squared sum of what should add up
    to nothing, over the count. No gradient goes through it: it is zero but for rounding."""
    count = _math.prod(centred.shape[d] for d in where)
    array = centred.__dict__.get("array")
    if array.__class__ is np.ndarray and thread.mode != SLOW:
        left = reduce.mean.forward(array, where, keepdim)
        return wrap(np.asarray((left * left.conj()).real * count, array.real.dtype))
    with no_grad():
        left = reduce.mean(centred.detach(), dims=where, keepdim=keepdim)
        squared = el.real(left * el.conj(left)) if left.dtype.is_complex else square(left)
        return squared * count


@numpy_names
@in_float32
def std(
    input: Tensor, dim: Dims | None = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: float | None = None,
) -> Tensor:  # fmt: skip
    """The square root of ``var``."""
    return root(var(input, dim, unbiased, keepdim, correction=correction))


def root(total: Tensor, p: float = 2.0) -> Tensor:
    """The ``p``-th root of sums that are 0 or more. Its gradient at 0 is 0, as PyTorch has it for
    norms and deviations, and not infinite."""
    zero = total == 0 if total.requires_grad else None
    base = total if zero is None else el.where(zero, 1.0, total)
    out = sqrt(base) if p == 2.0 else base ** (1.0 / p)
    return out if zero is None else el.where(zero, 0.0, out)


@numpy_names
def var_mean(
    input: Tensor, dim: Dims | None = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``var`` and ``mean`` over ``dim``."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    spread = var(input, dim, unbiased, keepdim, correction=correction)
    return spread, mean(input, dim, keepdim)


@numpy_names
def std_mean(
    input: Tensor, dim: Dims | None = None, unbiased: bool | None = None, keepdim: bool = False,
    *, correction: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``std`` and ``mean`` over ``dim``."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    spread = std(input, dim, unbiased, keepdim, correction=correction)
    return spread, mean(input, dim, keepdim)


@numpy_names
def amax(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor:
    """The largest value over ``dim``; its gradient is shared among equals."""
    return _extreme("amax", _amax, input, dim, keepdim)


@numpy_names
def amin(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor:
    """The smallest value over ``dim``; its gradient is shared among equals."""
    return _extreme("amin", _amin, input, dim, keepdim)


def _extreme(
    where: str, find: Callable[..., Any], input: Tensor, dim: Dims | None, keepdim: bool
) -> Tensor:
    if dim is None and thread.mode != SLOW and isinstance(input, Tensor):
        x = input.array
        if x.__class__ is np.ndarray and x.dtype.kind == "f" and x.size:
            return find(input, None, keepdim)
    kinds(where, "biufV", as_input(input, where))
    over = dims(dim, input.ndim, where)
    _not_empty(where, input, over)
    return find(input, over, keepdim)


def _not_empty(where: str, input: Tensor, over: tuple) -> None:
    shape = input.meta()[0]
    if 0 in shape and 0 in [shape[d] for d in over]:
        raise DimError(
            f"{where}: dimensions {list(over)} of the shape {list(shape)} have no elements, so no "
            "extreme; name other dimensions, or leave empty tensors out"
        )


@numpy_names
def max(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Any:  # noqa: A001
    """The largest element; along ``dim`` with its indices; or, given two tensors, elementwise."""
    if isinstance(dim, Tensor):
        return el.maximum(input, dim)
    if dim is None:
        return _extreme("max", _amax, input, None, False)
    return _with_indices("max", reduce.argmax, input, dim, keepdim)


@numpy_names
def min(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Any:  # noqa: A001
    """The smallest element; along ``dim`` with its indices; or, given two tensors, elementwise."""
    if isinstance(dim, Tensor):
        return el.minimum(input, dim)
    if dim is None:
        return _extreme("min", _amin, input, None, False)
    return _with_indices("min", reduce.argmin, input, dim, keepdim)


def _with_indices(
    where: str, arg: Primitive, input: Tensor, dim: Any, keepdim: bool
) -> ValuesIndices:
    kinds(where, "biufV", as_input(input, where))
    d = one_dim(dim, input.ndim, where)
    if input.ndim == 0:
        flat = reshape(input, shape=(1,))
        return ValuesIndices(el.copy(input), arg(flat, dim=0, keepdim=False))
    _not_empty(where, input, (d,))
    at = arg(input, dim=d, keepdim=True)
    values = gather(input, at, dim=d)
    if keepdim:
        return ValuesIndices(values, at)
    shape = reduce.reduced(tuple(input.shape), (d,), False)
    return ValuesIndices(reshape(values, shape=shape), reshape(at, shape=shape))


@numpy_names
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element (of the flattened tensor when ``dim`` is None)."""
    return _arg("argmax", reduce.argmax, input, dim, keepdim)


@numpy_names
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element (of the flattened tensor when ``dim`` is None)."""
    return _arg("argmin", reduce.argmin, input, dim, keepdim)


def _arg(where: str, prim: Primitive, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    kinds(where, "iufV", as_input(input, where))
    if dim is None or input.ndim == 0:
        if dim is not None:
            one_dim(dim, 0, where)
        flat = reshape(input, shape=(-1,))
        _not_empty(where, flat, (0,))
        at = prim(flat, dim=0, keepdim=False)
        return reshape(at, shape=(1,) * input.ndim) if keepdim and input.ndim else at
    d = one_dim(dim, input.ndim, where)
    _not_empty(where, input, (d,))
    return prim(input, dim=d, keepdim=keepdim)


@numpy_names
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    """The product over ``dim`` (None: all)."""
    input = typed(as_input(input, "prod"), dtype)
    if dim is None or input.ndim == 0:
        if dim is not None:
            one_dim(dim, 0, "prod")
        out = reduce.prod(reshape(input, shape=(-1,)), dim=0, keepdim=False)
    else:
        out = reduce.prod(input, dim=one_dim(dim, input.ndim, "prod"), keepdim=keepdim)
    return typed(out, dtype)


@numpy_names
def any(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor:  # noqa: A001
    """Whether any element is true (non-zero); for uint8 as uint8."""
    return _flags("any", reduce.any_, input, dim, keepdim)


@numpy_names
def all(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Tensor:  # noqa: A001
    """Whether all elements are true (non-zero); for uint8 as uint8."""
    return _flags("all", reduce.all_, input, dim, keepdim)


def _flags(where: str, prim: Primitive, input: Tensor, dim: Dims | None, keepdim: bool) -> Tensor:
    ndim = as_input(input, where).ndim
    over = () if dim == () else dims(dim, ndim, where)  # no dimension: element by element
    out = prim(input, dims=over, keepdim=keepdim)
    return typed(out, dtypes.uint8) if input.dtype is dtypes.uint8 else out


@numpy_names
def cumsum(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """Running sums along ``dim``."""
    return _running("cumsum", reduce.cumsum, input, dim, dtype)


@numpy_names
def cumprod(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """Running products along ``dim``."""
    return _running("cumprod", reduce.cumprod, input, dim, dtype)


def _running(
    where: str, prim: Primitive, input: Tensor, dim: int, dtype: DTypeLike | None
) -> Tensor:
    if dtype is not None and dtypes.as_dtype(dtype) is dtypes.bool:
        raise refuse(where, dtypes.bool.np)
    input = typed(as_input(input, where), dtype)
    return typed(prim(input, dim=one_dim(dim, input.ndim, where)), dtype)


@numpy_names
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` without overflow."""
    if dim is None:
        raise ShapeError("logsumexp: dim=None given; an integer or several are needed")
    if as_input(input, "logsumexp").meta()[1].kind in "biu":
        input = typed(input, dtypes.get_default_dtype())
    return reduce.logsumexp(input, dims=dims(dim, input.ndim, "logsumexp"), keepdim=keepdim)


@numpy_names
def count_nonzero(input: Tensor, dim: Dims | None = None) -> Tensor:
    """How many elements are not zero."""
    return sum(input != 0, dim)


__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "logsumexp",
    "max",
    "mean",
    "min",
    "nansum",
    "prod",
    "std",
    "std_mean",
    "sum",
    "var",
    "var_mean",
]
