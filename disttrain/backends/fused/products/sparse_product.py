"""Products with sparse matrices that are given by places and values, by generated code where that
gains; else by numpy."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

_LEAST = 4096  # multiplications from which code gains (measured)


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first product that needs it."""
    return importlib.import_module("...llvm.kernels.sparse_product", __package__)


def product(
    values: np.ndarray, b: np.ndarray, rows: np.ndarray, cols: np.ndarray, size: int
) -> np.ndarray:
    """``out[rows[i]] += values[i] * b[cols[i]]`` in this order, in a new array (size, d)."""
    out = np.zeros((size, b.shape[1]), np.result_type(values, b))
    if not _run("product", out, values, b, rows, cols, len(b)):
        np.add.at(out, rows, values[:, None] * b[cols])
    return out


def sampled(a: np.ndarray, b: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """``out[i]``: the sum of ``a[rows[i]] * b[cols[i]]``."""
    out = np.empty(len(rows), np.result_type(a, b))
    if not _run("sampled", out, a, b, rows, cols, len(b)):
        return np.einsum("ij,ij->i", a[rows], b[cols])
    return out


def _run(
    name: str,
    out: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    rows: np.ndarray,
    cols: np.ndarray,
    size: int,
) -> bool:
    """Whether machine code has filled ``out``. Places are read as they are, so they are looked at
    here: those of ``out`` (or of ``a``) and of the ``size`` rows of ``b``."""
    count, width = len(rows), b.shape[1]
    kinds = {out.dtype, a.dtype, b.dtype}
    if count * width < _LEAST or len(kinds) > 1 or out.dtype.char not in "fd":
        return False
    code = _code().product(name, out.dtype.name)
    if code is None or not out.dtype.isnative:
        return False
    rows, cols = (np.ascontiguousarray(x, np.int64) for x in (rows, cols))
    first = len(out) if name == "product" else len(a)
    if rows.min() < 0 or cols.min() < 0 or rows.max() >= first or cols.max() >= size:
        raise IndexError(f"an index lies outside of a matrix of {first} by {size}")
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    addresses = (x.__array_interface__["data"][0] for x in (out, a, b, rows, cols))
    code(*addresses, count, width)
    return True


__all__ = ["product", "sampled"]
