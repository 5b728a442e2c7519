"""Public functions of numbers: arithmetic, comparisons, reductions, products. Torch's names."""

from __future__ import annotations

import math as _math
from typing import Any, NamedTuple

import numpy as np

from ..core import dtypes, fast
from ..core.tensor import Tensor
from ..errors import DTypeError, ShapeError
from . import elementwise as el
from . import linalg, reduce
from .args import dims, one_dim
from .args import tensor as as_input
from .index import gather
from .promotion import result_type as _result_type
from .views import permute, reshape


class ValuesIndices(NamedTuple):
    """What reductions along a dimension return."""

    values: Tensor
    indices: Tensor


neg = negative = fast.unary(el.neg)
abs = absolute = fast.unary(el.absolute)  # noqa: A001
exp, log, sqrt, rsqrt = (fast.unary(p) for p in (el.exp, el.log, el.sqrt, el.rsqrt))
sin, cos, tanh, sigmoid = (fast.unary(p) for p in (el.sin, el.cos, el.tanh, el.sigmoid))
relu, square, erf = (fast.unary(p) for p in (el.relu, el.square, el.erf))
exp2, expm1, log2, log10, log1p = el.exp2, el.expm1, el.log2, el.log10, el.log1p
tan, asin, acos, atan, sinh, cosh = el.tan, el.asin, el.acos, el.atan, el.sinh, el.cosh
asinh, acosh, atanh, reciprocal, sign = el.asinh, el.acosh, el.atanh, el.reciprocal, el.sign
arcsin, arccos, arctan, sgn = asin, acos, atan, sign
floor, ceil, trunc, conj = el.floor, el.ceil, el.trunc, el.conj
isnan, isinf, isfinite = el.isnan, el.isinf, el.isfinite
logical_not, bitwise_not = el.logical_not, el.bitwise_not
logical_and, logical_or, logical_xor = el.logical_and, el.logical_or, el.logical_xor
bitwise_and, bitwise_or, bitwise_xor = el.bitwise_and, el.bitwise_or, el.bitwise_xor
eq, ne, lt, le, gt, ge = (fast.binary(p) for p in (el.eq, el.ne, el.lt, el.le, el.gt, el.ge))
greater, less, not_equal, greater_equal, less_equal = gt, lt, ne, ge, le
remainder, fmod, floor_divide, atan2 = el.remainder, el.fmod, el.floor_divide, el.atan2
logaddexp, maximum, minimum = el.logaddexp, el.maximum, el.minimum
fast_add, fast_sub, fast_mul = (fast.binary(p) for p in (el.add, el.sub, el.mul))
fast_div, pow = fast.binary(el.div), fast.binary(el.pow_)  # noqa: A001
mul = multiply = fast_mul


