"""Public elementwise functions: arithmetic, comparisons, logic. Torch's names."""

from __future__ import annotations

import functools
import math as _math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Algebra, fast
from ...core.annotations import Number, Operand, Scalar
from ...core.gate import Primitive, gate
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...core.types.wide import is_half
from ...errors import ConfigError, DTypeError, NumberError
from ...trace import warn
from ..primitives import elementwise as el
from ..primitives.aliases import imag, real
from ..promotion import fitted, no_bool, refuse, result_type, same_type, scalar
from .args import in_float32, kinds
from .args import tensor as as_input
from .creation import create
from .index_arrays import nonzero_places

neg = negative = fast.unary(el.neg)
abs = absolute = fast.unary(el.absolute)  # noqa: A001
exp, log, sqrt, rsqrt = (fast.unary(p) for p in (el.exp, el.log, el.sqrt, el.rsqrt))
sin, cos, tanh, sigmoid = (fast.unary(p) for p in (el.sin, el.cos, el.tanh, el.sigmoid))
relu, square, erf = (fast.unary(p) for p in (el.relu, el.square, el.erf))
exp2, expm1, log2, log10, log1p = el.exp2, el.expm1, el.log2, el.log10, el.log1p
tan, asin, acos, atan, sinh, cosh = el.tan, el.asin, el.acos, el.atan, el.sinh, el.cosh
asinh, acosh, atanh, reciprocal = el.asinh, el.acosh, el.atanh, el.reciprocal
arcsin, arccos, arctan = asin, acos, atan
floor, ceil, trunc, sign, sgn = (
    fast.unary(p) for p in (el.floor, el.ceil, el.trunc, el.sign, el.sgn)
)
isnan, isinf, isfinite = el.isnan, el.isinf, el.isfinite
logical_not, bitwise_not = el.logical_not, el.bitwise_not
bitwise_and, bitwise_or, bitwise_xor = el.bitwise_and, el.bitwise_or, el.bitwise_xor


def _comparison(prim: Primitive, args: tuple, params: dict) -> Tensor:
    """The gate for comparisons, whose first operand is a tensor."""
    a, b = args
    return gate(prim, (as_input(a, prim.name), b), params)


def _compare(prim: Primitive, name: str) -> Callable[..., Tensor]:
    run = fast.binary(prim, _comparison)
    run.__name__ = run.__qualname__ = name
    return run


eq, ne, lt = _compare(el.eq, "eq"), _compare(el.ne, "ne"), _compare(el.lt, "lt")
le, gt, ge = _compare(el.le, "le"), _compare(el.gt, "gt"), _compare(el.ge, "ge")
greater, greater_equal = _compare(el.gt, "greater"), _compare(el.ge, "greater_equal")
less, less_equal = _compare(el.lt, "less"), _compare(el.le, "less_equal")
not_equal = _compare(el.ne, "not_equal")
remainder, floor_divide = el.remainder, el.floor_divide


# --- arithmetic --------------------------------------------------------------------------------
def _scaled(prim: Primitive, args: tuple, params: dict) -> Tensor:
    """The gate for products and quotients: a number beside a tensor of a half type is not rounded
    to that type first (1e-8 and 1e5 are no float16), only the result is."""
    kind = _half_beside_number(*args)
    if kind is None:
        return gate(prim, args, params)
    wide = [el.cast(x, dtype=_FLOAT32) if isinstance(x, Tensor) else x for x in args]
    return el.cast(gate(prim, tuple(wide), params), dtype=kind)


_FLOAT32 = np.dtype(np.float32)


def _half_beside_number(a: Tensor, b: Tensor | float) -> np.dtype | None:
    for half, number in ((a, b), (b, a)):
        if isinstance(half, Tensor) and is_half(half.meta()[1]):
            if isinstance(number, Tensor):
                shape, kind = number.meta()
                plain = not shape and half.ndim and kind.kind in "fV" and kind != half.meta()[1]
            else:
                plain = isinstance(number, (int, float, np.floating, np.integer))
            if plain:
                return half.meta()[1]
    return None


fast_add, fast_sub = fast.binary(el.add), fast.binary(el.sub)
fast_mul: Callable[..., Tensor] = fast.binary(el.mul, _scaled)
fast_div: Callable[..., Tensor] = fast.binary(el.div, _scaled)
mul = multiply = fast_mul


def _power(prim: Primitive, args: tuple, params: dict) -> Tensor:
    """The gate for powers: booleans have none but the first."""
    a, b = args
    if not isinstance(a, Tensor):
        as_input(b, "pow", "exponent")
    if b is True and isinstance(a, Tensor) and a.meta()[1].kind == "b":
        return el.copy(a)
    if isinstance(a, Tensor) and a.meta()[1].kind in "iu" and b.__class__ is int:
        fitted("pow", b, a.dtype)
        if b < 0:
            raise NumberError(
                f"pow: integers to the negative integer power {b} given; convert the tensor with "
                ".float() first"
            )
    return gate(prim, args, params)


