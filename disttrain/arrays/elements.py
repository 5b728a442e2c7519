"""Elementwise functions with NumPy's and XLA's meaning at the edges: bools that are added, shifts
by more than there are bits, integers over 0, complex numbers in an order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import DTypeError
from ..ops import api as ops
from ..ops import later


def _kind(x: Tensor) -> str:
    return x.meta()[1].kind


def _is_int(x: Any) -> bool:
    return _kind(x) in "iu"


def unless_bool(fn: Callable) -> Callable:
    """``fn``, which leaves bools as they are."""
    return lambda x: x if _kind(x) == "b" else fn(x)


floor, ceil, trunc, abs = map(unless_bool, (ops.floor, ops.ceil, ops.trunc, ops.abs))  # noqa: A001


def imag(x: Tensor) -> Tensor:
    """The imaginary part; of real numbers 0."""
    return ops.imag(x) if _kind(x) == "c" else ops.zeros_like(x)


def deg2rad(x: Tensor) -> Tensor:
    """Degrees as radians."""
    return x * (math.pi / 180)


def rad2deg(x: Tensor) -> Tensor:
    """Radians as degrees."""
    return x * (180 / math.pi)


def angle(z: Tensor, deg: bool = False) -> Tensor:
    """The argument of complex numbers; of real ones 0 or pi."""
    if _kind(z) == "c":
        out = ops.angle(z)
    else:
        out = ops.where(z < 0, math.pi, 0.0).to(z.dtype)
    return rad2deg(out) if deg else out


def modf(x: Tensor) -> tuple[Tensor, Tensor]:
    """The fractional and the integral parts."""
    whole = ops.trunc(x)
    return x - whole, whole


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissas in [0.5, 1) and exponents."""
    mantissa, exponent = later.frexp(x)
    return mantissa, exponent


def ldexp(x1: Tensor, x2: Tensor) -> Tensor:
    """``x1 * 2**x2``."""
    return ops.ldexp(x1, x2).to(x1.dtype)


def rint(x: Tensor) -> Tensor:
    """The nearest whole number, halves to even ones."""
    return round(x, 0)


