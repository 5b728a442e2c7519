"""Quotients, powers and parts of numbers, with what they are where numbers have none."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops import api as ops


def power(x: Tensor, y: Tensor) -> Tensor:
    """``x ** y``; of integers to powers that are not negative alone."""
    if not y.dtype.is_floating_point and not y.dtype.is_complex and bool((y < 0).any()):
        raise ValueError("Integers to negative integer powers are not allowed")
    return ops.pow(x, y)


def divide_no_nan(x: Tensor, y: Tensor) -> Tensor:
    """``x / y``, and 0 where ``y`` is 0; of integers in float64."""
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        x, y = x.double(), y.double()
    rest = ops.where(y == 0, ops.ones_like(y), y)
    return ops.where(y == 0, ops.zeros_like(y), x / rest)


def multiply_no_nan(x: Tensor, y: Tensor) -> Tensor:
    """``x * y``, and 0 where ``y`` is 0, whatever ``x`` is."""
    return ops.where(y == 0, ops.zeros_like(y), x * y)


def xdivy(x: Tensor, y: Tensor) -> Tensor:
    """``x / y``, and 0 where ``x`` is 0."""
    return ops.where(x == 0, ops.zeros_like(x), x / y)


def truncatediv(x: Tensor, y: Tensor) -> Tensor:
    """The quotient without its fraction."""
    return ops.div(x, y, rounding_mode="trunc")


def squared_difference(x: Tensor, y: Tensor) -> Tensor:
    """``(x - y) ** 2``."""
    return ops.square(x - y)


def clip_by_value(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``x`` between ``low`` and ``high``, of which ``low`` goes first."""
    return ops.maximum(ops.minimum(x, high), low)


def round(x: Tensor) -> Tensor:  # noqa: A001
    """The nearest whole number; integers as they are."""
    return ops.round(x) if x.dtype.is_floating_point else x


def conj(x: Tensor) -> Tensor:
    """The conjugate, as a copy."""
    return ops.conj(x).resolve_conj()


def real(x: Tensor) -> Tensor:
    """The real part; of real numbers themselves."""
    return ops.real(x) if x.dtype.is_complex else x


def imag(x: Tensor) -> Tensor:
    """The imaginary part; 0 of real numbers."""
    return ops.imag(x) if x.dtype.is_complex else ops.zeros_like(x)


def invert_permutation(x: Tensor) -> Tensor:
    """The permutation that undoes ``x``."""
    return ops.argsort(x).to(x.dtype)


def zero_fraction(x: Tensor) -> Tensor:
    """Which share of the elements is 0."""
    return ops.mean((x == 0).float())


def converted(x: Tensor, kind: Any) -> Tensor:
    """``x`` in another type: floats to integers toward zero, complex numbers to their real parts
    where the type is real."""
    return (ops.real(x) if x.dtype.is_complex and not kind.is_complex else x).to(kind)
