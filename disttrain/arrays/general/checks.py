"""What operations of XLA's vocabulary ask of operands: one element type, shapes that go together;
and how they say it where it is not so."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import OperandError, ShapeError
from ...ops import api as ops

Index: TypeAlias = Tensor  # an operand that does not decide about the type
_CLASSES = {
    "f": "floating",
    "c": "complexfloating",
    "i": "integer",
    "s": "signedinteger",
    "b": "bool",
}
_LETTERS = {"f": "fV", "c": "c", "i": "iu", "s": "i", "b": "b"}
_TIPS = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "eq": "equal", "ne": "not_equal",
    "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "rem": "remainder",
    "max": "maximum", "min": "minimum", "pow": "power", "select": "where", "add": "add",
    "atan2": "arctan2", "nextafter": "nextafter", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "shift_left": "left_shift",
    "igamma": "", "igammac": "",
}  # fmt: skip


def axis_of(d: Any, ndim: int) -> int:
    """A dimension as a number from 0 on."""
    d = operator.index(d)
    if not -ndim <= d < ndim:
        raise ShapeError(f"axis {d} is out of bounds for array of dimension {ndim}")
    return d % ndim


def shape_of(sizes: Any) -> tuple[int, ...]:
    """A shape as a tuple of integers."""
    try:
        return tuple(operator.index(n) for n in sizes)
    except TypeError:
        raise OperandError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {sizes}."
        ) from None


def kind_of(x: Tensor) -> np.dtype:
    """The element type as numpy's."""
    return x.meta()[1]


def cast(x: Tensor, kind: Any) -> Tensor:
    """``x`` in another type; of complex numbers the real part."""
    kind = np.dtype(kind)
    if kind_of(x).kind == "c" and kind.kind not in "cb":
        x = ops.real(x)
    return x.to(dtypes.of(kind))


def accepts(name: str, kind: np.dtype, takes: str, place: int | None = None) -> None:
    """Raise ``TypeError`` unless the type is of one of the classes that ``takes`` names."""
    if any(kind.kind in _LETTERS[t] for t in takes):
        return
    at = "" if place is None else f" at position {place}"
    known = ", ".join(_CLASSES[t] for t in dict.fromkeys(takes))
    raise OperandError(
        f"{name} does not accept dtype {kind.name}{at}. Accepted dtypes{at} are subtypes of "
        f"{known}."
    )


def same_types(name: str, arrays: Sequence[Tensor]) -> None:
    """Raise ``TypeError`` unless all have one element type."""
    kinds = [kind_of(a) for a in arrays]
    if any(k != kinds[0] for k in kinds):
        tip = _TIPS.get(name)
        raise OperandError(
            f"lax.{name} requires arguments to have the same dtypes, got "
            f"{', '.join(k.name for k in kinds)}."
            + (f" (Tip: jnp.{tip} is a similar function that does automatic type promotion on "
               "inputs)." if tip else "")
        )  # fmt: skip


def common_shape(name: str, arrays: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape that operands have together."""
    shapes = [tuple(a.shape) for a in arrays if a.ndim]
    if len({len(s) for s in shapes}) > 1:
        ranks = ", ".join(map(str, sorted({len(s) for s in shapes})))
        raise OperandError(
            f"{name}: arrays must have the same number of dimensions, got {{{ranks}}}"
        )
    out = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes, strict=True))
    if any(n not in (1, m) for s in shapes for n, m in zip(s, out, strict=True)):
        text = ", ".join(map(str, shapes))
        raise OperandError(f"{name} got incompatible shapes for broadcasting: {text}.")
    return out
