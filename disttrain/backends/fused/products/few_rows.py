"""Products of a few rows with a matrix, and of a column with a row, at which a BLAS is slow.

    product(x, w) -> x @ w, or None where a BLAS is as good (and for more than MOST rows)
    outer(x, w, out) -> x @ w of a column and a row, perhaps in ``out``, or None as well

w is read once, in the order in which it lies. The bits of a row do not depend on the other rows,
nor on how many threads there are.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address
from ...family import Family
from ...lang.expr import var
from ...lang.kernel import Array, Kernel, Loop, Store

MOST = 16  # rows
LEAST = 1 << 14  # numbers of w: no product of fewer gains
_WORTH = {"across": 1 << 20, "along": 1 << 18}  # products from which it gains (measured)
_SPREAD = 1 << 20  # numbers of w from which threads do
_FEW = 1 << 13  # numbers of an outer product up to which numpy makes it
_NAMES = {"f": "float32", "d": "float64"}


@cache
def _code(kind: str, way: str, rows: int) -> list[tuple[int, Any]] | None:
    """What computes so many rows, as (first row, code); loaded with the first product."""
    code = importlib.import_module("...llvm.kernels.few_rows", __package__)
    parts = threads.portions(rows, 1, -(-rows // code.most(kind, way)))
    found = [(part.start, code.product(kind, way, part.stop - part.start)) for part in parts]
    return None if None in (run for _, run in found) else found


def product(x: ndarray, w: ndarray) -> ndarray | None:
    """``x @ w`` for x (few, k) and w (k, n) of one type, float32 or float64."""
    if not 1 < len(x) <= MOST or x.ndim != 2 or w.ndim != 2:
        return None
    kind, (far, near), item = x.dtype, w.strides, x.itemsize
    if kind.char not in _NAMES or kind != w.dtype or not kind.isnative or x.shape[1] != len(w):
        return None
    if near == item and far >= 0:
        way, step = "across", far
    elif far == item and near >= 0:
        way, step = "along", near
    else:
        return None
    if w.size * len(x) < _WORTH[way]:
        return None
    code = _code(_NAMES[kind.char], way, len(x))
    if code is None:
        return None
    if x.strides[1] != item:
        x = np.ascontiguousarray(x)
    y = np.empty((len(x), w.shape[1]), kind)
    count = threads.count() if w.size >= _SPREAD else 1
    if count == 1:
        _run(code, y, x, w, step)
        return y
    parts = threads.portions(w.shape[1], 64, count)
    threads.spread([partial(_run, code, y[:, part], x, w[:, part], step) for part in parts])
    return y


def _outer(dtype: str) -> Kernel:
    params = Array("x", dtype, "row"), Array("w", dtype, "col"), Array("out", dtype, writes=True)
    return Kernel("outer", params, (Loop((Store("out", var("x") * var("w")),)),))


_OUTER = Family(_outer)


def outer(x: ndarray, w: ndarray, out: ndarray | None = None) -> ndarray | None:
    """``x @ w`` for x (m, 1) and w (1, n) of one type, float32 or float64."""
    kind = x.dtype
    if kind.char not in _NAMES or kind != w.dtype or not kind.isnative or x.size * w.size == 0:
        return None
    if x.size * w.size < _FEW:
        return np.multiply(x, w, out=out)
    made = np.empty((len(x), w.shape[1]), kind) if out is None else out
    if made.dtype != kind:
        return None
    _OUTER[kind](x[:, 0], w[0], made)
    return made


def _run(code: list, y: ndarray, x: ndarray, w: ndarray, step: int) -> None:
    """Some of the columns."""
    (k, n), to, start, there = w.shape, address(y), address(x), address(w)
    below, beside = y.strides[0], x.strides[0]
    for first, run in code:
        run(to + first * below, start + first * beside, there, n, k, below, beside, step)


__all__ = ["LEAST", "MOST", "outer", "product"]
