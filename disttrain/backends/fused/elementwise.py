"""Fused functions on elements, and sums over whole arrays.

    gelu(x, approximate="none" | "tanh")      gelu_backward(g, x, approximate)
    silu(x)                                   silu_backward(g, x)
    exp_(x), log(x), tanh(x), logistic(x), softplus(x)
    dropout(x, mask, scale)                   where(mask, x * scale, 0); its own gradient
    erf(x)
    relu(x)
    relu_backward(g, y), tanh_backward(g, y), sigmoid_backward(g, y)      y: the function's result
    fused(name, fn) -> array function         of any function on expressions, in one pass
    axpy(a, x, y)                             y += a * x, in place
    sum_arrays(arrays, out=None)              ((a0 + a1) + a2) + ..., always in that order
    norm_squared(x) -> float                  sum(x**2), added up in float64

All take ``out=`` where they return an array. float32, float64, float16, bfloat16;
``axpy`` also integers, ``sum_arrays`` every type that can be added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from ...errors import ConfigError, ShapeError
from ..family import Family
from ..lang import expr as E
from ..lang.expr import Expr, cast, exp, sigmoid, var, where
from ..lang.kernel import COMPUTE, Array, Kernel, Loop, Put, Reduce, Scalar, Store, elementwise
from .places import empty, lead, zeros

_MAX_TERMS = 8  # arrays that one kernel adds


def gelu_tanh(x: Expr) -> Expr:
    """x * sigmoid(2u): equal to x/2 * (1 + tanh(u)), without losing digits for negative x."""
    return x * sigmoid(_twice_u(x))


def _twice_u(x: Expr) -> Expr:
    k = 2 * math.sqrt(2 / math.pi)
    return x * (k + (k * 0.044715) * (x * x))


def gelu_tanh_backward(g: Expr, x: Expr) -> Expr:
    k = 2 * math.sqrt(2 / math.pi)
    s = sigmoid(_twice_u(x))
    return g * (s + x * s * (1 - s) * (k + (3 * k * 0.044715) * (x * x)))


def gelu_erf(x: Expr) -> Expr:
    return 0.5 * x * (1 + E.erf(x * math.sqrt(0.5)))


def gelu_erf_backward(g: Expr, x: Expr) -> Expr:
    density = exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return g * (0.5 * (1 + E.erf(x * math.sqrt(0.5))) + x * density)


def silu_value(x: Expr) -> Expr:
    return x * sigmoid(x)


def silu_gradient(g: Expr, x: Expr) -> Expr:
    s = sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


def _dropout(dtype: str) -> Kernel:
    params = (Array("x", dtype), Array("mask", "bool"), Scalar("scale", _scalar_type(dtype)))
    value = where(var("mask"), var("x") * var("scale"), 0.0)
    return elementwise("dropout", value, params, dtype)


def _axpy(dtype: str) -> Kernel:
    params = (
        Scalar("a", _scalar_type(dtype)),
        Array("x", dtype),
        Array("y", dtype, writes=True),
    )
    step = Store("y", var("y") + var("a") * var("x"))
    return Kernel("axpy", params, (Loop((step,)),), flat=True)


def _scalar_type(dtype: str) -> str:
    if dtype in ("float64", "int64"):
        return dtype
    return "int32" if "int" in dtype else "float32"


def _sum_of(n: int, dtype: str) -> Kernel:
    names = [f"x{k}" for k in range(n)]
    total = var(names[0])
    for name in names[1:]:
        total = total + var(name)
    return elementwise(f"sum_of_{n}", total, tuple(Array(name, dtype) for name in names), dtype)


def _norm_squared(dtype: str) -> Kernel:
    x = cast(var("x"), "float64")
    params = (Array("x", dtype), Array("total", "float64", "one", writes=True))
    steps = (Loop((Reduce("sum", "sum", x * x),)), Put("total", var("sum"), add=True))
    return Kernel("norm_squared", params, steps, flat=True)


_DROPOUT = Family(_dropout)
_AXPY = Family(_axpy)
_SUM_OF = {n: Family(partial(_sum_of, n)) for n in range(1, _MAX_TERMS + 1)}
_NORM_SQUARED = Family(_norm_squared)


def fused(name: str, fn: Callable[..., Expr]) -> Callable[..., np.ndarray]:
    """An array function, computed in one pass, of a function on expressions.

    ``fused("relu_backward", lambda g, y: where(y <= 0, 0.0, g))(g, y)``. The arrays have one type
    and shapes that broadcast; the result is new, or written into ``out=``.
    """
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    family = Family(
        lambda dtype: elementwise(name, fn, tuple(Array(n, dtype) for n in names), dtype)
    )

    def of_one(x: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        there = out is None and x.__class__ is ndarray
        if out is None:
            out = np.empty(x.shape, x.dtype) if there else empty(x, x.shape, x.dtype)
        program = family[x.dtype]
        if program.fast(x, out) is None:
            if there and (order := order_of(x)) is not None:
                return of_one(x.transpose(order)).transpose(np.argsort(order))
            program.slow(x, out)
        return out

    def of_several(*arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        first = arrays[0]
        program = family[first.dtype]
        if out is None and first.__class__ is not ndarray:
            out = empty(lead(arrays), _common_shape(name, arrays), first.dtype)
        elif out is None:
            shape = first.shape
            out = np.empty(shape, first.dtype)
            # The fast form compares sizes alone: (3, 4) and (3, 1, 4) must not reach it.
            alike = all(a.shape == shape for a in arrays[1:])
            if alike and program.fast(*arrays, out) is not None:
                return out
            if alike and (order := _order_of_all(arrays)) is not None:
                turned = np.empty([shape[d] for d in order], first.dtype)
                program(*(a.transpose(order) for a in arrays), turned)
                return turned.transpose(np.argsort(order))
            shape = _common_shape(name, arrays)
            out = out if out.shape == shape else np.empty(shape, first.dtype)
        program(*arrays, out)
        return out

    run = of_one if len(names) == 1 else of_several
    run.__name__ = run.__qualname__ = name
    return run


def order_of(a: np.ndarray) -> tuple[int, ...] | None:
    """The order of dimensions in which memory without gaps lies; None for C order and others."""
    if a.flags.c_contiguous:
        return None
    order = tuple(sorted(range(a.ndim), key=lambda d: -a.strides[d]))
    return order if a.transpose(order).flags.c_contiguous else None


def _order_of_all(arrays: Sequence[np.ndarray]) -> tuple[int, ...] | None:
    """That of the first that has one; its memory is that of the result."""
    for a in arrays:
        if a.__class__ is ndarray and (order := order_of(a)) is not None:
            return order
    return None


def _common_shape(name: str, arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*[a.shape for a in arrays])
    except ValueError:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ShapeError(
            f"{name}: shapes {shapes} do not broadcast; they must be equal, or 1 where they differ"
        ) from None


_GELU = {"none": fused("gelu_erf", gelu_erf), "tanh": fused("gelu_tanh", gelu_tanh)}
_GELU_BACKWARD = {
    "none": fused("gelu_erf_backward", gelu_erf_backward),
    "tanh": fused("gelu_tanh_backward", gelu_tanh_backward),
}


def _single(fused: Callable[..., ndarray], other: Callable[..., Any]) -> Callable[..., Any]:
    """``fused`` for arrays of float32 and the half types, ``other`` for all else. (NumPy's float64
    functions are more exact than what there is here.)"""

    def run(a: Any) -> Any:
        return fused(a) if a.__class__ is ndarray and a.dtype.char in "feE" else other(a)

    return run


def _logistic(a: Any) -> Any:
    """By exp and not tanh: small results keep all their digits."""
    out = np.exp(-a)
    out += 1
    return np.divide(1, out, out=out) if a.ndim else 1 / out


def softplus_value(x: Expr) -> Expr:
    return E.max(x, 0.0) + E.log1p(exp(-E.abs(x)))


exp_ = _single(fused("exp", lambda x: exp(x)), np.exp)
log = _single(fused("log", lambda x: E.log(x)), np.log)
tanh = _single(fused("tanh", lambda x: E.tanh(x)), np.tanh)
logistic = _single(fused("sigmoid", lambda x: sigmoid(x)), _logistic)
softplus = _single(
    fused("softplus", softplus_value),
    lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
)
silu = fused("silu", silu_value)
silu_backward = fused("silu_backward", silu_gradient)
erf = fused("erf", lambda x: E.erf(x))
relu = fused("relu", lambda x: E.max(x, 0))
relu_backward = fused("relu_backward", lambda g, y: where(y <= 0, 0.0, g))
tanh_backward = fused("tanh_backward", lambda g, y: g * (1 - y * y))
sigmoid_backward = fused("sigmoid_backward", lambda g, y: g * (y - y * y))


def _form(families: dict[str, Callable], approximate: str) -> Callable:
    try:
        return families[approximate]
    except KeyError:
        raise ConfigError(
            f"gelu: approximate={approximate!r}; it must be 'none' or 'tanh'"
        ) from None


def gelu(x: np.ndarray, approximate: str = "none", out: np.ndarray | None = None) -> np.ndarray:
    """x times the normal distribution function of x, exact by erf or approximated by tanh."""
    return _form(_GELU, approximate)(x, out=out)


def gelu_backward(
    g: np.ndarray, x: np.ndarray, approximate: str = "none", out: np.ndarray | None = None
) -> np.ndarray:
    """The gradient of the input of ``gelu(x, approximate)``."""
    return _form(_GELU_BACKWARD, approximate)(g, x, out=out)


def dropout(
    x: np.ndarray, mask: np.ndarray, scale: float, out: np.ndarray | None = None
) -> np.ndarray:
    """x * scale where ``mask`` (bool) holds, else 0. Applied to a gradient it is the gradient."""
    if out is None and x.__class__ is ndarray and (order := order_of(x)) is not None:
        turned = dropout(x.transpose(order), mask.transpose(order), scale)
        return turned.transpose(np.argsort(order))
    out = empty(x, x.shape, x.dtype) if out is None else out
    _DROPOUT[x.dtype](x, mask, float(scale), out)
    return out


def axpy(a: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y += a * x in place; returns y."""
    p, a = _AXPY[y.dtype], float(a)
    p.fast(a, x, y) is None and p.slow(a, x, y)
    return y


