"""Functions of single elements, as tables: a name in JAX, what computes it, the type it is in."""

from __future__ import annotations

from typing import Any

from ....arrays import bits, elements
from ....ops import api as ops
from .. import types
from ..array import Array
from ..tracing import is_traced
from .lifting import binary, given_back, named, operands, to_tensor, unary

# In the type of the operand, if that is floating or complex; in float32 else.
_INEXACT = """
acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2 sin sinh sqrt tan tanh
reciprocal sinc i0
arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan arctanh=atanh
cbrt=elements.cbrt spacing=elements.spacing
"""
_FLOATING = """
deg2rad=elements.deg2rad rad2deg=elements.rad2deg degrees=elements.rad2deg
radians=elements.deg2rad fabs=abs
"""
_TWO_INEXACT = """
true_divide=div divide=div arctan2=atan2 atan2 logaddexp logaddexp2=elements.logaddexp2
hypot float_power=pow copysign nextafter heaviside=elements.heaviside
"""
_SAME = """
negative=neg positive=elements.same sign=elements.sign floor=elements.floor ceil=elements.ceil
trunc=elements.trunc real imag=elements.imag conj conjugate=conj
abs=elements.abs absolute=elements.abs bitwise_not bitwise_invert=bitwise_not invert=bitwise_not
"""
_TWO = """
add=elements.add subtract=sub multiply=elements.mul maximum=elements.maximum
minimum=elements.minimum bitwise_and bitwise_or bitwise_xor
fmax fmin gcd lcm
"""
_TWO_NUMERIC = """
left_shift=elements.left_shift bitwise_left_shift=elements.left_shift
right_shift=elements.right_shift bitwise_right_shift=elements.right_shift
remainder=elements.remainder mod=elements.remainder fmod=elements.fmod
floor_divide=elements.floor_divide
"""
_FLAG = (
    "isnan isinf isfinite isposinf isneginf signbit logical_not iscomplex=elements.iscomplex isreal"
)
_FLAGS = """
equal=eq not_equal=ne less=elements.lt less_equal=elements.le greater=elements.gt
greater_equal=elements.ge logical_and logical_or logical_xor
"""


def _rows(text: str) -> list[tuple[str, Any]]:
    pairs = [row.partition("=")[::2] for row in text.split()]
    return [(name, _found(source or name)) for name, source in pairs]


def _found(source: str) -> Any:
    module, _, name = source.rpartition(".")
    return getattr(elements if module else ops, name)


_TABLES = (
    (_INEXACT, unary, types.inexact), (_FLOATING, unary, types.inexact), (_SAME, unary, None),
    (_FLAG, unary, None), (_TWO_INEXACT, binary, types.inexact), (_TWO, binary, None),
    (_TWO_NUMERIC, binary, types.numeric), (_FLAGS, binary, None),
)  # fmt: skip
_STRONG = set(
    "log10 log2 spacing logaddexp2 hypot heaviside gcd lcm signbit isposinf isneginf isinf".split()
)  # results that are never weak
NAMES: dict[str, Any] = {
    name: make(name, fn, to, name in _STRONG)
    for text, make, to in _TABLES
    for name, fn in _rows(text)
}
NAMES["square"] = unary("square", ops.square, types.numeric)
NAMES["bitwise_count"] = unary("bitwise_count", bits.bitwise_count, types.numeric, True)


def _whole(y: Any) -> int | None:
    """An exponent that is one whole number, known now."""
    if y.__class__ is int:
        return y
    one = y.__class__ is Array and not y.ndim and y.dtype.kind in "iu"
    return int(y) if one and not is_traced(y._value) else None


def power(x: Any, y: Any, /) -> Array:
    """``x`` to the power of ``y``; integers keep their type."""
    whole = _whole(y)
    if whole is None:
        tensors, weak = operands("power", (x, y), types.numeric)
        return given_back(elements.power(tensors[0], tensors[1]), weak)
    (value,), weak = operands("power", (x,), types.numeric)
    if whole < 0 and value.meta()[1].kind in "iu":
        raise TypeError(f"Integers cannot be raised to negative powers, got integer_pow({whole})")
    return given_back(elements.power(value, to_tensor(y, value.meta()[1]), whole), weak)


def divmod(x: Any, y: Any, /) -> tuple[Array, Array]:
    """Floored quotient and remainder."""
    return NAMES["floor_divide"](x, y), NAMES["remainder"](x, y)


NAMES |= {"power": named(power, "power"), "divmod": named(divmod, "divmod"), "pow": power}
