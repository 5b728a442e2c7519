"""Arrays made where others lie: by numpy, or by the module of the accelerator's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ..device.platform import platform_of


def empty(like: object, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array that holds anything, where ``like`` lies."""
    if like.__class__ is ndarray:
        return np.empty(shape, dtype)
    return np.empty_like(like, dtype=dtype, order="C", shape=shape)


def zeros(like: object, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of zeros, where ``like`` lies."""
    if like.__class__ is ndarray:
        return np.zeros(shape, dtype)
    return np.zeros_like(like, dtype=dtype, order="C", shape=shape)


def lead(arrays: tuple) -> Any:
    """The first of ``arrays`` that lies on an accelerator, else the first: numbers go along."""
    return next((a for a in arrays if platform_of(a) is not None), arrays[0])


__all__ = ["empty", "lead", "platform_of", "zeros"]