def clip(arr: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:  # noqa: A002
    """``arr`` between ``min`` and ``max``."""
    if _kind(arr) == "c":
        raise ValueError("clip of complex numbers, which have no order")
    out = arr if min is None else ops.maximum(min, arr)
    return out if max is None else ops.minimum(max, out)


def same(x: Tensor) -> Tensor:
    """``x``."""
    return x


def add(a: Tensor, b: Any) -> Tensor:
    """The sum; of bools, whether one holds."""
    return ops.logical_or(a, b) if _kind(a) == "b" else ops.add(a, b)


def mul(a: Tensor, b: Any) -> Tensor:
    """The product; of bools, whether both hold."""
    return ops.logical_and(a, b) if _kind(a) == "b" else ops.mul(a, b)


def sign(x: Tensor) -> Tensor:
    """-1, 0, 1 or nan; of complex numbers x / |x|."""
    kind = _kind(x)
    if kind == "b":
        raise DTypeError("sign: bools have none")
    if kind == "c":
        return ops.sgn(x)
    out = ops.sign(x)
    return ops.where(ops.isnan(x), x, out) if kind not in "biu" else out


def cbrt(x: Tensor) -> Tensor:
    """The real cube root, by one step of Newton's from a power."""
    size = ops.abs(x)
    zero = size == 0
    root = ops.where(zero, ops.ones_like(size), size) ** (1.0 / 3.0)
    better = root - (root - ops.where(zero, ops.ones_like(size), size) / (root * root)) / 3.0
    root = ops.where(ops.isfinite(better), better, root)
    return ops.where(zero, x, ops.sign(x) * root)


def spacing(x: Tensor) -> Tensor:
    """How far the next number is, away from 0."""
    up = ops.nextafter(x, ops.copysign(ops.full_like(x, float("inf")), x))
    return ops.abs(up - x)


def _bits(x: Tensor) -> int:
    return 8 * x.meta()[1].itemsize


def left_shift(a: Tensor, b: Tensor) -> Tensor:
    """``a * 2**b``, 0 from as many bits on as there are."""
    inside = (b >= 0) & (b < _bits(a))
    return ops.where(inside, a << ops.where(inside, b, ops.zeros_like(b)), ops.zeros_like(a))


def right_shift(a: Tensor, b: Tensor) -> Tensor:
    """``a`` over ``2**b``, floored: what is left beyond all bits is the sign."""
    most = _bits(a) - 1
    inside = (b >= 0) & (b <= most)
    shifted = a >> ops.where(inside, b, ops.full_like(b, most))
    return shifted if _kind(a) == "i" else ops.where(inside, shifted, ops.zeros_like(a))


def fmod(a: Tensor, b: Any) -> Tensor:
    """The remainder with the sign of ``a``; of integers by 0, 0."""
    if not _is_int(a):
        return ops.fmod(a, b)
    return ops.fmod(a, ops.where(b == 0, ops.ones_like(b), b))


def remainder(a: Tensor, b: Any) -> Tensor:
    """The remainder with the sign of ``b``; of integers by 0, 0."""
    rest = fmod(a, b)
    other = (rest != 0) & ((rest < 0) != (b < 0)) if _kind(a) != "u" else None
    return rest if other is None else ops.where(other, rest + b, rest)


def floor_divide(a: Tensor, b: Any) -> Tensor:
    """The quotient, floored; of integers by 0, all bits."""
    if not _is_int(a):
        return ops.floor_divide(a, b)
    zero = b == 0
    out = ops.div(a, ops.where(zero, ops.ones_like(b), b), rounding_mode="trunc")
    out = ops.where(zero, ops.bitwise_not(ops.zeros_like(a)), out)
    if _kind(a) == "u":
        return out
    rest = ops.where(zero, a, fmod(a, b))
    lower = (ops.sign(a) != ops.sign(b)) & (rest != 0)
    return ops.where(lower, out - 1, out)


def _ordered(fn: Callable) -> Callable:
    """A comparison; of complex numbers by real parts first, then by imaginary ones."""

    def run(a: Tensor, b: Any) -> Tensor:
        if _kind(a) != "c" or not isinstance(b, Tensor):
            return fn(a, b)
        ar, br = ops.real(a), ops.real(b)
        return ops.where(ar == br, fn(ops.imag(a), ops.imag(b)), fn(ar, br))

    return run


def _extreme(fn: Callable, first: Callable) -> Callable:
    """The greater or the lesser of two; of complex numbers by real parts first."""

    def run(a: Tensor, b: Any) -> Tensor:
        if _kind(a) != "c":
            return fn(a, b)
        return ops.where(ops.isnan(a) | (first(a, b) & ~ops.isnan(b)), a, b)

    return run


lt, le, gt, ge = map(_ordered, (ops.lt, ops.le, ops.gt, ops.ge))
maximum, minimum = _extreme(ops.maximum, gt), _extreme(ops.minimum, lt)


def _two_exponents(a: Tensor, b: Tensor) -> Tensor:
    if _kind(a) != "c":
        return ops.logaddexp2(a, b)
    return ops.logaddexp(a * math.log(2), b * math.log(2)) / math.log(2)


logaddexp2 = _two_exponents


def heaviside(x: Tensor, half: Tensor) -> Tensor:
    """0 below 0, 1 above it, ``half`` at it."""
    out = ops.where(x == 0, half, (x > 0).to(x.dtype))
    return ops.where(ops.isnan(x), x, out)


def iscomplex(x: Tensor) -> Tensor:
    """Whether the imaginary part is not 0."""
    if _kind(x) != "c":
        return ops.zeros_like(x, dtype=dtypes.bool)
    return ops.imag(x) != 0


def power(a: Tensor, b: Tensor, whole: int | None = None) -> Tensor:
    """``a ** b``; integers by repeated squares, of which the last 6 bits of the exponent count.
    ``whole``: the exponent where it is a number of the program."""
    if not _is_int(a):
        return ops.pow(a, float(whole) if whole is not None and _kind(a) != "c" else b)
    out, square, rest = ops.ones_like(a), a, b
    for _ in range(6 if whole is None else max(whole.bit_length(), 1)):
        out = ops.where((rest & 1) == 1, out * square, out)
        square, rest = square * square, rest >> 1
    return out


def round(a: Tensor, decimals: int = 0) -> Tensor:  # noqa: A001
    """``a`` to so many decimals, halves to even ones; ``decimals`` below 0 round whole numbers."""
    if _is_int(a):
        if decimals >= 0:
            return a
        return ops.round(a.to(dtypes.float64) / 10.0**-decimals).to(a.dtype) * 10**-decimals
    if _kind(a) == "c":
        return ops.complex(round(ops.real(a), decimals), round(ops.imag(a), decimals))
    if not decimals:
        return ops.round(a)
    scaled = ops.round(a * 10.0**decimals) / 10.0**decimals
    return ops.where(ops.isfinite(scaled), scaled, a)


def nan_to_num(
    x: Tensor, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Tensor:
    """``x`` with numbers for nan and the infinities (None: the largest and the least there are)."""
    if _kind(x) == "c":
        parts = ops.real(x), ops.imag(x)
        return ops.complex(*(nan_to_num(p, copy, nan, posinf, neginf) for p in parts))
    return x if _kind(x) in "biu" else ops.nan_to_num(x, nan, posinf, neginf)


__all__ = [
    "abs", "add", "angle", "cbrt", "ceil", "clip", "deg2rad", "floor", "floor_divide", "fmod",
    "frexp", "ge", "gt", "heaviside", "imag", "iscomplex", "ldexp", "le", "left_shift",
    "logaddexp2", "lt", "maximum", "minimum", "modf", "mul", "nan_to_num", "power", "rad2deg",
    "remainder", "right_shift", "rint", "round", "same", "sign", "spacing", "trunc",
    "unless_bool",
]  # fmt: skip
