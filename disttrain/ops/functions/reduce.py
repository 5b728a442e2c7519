"""Public reductions and running sums: sum, var, max, cumsum. Torch's names."""

from __future__ import annotations

import math as _math
from typing import Any

from ...core import dtypes
from ...core.fast import unary
from ...core.tensor import Tensor
from ...errors import DTypeError, ShapeError
from ..primitives import elementwise as el
from ..primitives import reduce
from ..primitives.gathering import gather
from ..primitives.views import reshape
from .args import dims, numpy_names, one_dim
from .args import tensor as as_input
from .elementwise import isnan, sqrt, square
from .sort import ValuesIndices


def typed(input: Tensor, dtype: Any) -> Tensor:
    """``input`` as ``dtype``, or as it is (None)."""
    if dtype is None:
        return input
    return el.cast(input, dtype=dtypes.as_dtype(dtype).np)


def sum(  # noqa: A001
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
    axis: Any = None, keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """The sum over ``dim`` (None: all). ``axis`` and ``keepdims`` are numpy's names."""
    input = as_input(input, "sum")
    if dtype is not None:
        input = typed(input, dtype)
    if axis is not None:
        dim = axis
    keepdim = keepdim or keepdims
    if dim is None and not keepdim:
        return _sum(input, _TOTAL[input.ndim])
    return _sum(input, {"dims": dims(dim, input.ndim, "sum"), "keepdim": keepdim})


_sum = unary(reduce.sum_)
_TOTAL = [{"dims": tuple(range(n)), "keepdim": False} for n in range(65)]  # numpy's limit is 64


@numpy_names
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum, nan counted as zero."""
    return sum(el.where(isnan(input), 0.0, input), dim, keepdim)


def mean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None,
    axis: Any = None, keepdims: bool = False,
) -> Tensor:  # fmt: skip
    """The mean over ``dim`` (None: all). Integer tensors need ``dtype``. ``axis`` and ``keepdims``
    are numpy's names."""
    input = typed(as_input(input, "mean"), dtype)
    dim, keepdim = dim if axis is None else axis, keepdim or keepdims
    _needs_floating("mean", input)
    return reduce.mean(input, dims=dims(dim, input.ndim, "mean"), keepdim=keepdim)


def _needs_floating(where: str, input: Tensor) -> None:
    kind = input.dtype
    if not (kind.is_floating_point or kind.is_complex):
        raise DTypeError(
            f"{where}: a floating-point or complex tensor is needed, {kind!r} given; convert it "
            "with .float() first"
        )


@numpy_names
def var(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    *, correction: int | None = None,
) -> Tensor:  # fmt: skip
    """The variance over ``dim``; divides by ``n - correction`` (1 unless ``unbiased=False``)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    _needs_floating("var", input)
    where = dims(dim, input.ndim, "var")
    n = _math.prod(input.shape[d] for d in where)
    less = (1 if unbiased else 0) if correction is None else correction
    centred = input - reduce.mean(input, dims=where, keepdim=True)
    total = reduce.sum_(square(centred), dims=where, keepdim=keepdim)
    return total * (1.0 / (n - less) if n > less else _math.nan)


@numpy_names
def std(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    *, correction: int | None = None,
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
def var_mean(input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> tuple:
    return var(input, dim, unbiased, keepdim), mean(input, dim, keepdim)


@numpy_names
def std_mean(input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> tuple:
    return std(input, dim, unbiased, keepdim), mean(input, dim, keepdim)


@numpy_names
def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest value over ``dim``; its gradient is shared among equals."""
    _not_empty("amax", input)
    return reduce.amax(input, dims=dims(dim, input.ndim, "amax"), keepdim=keepdim)


@numpy_names
def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest value over ``dim``; its gradient is shared among equals."""
    _not_empty("amin", input)
    return reduce.amin(input, dims=dims(dim, input.ndim, "amin"), keepdim=keepdim)


def _not_empty(where: str, input: Tensor) -> None:
    if input.shape.numel() == 0:
        raise ShapeError(f"{where}: the tensor is empty (shape {list(input.shape)}); it has none")


@numpy_names
def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:  # noqa: A001
    """The largest element; along ``dim`` with its indices; or, given two tensors, elementwise."""
    if isinstance(dim, Tensor):
        return el.maximum(input, dim)
    if dim is None:
        return amax(input)
    return _with_indices("max", argmax, input, dim, keepdim)


@numpy_names
def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:  # noqa: A001
    """The smallest element; along ``dim`` with its indices; or, given two tensors, elementwise."""
    if isinstance(dim, Tensor):
        return el.minimum(input, dim)
    if dim is None:
        return amin(input)
    return _with_indices("min", argmin, input, dim, keepdim)


def _with_indices(where: str, arg: Any, input: Tensor, dim: int, keepdim: bool) -> ValuesIndices:
    d = one_dim(dim, input.ndim, where)
    if input.ndim == 0:
        return ValuesIndices(input, arg(input))
    at = arg(input, d, True)
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


def _arg(where: str, prim: Any, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    _not_empty(where, input)
    if dim is None or input.ndim == 0:
        return prim(reshape(input, shape=(-1,)), dim=0, keepdim=False)
    return prim(input, dim=one_dim(dim, input.ndim, where), keepdim=keepdim)


@numpy_names
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The product over ``dim`` (None: all)."""
    input = typed(input, dtype)
    if dim is None:
        return reduce.prod(reshape(input, shape=(-1,)), dim=0, keepdim=False)
    return reduce.prod(input, dim=one_dim(dim, input.ndim, "prod"), keepdim=keepdim)


@numpy_names
def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:  # noqa: A001
    """Whether any element is true (non-zero)."""
    return reduce.any_(input, dims=dims(dim, input.ndim, "any"), keepdim=keepdim)


@numpy_names
def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:  # noqa: A001
    """Whether all elements are true (non-zero)."""
    return reduce.all_(input, dims=dims(dim, input.ndim, "all"), keepdim=keepdim)


@numpy_names
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along ``dim``."""
    return reduce.cumsum(typed(input, dtype), dim=one_dim(dim, input.ndim, "cumsum"))


@numpy_names
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along ``dim``."""
    return reduce.cumprod(typed(input, dtype), dim=one_dim(dim, input.ndim, "cumprod"))


@numpy_names
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` without overflow."""
    return reduce.logsumexp(input, dims=dims(dim, input.ndim, "logsumexp"), keepdim=keepdim)


@numpy_names
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
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
