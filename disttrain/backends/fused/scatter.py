"""Rows and numbers added up by place, by generated code where it gains."""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

import numpy as np

_LEAST = 4096  # elements from which it gains (measured)


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first rows that need it."""
    return importlib.import_module("..llvm.kernels.scatter", __package__)


def add_rows(g: np.ndarray, index: np.ndarray, size: int) -> np.ndarray | None:
    """``out[index[i]] += g[i]``, in this order, in a new array of zeros (size, d); None where that
    is better done otherwise, or a number does not lie in 0 .. size - 1."""
    if g.size < _LEAST or g.dtype.kind != "f" or not g.dtype.isnative:
        return None
    scatter = _code().scatter(g.dtype.name)
    if scatter is None:
        return None
    g, index = np.ascontiguousarray(g), np.ascontiguousarray(index, np.int64)
    if index.min() < 0 or index.max() >= size:
        return None
    out = np.zeros((size, g.shape[1]), g.dtype)
    addresses = (x.__array_interface__["data"][0] for x in (out, g, index))
    scatter(*addresses, *g.shape)
    return out


def add_along(g: np.ndarray, index: np.ndarray, dim: int, shape: tuple) -> np.ndarray | None:
    """``out[index[i, k, j]] += g[i, k, j]`` along ``dim``, in this order and in float64, in a new
    array of zeros; None where that is better done otherwise, or a number does not lie in it."""
    if g.size < _LEAST or g.dtype.kind != "f" or not g.dtype.isnative:
        return None
    others = [n for i, n in enumerate(shape) if i != dim]
    run = _code().along(g.dtype.name)
    if run is None or others != [n for i, n in enumerate(index.shape) if i != dim]:
        return None
    size, inner = shape[dim], math.prod(shape[dim + 1 :])
    g, index = np.ascontiguousarray(g), np.ascontiguousarray(index, np.int64)
    if index.min() < 0 or index.max() >= size:
        return None
    out = np.zeros(shape, np.float64)
    addresses = (x.__array_interface__["data"][0] for x in (out, g, index))
    run(*addresses, math.prod(shape[:dim]), index.shape[dim], inner, size)
    return out.astype(g.dtype, copy=False)


__all__ = ["add_along", "add_rows"]
