"""Public elementwise functions: arithmetic, comparisons, logic. Torch's names."""

from __future__ import annotations

import math as _math
from typing import Any

import numpy as np

from ...core import dtypes, fast
from ...core.tensor import Tensor, wrap
from ..primitives import elementwise as el
from ..promotion import result_type as _result_type

neg = negative = fast.unary(el.neg)
abs = absolute = fast.unary(el.absolute)  # noqa: A001
exp, log, sqrt, rsqrt = (fast.unary(p) for p in (el.exp, el.log, el.sqrt, el.rsqrt))
sin, cos, tanh, sigmoid = (fast.unary(p) for p in (el.sin, el.cos, el.tanh, el.sigmoid))
relu, square, erf = (fast.unary(p) for p in (el.relu, el.square, el.erf))
exp2, expm1, log2, log10, log1p = el.exp2, el.expm1, el.log2, el.log10, el.log1p
tan, asin, acos, atan, sinh, cosh = el.tan, el.asin, el.acos, el.atan, el.sinh, el.cosh
asinh, acosh, atanh, reciprocal, sign = el.asinh, el.acosh, el.atanh, el.reciprocal, el.sign
arcsin, arccos, arctan, sgn = asin, acos, atan, sign
floor, ceil, trunc = el.floor, el.ceil, el.trunc
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


def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself. (Not a view: PyTorch conjugates late.)"""
    return el.conj(input) if input.dtype.is_complex else input


def conj_physical(input: Tensor) -> Tensor:
    """``conj``."""
    return conj(input)


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
        return tuple(wrap(a) for a in np.nonzero(condition.array))
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        kind = _result_type(input, other).np
        input, other = wrap(np.asarray(input, kind)), wrap(np.asarray(other, kind))
    return el.where(condition, input, other)


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


__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "addcdiv",
    "addcmul",
    "arccos",
    "arcsin",
    "arctan",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "conj",
    "conj_physical",
    "cos",
    "cosh",
    "div",
    "divide",
    "eq",
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
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "lerp",
    "less",
    "less_equal",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "multiply",
    "nan_to_num",
    "ne",
    "neg",
    "negative",
    "not_equal",
    "pow",
    "reciprocal",
    "relu",
    "remainder",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "subtract",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "where",
    "xlogy",
]