pow = fast.binary(el.pow_, _power)  # noqa: A001


def _multiple(where: str, input: Tensor, other: Tensor | complex | float, alpha: Number) -> Any:
    """``alpha * other``, in the type of the result, which must be able to hold ``alpha``."""
    kind = result_type(input, other)
    whole = alpha.__class__ is int or isinstance(alpha, np.integer)
    if alpha.__class__ is bool:
        fits = kind is dtypes.bool
    elif isinstance(alpha, _COMPLEX):
        fits = kind.is_complex
    else:
        fits = whole or kind.is_floating_point or kind.is_complex
    if not fits:
        raise DTypeError(
            f"{where}: alpha must not be {alpha!r} for a result of {kind!r}: a number that "
            "the type can hold"
        )
    alpha = fitted(where, alpha, kind)
    if not isinstance(other, Tensor):
        return bool(other and alpha) if kind is dtypes.bool else other * alpha
    if kind is dtypes.bool:
        return el.logical_and(other, bool(alpha))
    return fast_mul(el.cast(other, dtype=kind.np) if other.dtype is not kind else other, alpha)


_COMPLEX = (complex, np.complexfloating)


def add(input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """``input + alpha * other``."""
    if out is not None:
        return Algebra.into(out, add, (input, other), {"alpha": alpha})
    if alpha.__class__ is int and alpha == 1:
        return fast_add(input, other)
    return _add_multiple(input, other, alpha)


@in_float32
def _add_multiple(input: Any, other: Any, alpha: Number) -> Tensor:
    return fast_add(input, _multiple("add", input, other, alpha))


def sub(input: Operand, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """``input - alpha * other``."""
    if out is not None:
        return Algebra.into(out, sub, (input, other), {"alpha": alpha})
    if alpha.__class__ is int and alpha == 1:
        return fast_sub(input, other)
    return _sub_multiple(input, other, alpha)


@in_float32
def _sub_multiple(input: object, other: object, alpha: Number) -> Tensor:
    a, b = no_bool("sub", tuple)((input, other))
    return fast_sub(input, _multiple("sub", a, b, alpha))


subtract = sub


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``, rounded towards zero ('trunc') or down ('floor') when asked."""
    if rounding_mode is None:
        return fast_div(input, other)
    if rounding_mode == "floor":
        return el.floor_divide(input, other)
    if rounding_mode == "trunc":
        return el.truncate_divide(input, other)
    raise ConfigError(f"div: rounding_mode={rounding_mode!r}; needed None, 'floor' or 'trunc'")


divide = true_divide = div


# --- of two tensors ----------------------------------------------------------------------------
def of_tensors(prim: Primitive) -> Callable[[Tensor, Tensor], Tensor]:
    """``prim`` for two tensors; numbers are refused, as PyTorch refuses them."""
    name = prim.name

    def run(input: Tensor, other: Tensor) -> Tensor:
        return prim(as_input(input, name), as_input(other, name, "other"))

    run.__name__ = run.__qualname__ = name
    return run


def of_a_tensor(prim: Primitive) -> Callable[[Tensor, Operand], Tensor]:
    """``prim`` for a tensor and what is a tensor or a number."""
    name = prim.name

    def run(input: Tensor, other: Operand) -> Tensor:
        return prim(as_input(input, name), other)

    run.__name__ = run.__qualname__ = name
    return run


maximum, minimum = of_tensors(el.maximum), of_tensors(el.minimum)
atan2, logaddexp = of_tensors(el.atan2), of_tensors(el.logaddexp)
logical_and, logical_or = of_tensors(el.logical_and), of_tensors(el.logical_or)
logical_xor = of_tensors(el.logical_xor)


# --- the rest ----------------------------------------------------------------------------------
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself. (Not a view: PyTorch conjugates late.)"""
    return el.conj(input) if as_input(input, "conj").dtype.is_complex else input


def conj_physical(input: Tensor) -> Tensor:
    """``conj``."""
    return conj(input)


@in_float32
def round(input: Tensor, *, decimals: int = 0) -> Tensor:  # noqa: A001
    """Round half to even, at ``decimals`` digits."""
    if not decimals:
        return el.round_(input)
    if input.meta()[1].kind not in "fV":
        raise refuse("round with decimals", input.meta()[1])
    if decimals < 0:
        return el.round_(input / 10.0**-decimals) * 10.0**-decimals
    return el.round_(input * 10.0**decimals) / 10.0**decimals


def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Any:
    """``input`` where ``condition`` holds, else ``other``; with one argument, the indices."""
    if input is None and other is None:
        return nonzero_places(condition)
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        kind = result_type(input, other).np
        return el.where(condition, *(wrap(np.asarray(x, kind)) for x in (input, other)))
    return el.where(condition, input, other)


def _as_number(x: object) -> Any:
    """A tensor of one number as that number, where no gradient is wanted of it."""
    return x.item() if isinstance(x, Tensor) and not x.ndim and not x.requires_grad else x


_PLAIN = (float, int, type(None))


def clamp(input: Tensor, min: Scalar | None = None, max: Scalar | None = None) -> Tensor:  # noqa: A002
    """Limit to ``[min, max]`` (numbers, or tensors). Where min is above max, the result is max."""
    as_input(input, "clamp")
    if min is None and max is None:
        raise ConfigError(
            "clamp: At least one of 'min' or 'max' must not be None; give at least one"
        )
    if isinstance(min, Tensor) != isinstance(max, Tensor) and min is not None and max is not None:
        min, max = (_as_number(x) for x in (min, max))  # noqa: A001
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if not all(isinstance(x, Tensor) or x is None for x in (min, max)):
            raise TypeError("clamp: min and max must both be tensors or both be numbers")
        if min is not None and max is not None:
            input = el.cast(input, dtype=result_type(input, min, max).np)
        if isinstance(min, Tensor) and max is not None and min.requires_grad:
            min = el.where(el.eq(min, max), min.detach(), min)  # noqa: A001  (max counts there)
        out = input if min is None else el.clip_below(input, min)
        kinds("clamp", "biufV" if min is None or max is None else "iufV", out)
        return out if max is None else el.clip_above(out, max)
    plain = min.__class__ in _PLAIN and max.__class__ in _PLAIN and min == min and max == max
    if plain and input.meta()[1].char in "fd":
        return el.clip(input, low=min, high=max)
    kind = result_type(input, *(x for x in (min, max) if x is not None))
    if kind.np.kind not in "iufV":
        raise refuse("clamp", kind.np)
    low, high = (x if x is None else fitted("clamp", x, kind) for x in (min, max))
    if low != low or high != high:
        return input * _math.nan
    if kind is not input.dtype:
        input = el.cast(input, dtype=kind.np)
    return el.clip(input, low=low, high=high)


clip = clamp


def clamp_min(input: Tensor, min: Scalar) -> Tensor:  # noqa: A002
    """``clamp`` from below."""
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Scalar) -> Tensor:  # noqa: A002
    """``clamp`` from above."""
    return clamp(input, max=max)


@in_float32
def lerp(input: Tensor, end: Tensor, weight: Scalar) -> Tensor:
    """``input + weight * (end - input)``, exact at both ends."""
    same_type("lerp", input, as_input(end, "lerp", "end"))
    kinds("lerp", "fVc", input)
    if isinstance(weight, Tensor) and weight.ndim:
        same_type("lerp", input, weight)
    if not isinstance(weight, Tensor):
        share = scalar(weight)
        if _math.hypot(share.real, share.imag) < 0.5:
            return input + (end - input) * share
        return end - (end - input) * (1 - share)
    near = el.lt(abs(weight), 0.5)
    gap = end - input
    return el.where(near, input + gap * weight, end - gap * (1 - weight))


def _older_form(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``fn``, also with ``value`` in the second place, as in old programs."""

    @functools.wraps(fn)
    def run(input: Tensor, *args: Any, **more: Any) -> Tensor:
        if len(args) == 3:
            warn(
                f"This overload of {fn.__name__} is deprecated: {fn.__name__}(Tensor input, Number "
                "value, Tensor tensor1, Tensor tensor2); pass value= by name"
            )
            more["value"], args = args[0], args[1:]
        return fn(input, *args, **more)

    return run


@_older_form
@in_float32
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    kind = result_type(input, tensor1, tensor2)
    if kind is dtypes.bool:
        raise refuse("addcmul", kind.np)
    product = fast_mul(el.cast(tensor1, dtype=kind.np), tensor2)
    return input + (product if value == 1 else product * fitted("addcmul", value, kind))


@_older_form
@in_float32
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``; integers are not divided."""
    if not {t.meta()[1].kind for t in (tensor1, tensor2)} & set("fVc"):
        raise DTypeError(
            "Integer division with addcdiv is no longer supported: convert one tensor with "
            ".float() first, or use addcmul with div(..., rounding_mode='trunc')"
        )
    kind = result_type(input, tensor1, tensor2)
    quotient = fast_div(el.cast(tensor1, dtype=kind.np), tensor2)
    return input + (quotient if value == 1 else quotient * value)


def xlogy(input: Operand, other: Operand) -> Tensor:
    """``input * log(other)``, 0 where ``input`` is 0 and ``other`` is not nan."""
    return el.xlogy(input, other)


def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:  # fmt: skip
    """Replace nan and infinities by numbers (the type's largest by default)."""
    if as_input(input, "nan_to_num").meta()[1].kind in "biu":
        return el.copy(input)
    if input.dtype.is_complex:
        parts = (nan_to_num(part(input), nan, posinf, neginf) for part in (real, imag))
        return create.complex(*parts)
    info = dtypes.finfo(input.dtype)
    out = el.where(isnan(input), 0.0 if nan is None else nan, input)
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
