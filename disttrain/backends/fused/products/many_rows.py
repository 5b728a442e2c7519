"""Products of many rows with a matrix, where a BLAS uses half a register only.

    product(x, w) -> x @ w in float32, or None where a BLAS is as good

w is laid out in panels first (``llvm/kernels/recurrence.py``). The bits of a row do not depend on
the other rows, nor on how many threads there are.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

import numpy as np
from numpy import ndarray

from ... import blas, threads
from ...addresses import address
from ...lang.expr import var
from ...lang.kernel import Array, Kernel, Loop, Store
from ..copies import fill
from . import fixed_product

LEAST = 32  # rows from which it gains to lay out a matrix (all of these measured)
_TURNED = 48  # and one whose columns are in order
_WORTH = 1 << 22  # and products
_TERMS = 32  # and terms of a sum
_PANEL = 64  # columns of a panel
_FULL = 0.75  # and how full panels are
_FLOATS = 1 << 16  # laid out at a time
_SPREAD = 1 << 23  # products from which it takes several threads
_WHOLE = ("SkylakeX", "Cooperlake", "Sapphirerapids")  # kernels of a BLAS that use all of it


@cache
def _run(columns: bool = False) -> Any:
    """The code of a product; None where there is none, or a BLAS is as good. What makes machine
    code is loaded with the first product."""
    code = importlib.import_module("...llvm.kernels.recurrence", __package__)
    if code.lanes() != 16 or blas.kernels() in _WHOLE:
        return None
    out = Array("y0", "float32", writes=True)
    loop = Loop((Store("y0", var("s0")),))
    kernel = Kernel("product", (Array("s0", "float32"), out), (loop,), flat=True)
    return code.sequence(code.Phase(kernel, 1, _PANEL // 16, columns=columns))


def product(x: ndarray, w: ndarray, out: ndarray | None = None) -> ndarray | None:
    """``x`` (m, k) times ``w`` (k, n), perhaps in ``out``."""
    if fixed_product.wanted():
        return fixed_product.product(x, w, out)
    if x.ndim != 2 or w.ndim != 2 or len(w) != x.shape[1] or x.dtype.char != "f":
        return None
    (m, k), n = x.shape, w.shape[1]
    if m < LEAST or k < _TERMS or m * k * n < _WORTH or w.dtype != x.dtype:
        return None
    if m < _TURNED and w.strides[1] != w.itemsize:
        return None
    if n < _FULL * -(-n // _PANEL) * _PANEL or not x.dtype.isnative or _run() is None:
        return None
    if out is None:
        out = np.empty((m, n), x.dtype)
    elif out.dtype != x.dtype or out.strides[1] != x.itemsize:
        return None
    if x.itemsize not in x.strides:
        x = np.ascontiguousarray(x)
    several = None if m * k * n >= _SPREAD else 1
    parts, step = threads.portions(m, LEAST, several), max(1, _FLOATS // (k * _PANEL)) * _PANEL
    for first in range(0, n, step):
        _some(x, w[:, first : first + step], out[:, first : first + step], parts)
    return out


def _some(x: ndarray, w: ndarray, y: ndarray, parts: list[slice]) -> None:
    """Some of the columns."""
    laid = _laid_out(w)
    threads.spread([partial(_multiply, x[part], laid, y[part]) for part in parts])


def _laid_out(w: ndarray) -> ndarray:
    """``w`` (k, n) as (panels, k, columns), with zeros at the end."""
    (k, n), whole = w.shape, w.shape[1] // _PANEL
    even = whole * _PANEL == n
    out = (np.empty if even else np.zeros)((whole + (not even), k, _PANEL), w.dtype)
    columns = w[:, : whole * _PANEL].reshape(k, whole, _PANEL).swapaxes(0, 1)
    if not fill(out[:whole], columns):
        out[:whole] = columns
    if not even:
        out[whole, :, : n - whole * _PANEL] = w[:, whole * _PANEL :]
    return out


def _multiply(x: ndarray, laid: ndarray, y: ndarray) -> None:
    """``y`` becomes ``x`` times what is laid out."""
    first, columns = np.zeros(len(laid) * _PANEL, x.dtype), x.strides[1] != x.itemsize
    tracks = ((x, x.strides[columns]), (y, y.strides[0]))
    told = np.array([v for a, stride in tracks for v in (address(a), 0, stride, -1, 0)], np.int64)
    (m, k), n = x.shape, y.shape[1]
    _run(columns)(address(told), 1, m, 0, n, k, address(laid), address(first))


__all__ = ["LEAST", "product"]
