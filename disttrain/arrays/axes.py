"""Axes as NumPy takes them: None for all, numbers below 0 from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.exceptions import AxisError

Axis: TypeAlias = "int | Sequence[int] | None"


def axis_of(axis: Any, ndim: int) -> int:
    """One axis as a number from 0 on."""
    number = axis.__index__() if hasattr(axis, "__index__") else axis
    if not isinstance(number, int):
        raise TypeError(f"'{type(axis).__name__}' object cannot be interpreted as an integer")
    if not -ndim <= number < ndim:
        raise AxisError(number, ndim)
    return number % ndim


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """``axis`` (None: all) as numbers from 0 on."""
    if axis is None:
        return tuple(range(ndim))
    if hasattr(axis, "__index__"):
        return (axis_of(axis, ndim),)
    out = tuple(axis_of(a, ndim) for a in axis)  # type: ignore[union-attr]
    if len(set(out)) != len(out):
        raise ValueError(f"duplicate value in 'axis': {axis}")
    return out


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape, or one number, as a tuple of integers."""
    if hasattr(shape, "__index__") and not getattr(shape, "shape", ()):
        return (shape.__index__(),)
    try:
        return tuple(n.__index__() for n in shape)
    except (TypeError, AttributeError):
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {shape}."
        ) from None
