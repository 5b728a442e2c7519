"""What Python asks of arrays (truth, numbers, an index), whose numbers are an array of NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np


def single(array: np.ndarray) -> Any:
    """The number of an array without dimensions."""
    if array.ndim:
        raise TypeError(
            f"Only scalar arrays can be converted to Python scalars; got arr.ndim={array.ndim}"
        )
    return array[()]


def item(array: np.ndarray, *at: Any) -> Any:
    """The one element, or the one at a place, as a number of Python."""
    if not at and array.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    return array.item(*at)


def truth(array: np.ndarray) -> bool:
    """Whether the one element is not 0."""
    if array.size > 1:
        raise ValueError(
            "The truth value of an array with more than one element is ambiguous. Use a.any() or "
            "a.all()"
        )
    if not array.size:
        raise ValueError(
            "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an "
            "array is not empty."
        )
    return bool(array.reshape(-1)[0])


def index(array: np.ndarray) -> int:
    """An integer, for Python."""
    if array.ndim or array.dtype.kind not in "iu":
        raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
    return int(array[()])


def length(shape: tuple[int, ...]) -> int:
    """How long the first dimension is."""
    if not shape:
        raise TypeError("len() of unsized object")
    return int(shape[0])