def add(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """``input + alpha * other``."""
    return fast_add(input, other if alpha == 1 else fast_mul(other, alpha))


def sub(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """``input - alpha * other``."""
    return fast_sub(input, other if alpha == 1 else fast_mul(other, alpha))


subtract = sub


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``, rounded towards zero ('trunc') or down ('floor') when asked."""
    if rounding_mode is None:
        return fast_div(input, other)
    if rounding_mode == "floor":
        return el.floor_divide(input, other)
    if rounding_mode == "trunc":
        quotient = el.trunc(fast_div(input, other))
        return el.cast(quotient, dtype=_result_type(input, other).np)
    raise ValueError(f"div: rounding_mode={rounding_mode!r}; needed None, 'floor' or 'trunc'")


divide = true_divide = div


def round(input: Tensor, *, decimals: int = 0) -> Tensor:  # noqa: A001
    """Round half to even, at ``decimals`` digits."""
    if not decimals:
        return el.round_(input)
    return el.round_(input * 10.0**decimals) / 10.0**decimals


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """``input`` where ``condition`` holds, else ``other``; with one argument, the indices."""
    if input is None and other is None:
        return tuple(Tensor_of(a) for a in np.nonzero(condition.array))
    return el.where(condition, input, other)


def Tensor_of(array: np.ndarray) -> Tensor:  # noqa: N802
    """Wrap an array."""
    out = object.__new__(Tensor)
    out.array = array
    return out


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002
    """Limit to ``[min, max]`` (numbers or tensors)."""
    if min is None and max is None:
        raise ValueError("clamp: neither min nor max was given; at least one is needed")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        out = input if min is None else el.maximum(input, min)
        return out if max is None else el.minimum(out, max)
    return el.clip(input, low=min, high=max)


clip = clamp


def clamp_min(input: Tensor, min: Any) -> Tensor:  # noqa: A002
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Any) -> Tensor:  # noqa: A002
    return clamp(input, max=max)


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``."""
    return input + (end - input) * weight


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return input + (tensor1 * tensor2) * value


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    return input + (tensor1 / tensor2) * value


def xlogy(input: Tensor, other: Tensor) -> Tensor:
    """``input * log(other)``, 0 where ``input`` is 0."""
    safe = el.where(input == 0, other * 0 + 1.0, other)
    return input * log(safe)


def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace nan and infinities by numbers (the type's largest by default)."""
    info = dtypes.finfo(input.dtype)
    out = el.where(isnan(input), nan, input)
    out = el.where(input == _math.inf, info.max if posinf is None else posinf, out)
    return el.where(input == -_math.inf, info.min if neginf is None else neginf, out)


# --- reductions --------------------------------------------------------------------------------


def _typed(input: Tensor, dtype: Any) -> Tensor:
    if dtype is None:
        return input
    return el.cast(input, dtype=dtypes.as_dtype(dtype).np)


def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A001
    """The sum over ``dim`` (None: all)."""
    input = _typed(as_input(input, "sum"), dtype)
    return reduce.sum_(input, dims=dims(dim, input.ndim, "sum"), keepdim=keepdim)


def nansum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum, nan counted as zero."""
    return sum(el.where(isnan(input), 0.0, input), dim, keepdim)


def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over ``dim`` (None: all). Integer tensors need ``dtype``."""
    input = _typed(as_input(input, "mean"), dtype)
    _needs_floating("mean", input)
    return reduce.mean(input, dims=dims(dim, input.ndim, "mean"), keepdim=keepdim)


def _needs_floating(where: str, input: Tensor) -> None:
    kind = input.dtype
    if not (kind.is_floating_point or kind.is_complex):
        raise reduce_type_error(where, kind)


def reduce_type_error(where: str, kind: dtypes.dtype) -> Exception:
    return DTypeError(
        f"{where}: a floating-point or complex tensor is needed, {kind!r} given; convert it with "
        ".float() first"
    )


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


def std(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    *, correction: int | None = None,
) -> Tensor:  # fmt: skip
    """The square root of ``var``."""
    return sqrt(var(input, dim, unbiased, keepdim, correction=correction))


def var_mean(input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> tuple:
    return var(input, dim, unbiased, keepdim), mean(input, dim, keepdim)


def std_mean(input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> tuple:
    return std(input, dim, unbiased, keepdim), mean(input, dim, keepdim)


def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest value over ``dim``; its gradient is shared among equals."""
    _not_empty("amax", input)
    return reduce.amax(input, dims=dims(dim, input.ndim, "amax"), keepdim=keepdim)


def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest value over ``dim``; its gradient is shared among equals."""
    _not_empty("amin", input)
    return reduce.amin(input, dims=dims(dim, input.ndim, "amin"), keepdim=keepdim)


def _not_empty(where: str, input: Tensor) -> None:
    if input.shape.numel() == 0:
        raise ShapeError(f"{where}: the tensor is empty (shape {list(input.shape)}); it has none")


def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:  # noqa: A001
    """The largest element; along ``dim`` with its indices; or, given two tensors, elementwise."""
    if isinstance(dim, Tensor):
        return el.maximum(input, dim)
    if dim is None:
        return amax(input)
    return _with_indices("max", argmax, input, dim, keepdim)


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
    values = gather(input, d, at)
    if keepdim:
        return ValuesIndices(values, at)
    shape = reduce.reduced(tuple(input.shape), (d,), False)
    return ValuesIndices(reshape(values, shape=shape), reshape(at, shape=shape))


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element (of the flattened tensor when ``dim`` is None)."""
    return _arg("argmax", reduce.argmax, input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element (of the flattened tensor when ``dim`` is None)."""
    return _arg("argmin", reduce.argmin, input, dim, keepdim)


def _arg(where: str, prim: Any, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    _not_empty(where, input)
    if dim is None or input.ndim == 0:
        return prim(reshape(input, shape=(-1,)), dim=0, keepdim=False)
    return prim(input, dim=one_dim(dim, input.ndim, where), keepdim=keepdim)


def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The product over ``dim`` (None: all)."""
    input = _typed(input, dtype)
    if dim is None:
        return reduce.prod(reshape(input, shape=(-1,)), dim=0, keepdim=False)
    return reduce.prod(input, dim=one_dim(dim, input.ndim, "prod"), keepdim=keepdim)


def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:  # noqa: A001
    """Whether any element is true (non-zero)."""
    return reduce.any_(input, dims=dims(dim, input.ndim, "any"), keepdim=keepdim)


def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:  # noqa: A001
    """Whether all elements are true (non-zero)."""
    return reduce.all_(input, dims=dims(dim, input.ndim, "all"), keepdim=keepdim)


def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along ``dim``."""
    return reduce.cumsum(_typed(input, dtype), dim=one_dim(dim, input.ndim, "cumsum"))


def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along ``dim``."""
    return reduce.cumprod(_typed(input, dtype), dim=one_dim(dim, input.ndim, "cumprod"))


def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(input)))`` without overflow."""
    return reduce.logsumexp(input, dims=dims(dim, input.ndim, "logsumexp"), keepdim=keepdim)


def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero."""
    return sum(input != 0, dim)


def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The vector p-norm over ``dim`` ('fro' and 2: Euclidean)."""
    input = _typed(input, dtype)
    p = 2.0 if p in ("fro", None) else float(p)
    if p == 2.0:
        return sqrt(sum(square(abs(input)), dim, keepdim))
    if p == _math.inf:
        return amax(abs(input), dim, keepdim)
    if p == -_math.inf:
        return amin(abs(input), dim, keepdim)
    if p == 0.0:
        return el.cast(count_nonzero(input, dim), dtype=input.dtype.np)
    if p == 1.0:
        return sum(abs(input), dim, keepdim)
    return sum(abs(input) ** p, dim, keepdim) ** (1.0 / p)


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """``linalg.vector_norm``."""
    return norm(x, ord, dim, keepdim, dtype)


# --- products ----------------------------------------------------------------------------------

_fast_matmul = fast.binary(linalg.matmul)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product; vectors and batches as in numpy."""
    as_input(input, "matmul")
    as_input(other, "matmul", "other")
    n, m = input.ndim, other.ndim
    if n >= 2 and m >= 2:
        return _fast_matmul(input, other)
    if n == 0 or m == 0:
        raise ShapeError(
            f"matmul: shapes {list(input.shape)} and {list(other.shape)} given; both need at "
            "least one dimension; use * for scalars"
        )
    a = reshape(input, shape=(1, *input.shape)) if n == 1 else input
    b = reshape(other, shape=(*other.shape, 1)) if m == 1 else other
    out = linalg.matmul(a, b)
    shape = tuple(out.shape)
    if n == 1:
        shape = (*shape[:-2], *shape[-1:])
    if m == 1:
        shape = shape[:-1]
    return reshape(out, shape=shape)


def _exactly(where: str, t: Tensor, ndim: int, name: str) -> None:
    if t.ndim != ndim:
        raise ShapeError(
            f"{where}: {name} has shape {list(t.shape)}; {ndim} dimensions are needed (matmul "
            "takes any number)"
        )


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _exactly("mm", input, 2, "input")
    _exactly("mm", mat2, 2, "mat2")
    return linalg.matmul(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices."""
    _exactly("bmm", input, 3, "input")
    _exactly("bmm", mat2, 3, "mat2")
    return linalg.matmul(input, mat2)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector."""
    _exactly("mv", input, 2, "input")
    _exactly("mv", vec, 1, "vec")
    return matmul(input, vec)


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of products of two vectors."""
    _exactly("dot", input, 1, "input")
    _exactly("dot", tensor, 1, "tensor")
    return matmul(input, tensor)


inner = matmul


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors."""
    _exactly("outer", input, 1, "input")
    _exactly("outer", vec2, 1, "vec2")
    return reshape(input, shape=(-1, 1)) * reshape(vec2, shape=(1, -1))


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``."""
    product = mm(mat1, mat2)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``; weight [out, in], input [..., in]."""
    return linalg.linear(input, weight, bias)


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix (a vector stays)."""
    if input.ndim > 2:
        raise ShapeError(
            f"t: shape {list(input.shape)} given; at most 2 dimensions are allowed; use "
            "transpose(dim0, dim1) or .mT"
        )
    return permute(input, dims=tuple(reversed(range(input.ndim))))


# --- comparing ---------------------------------------------------------------------------------


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    return tuple(input.shape) == tuple(other.shape) and bool(
        np.array_equal(input.array, other.array)
    )


def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Elementwise ``|input - other| <= atol + rtol * |other|``."""
    return Tensor_of(np.isclose(_wide(input), _wide(other), rtol, atol, equal_nan))


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close."""
    return bool(np.allclose(_wide(input), _wide(other), rtol, atol, equal_nan))


def _wide(t: Tensor) -> np.ndarray:
    return t.array.astype(np.float32) if t.array.dtype.kind == "V" else t.array


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    return input.dtype.is_floating_point


def is_complex(input: Tensor) -> bool:
    return input.dtype.is_complex


def is_nonzero(input: Tensor) -> bool:
    return bool(input)


def numel(input: Tensor) -> int:
    return input.shape.numel()


def result_type(a: Any, b: Any) -> dtypes.dtype:
    """The type that an operation on both computes in."""
    return _result_type(a, b)


def can_cast(from_: dtypes.dtype, to: dtypes.dtype) -> bool:
    return dtypes.category(from_) <= dtypes.category(to)


__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "addcdiv",
    "addcmul",
    "addmm",
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "arccos",
    "arcsin",
    "arctan",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bmm",
    "can_cast",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "conj",
    "cos",
    "cosh",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "div",
    "divide",
    "dot",
    "eq",
    "equal",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floor_divide",
    "fmod",
    "ge",
    "greater",
    "greater_equal",
    "gt",
    "inner",
    "is_complex",
    "is_floating_point",
    "is_nonzero",
    "is_tensor",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "lerp",
    "less",
    "less_equal",
    "linear",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "lt",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mm",
    "mul",
    "multiply",
    "mv",
    "nan_to_num",
    "nansum",
    "ne",
    "neg",
    "negative",
    "norm",
    "not_equal",
    "numel",
    "outer",
    "pow",
    "prod",
    "reciprocal",
    "relu",
    "remainder",
    "result_type",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "std",
    "std_mean",
    "sub",
    "subtract",
    "sum",
    "t",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "var",
    "var_mean",
    "where",
    "xlogy",
]
