"""Assertions on tensors: now, or at every run of the function that is being traced."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import texts
from ..core.tensor import Tensor
from ..ops import api as ops
from ..partial_shape import fits
from .graph import CURRENT

HOLDS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
         ">": operator.gt, ">=": operator.ge}  # fmt: skip


def compared(sign: str, a: Tensor, b: Tensor, message: str | None = None) -> None:
    """Raise where ``a sign b`` does not hold, with the first places and numbers."""
    good = HOLDS[sign](a, b)
    if not bool(good.all()):
        raise ValueError((f"{message}\n" if message else "") + texts.differences(sign, good, a, b))


def true(condition: Tensor, *data: Any, shown: Callable[[Any], str] = str) -> None:
    """Raise with ``data`` unless ``condition`` holds everywhere."""
    if not bool(condition.all()):
        told = "\n".join(map(shown, data))
        raise ValueError("Expected 'tf.Tensor(False, shape=(), dtype=bool)' to be true. "
                         f"Summarized data: {told}")  # fmt: skip


def finite(x: Tensor, message: str = "") -> Tensor:
    """``x``, as a copy; an error where it has a NaN or an infinity. On examples it finds none."""
    if CURRENT.get() is None and not bool(ops.isfinite(x).all()):
        what = "NaN" if bool(ops.isnan(x).any()) else "Inf"
        raise ValueError(f"{message} : Tensor had {what} values")
    return x.clone()


def shapes(pairs: Sequence[tuple] | Mapping[Any, Any], message: str | None = None) -> None:
    """Raise unless tensors have the shapes that go with them, in which equal letters are equal."""
    known: dict[Any, int] = {}
    for t, wanted in pairs.items() if isinstance(pairs, Mapping) else pairs:
        sizes, symbols = tuple(getattr(t, "shape", None) or np.shape(t)), tuple(wanted)
        if not fits(sizes, symbols, known):
            raise ValueError(f"{message or ''} Tensor has shape {sizes}, which must be {symbols}")


def rank(t: Any, wanted: int, message: str | None = None) -> None:
    """Raise unless ``t`` has so many dimensions."""
    sizes = getattr(t, "shape", None) or np.shape(t)
    if len(sizes) != wanted:
        raise ValueError(f"{message or ''}Tensor must have rank {wanted}.  Received rank "
                         f"{len(sizes)}, shape {tuple(sizes)}")  # fmt: skip


def kind(t: Any, wanted: Any, message: str | None = None) -> None:
    """Raise unless ``t`` is of the type."""
    if t.dtype is not wanted:
        raise TypeError(f"{message or ''}tensor must be of type {wanted!r}; got {t.dtype!r}")