def sum_arrays(arrays: Sequence[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    """((a0 + a1) + a2) + ... of arrays of one shape and type, in one pass over memory for each
    eight. ``out`` may be one of the arrays. The order never changes, so neither do the bits (16-bit
    floats are added in float32 and rounded once per pass)."""
    if not arrays:
        raise ShapeError("sum_arrays: no arrays were given; at least one is needed")
    first, arrays = arrays[0], list(arrays)
    if any(a.shape != first.shape for a in arrays):
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"sum_arrays: shapes {shapes} differ; they must be the same")
    if out is None:
        out = empty(first, first.shape, first.dtype)
    elif any(np.may_share_memory(out, a) for a in arrays[_MAX_TERMS:]):
        arrays[_MAX_TERMS:] = [a.copy() for a in arrays[_MAX_TERMS:]]
    if first.dtype.name not in COMPUTE:
        return _sum_by_numpy(arrays, out)
    _SUM_OF[min(len(arrays), _MAX_TERMS)][first.dtype](*arrays[:_MAX_TERMS], out)
    rest = arrays[_MAX_TERMS:]
    while rest:
        part, rest = rest[: _MAX_TERMS - 1], rest[_MAX_TERMS - 1 :]
        _SUM_OF[len(part) + 1][first.dtype](out, *part, out)
    return out


def _sum_by_numpy(arrays: list[np.ndarray], out: np.ndarray) -> np.ndarray:
    total = arrays[0].copy()
    for a in arrays[1:]:
        total += a
    out[...] = total
    return out


def norm_squared(x: np.ndarray) -> float:
    """The sum of squares of all elements, added up in float64."""
    total = zeros(x, (1,), np.float64)
    p = _NORM_SQUARED[x.dtype]
    p.fast(x, total) is None and p.slow(x, total)
    return total.item()
