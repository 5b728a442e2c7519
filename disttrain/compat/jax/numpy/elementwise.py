"""Functions of single elements: rows say in which type, then names in JAX with what computes them
(of ``arrays.elements`` or ``ops``)."""

from __future__ import annotations

from typing import Any

from ....arrays import bits, elements
from ....ops import api as ops
from .. import types
from ..array import Array
from ..tracing import is_traced
from .lifting import LIFTING, binary, given_back, named, operands, to_tensor, unary

_UNARY = """
inexact: acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2 sin sinh sqrt
tan tanh reciprocal sinc i0 arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan
arctanh=atanh cbrt spacing deg2rad rad2deg degrees=rad2deg radians=deg2rad fabs=abs;
same: negative=neg positive=same sign floor ceil trunc real imag conj conjugate=conj abs
absolute=abs bitwise_not bitwise_invert=bitwise_not invert=bitwise_not isnan isinf isfinite isposinf
isneginf signbit logical_not iscomplex isreal; numeric: square bitwise_count
"""
_BINARY = """
inexact: true_divide=div divide=div arctan2=atan2 atan2 logaddexp logaddexp2 hypot float_power=pow
copysign nextafter heaviside;
same: add subtract=sub multiply=mul maximum minimum bitwise_and bitwise_or bitwise_xor fmax fmin gcd
lcm equal=eq not_equal=ne less=lt less_equal=le greater=gt greater_equal=ge logical_and logical_or
logical_xor; numeric: left_shift bitwise_left_shift=left_shift right_shift
bitwise_right_shift=right_shift remainder mod=remainder fmod floor_divide
"""
_STRONG = frozenset(  # whose results are never weak
    "log10 log2 spacing logaddexp2 hypot heaviside gcd lcm signbit isposinf isneginf isinf "
    "bitwise_count".split()
)
_SOURCES = (elements, bits, ops)
NAMES: dict[str, Any] = {
    **LIFTING.elementwise(_UNARY, unary, _SOURCES, _STRONG),
    **LIFTING.elementwise(_BINARY, binary, _SOURCES, _STRONG),
}


def _whole(y: Any) -> int | None:
    """An exponent that is one whole number, known now."""
    if y.__class__ is int:
        return y  # type: ignore[no-any-return]
    one = y.__class__ is Array and not y.ndim and y.dtype.kind in "iu"
    return int(y) if one and not is_traced(y._value) else None


def power(x: Any, y: Any, /) -> Array:
    """``x`` to the power of ``y``; integers keep their type."""
    whole = _whole(y)
    tensors, weak = operands("power", (x, y) if whole is None else (x,), types.numeric)
    value, kind = tensors[0], tensors[0].meta()[1]
    if whole is not None and whole < 0 and kind.kind in "iu":
        raise TypeError(f"Integers cannot be raised to negative powers, got integer_pow({whole})")
    exponent = tensors[1] if whole is None else to_tensor(y, kind)
    return given_back(elements.power(value, exponent, whole), weak)  # type: ignore[no-any-return]


def divmod(x: Any, y: Any, /) -> tuple[Array, Array]:
    """Floored quotient and remainder."""
    return NAMES["floor_divide"](x, y), NAMES["remainder"](x, y)


NAMES |= {"power": named(power, "power"), "divmod": named(divmod, "divmod"), "pow": power}
