"""Products of matrices whose bits depend on nothing but the numbers.

    product(x, w) -> x @ w in float32; None for other types, and where no code can be made
    wanted()      -> whether a rank makes all products so

An element is the sum of runs of 128 terms, each run by one fused multiplication and addition after
the other. So it is the same whatever stands in the other rows and columns, how many there are, how
they lie, how many threads compute them, which processor does and for which one a BLAS was built.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

import numpy as np
from numpy import ndarray

from ....context import thread
from ... import threads
from ...addresses import address
from ...lang.expr import var
from ...lang.kernel import Array, Kernel, Loop, Store

_BLOCKS = {16: 4, 8: 2}  # registers of a tile's row, by their lanes
_FLOATS = 1 << 16  # of w that are laid out at a time
_ROWS = 32  # that a thread takes at least
_SPREAD = 1 << 21  # multiplications from which it takes several threads


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first product."""
    return importlib.import_module("...llvm.kernels.recurrence", __package__)


@cache
def _run(columns: bool) -> Any:
    """The code of a product; ``columns``: of what is transposed. None where there is none."""
    code = _code()
    if code.lanes() not in _BLOCKS:
        return None
    out = Array("y0", "float32", writes=True)
    loop = Loop((Store("y0", var("s0")),))
    kernel = Kernel("product", (Array("s0", "float32"), out), (loop,), flat=True)
    return code.sequence(code.Phase(kernel, 1, _BLOCKS[code.lanes()], columns=columns))


def wanted() -> bool:
    """Whether this rank wants all products of matrices to be made so."""
    return thread.rank.fixed_products


def product(x: ndarray, w: ndarray, out: ndarray | None = None) -> ndarray | None:
    """``x`` (m, k) times ``w`` (k, n), in any strides, perhaps in ``out``."""
    if x.dtype != np.float32 or w.dtype != x.dtype or not x.dtype.isnative:
        return None
    if x.ndim != 2 or w.ndim != 2:
        return None
    (m, k), n = x.shape, w.shape[1]
    if not m * k * n or _run(False) is None:
        return None
    if 1 in x.shape or x.itemsize not in x.strides or min(x.strides) < 0:
        x = np.ascontiguousarray(x)
    if out is not None and (out.dtype != x.dtype or out.strides[1] != x.itemsize):
        return None
    out = np.empty((m, n), x.dtype) if out is None else out
    panel = _BLOCKS[_code().lanes()] * _code().lanes()
    step = max(1, _FLOATS // (k * panel)) * panel
    parts = threads.portions(m, _ROWS, None if m * k * n >= _SPREAD else 1)
    for first in range(0, n, step):
        y, laid = out[:, first : first + step], _laid_out(w[:, first : first + step], panel)
        threads.spread([partial(_multiply, x[part], laid, y[part]) for part in parts])
    return out


def _laid_out(w: ndarray, panel: int) -> ndarray:
    """``w`` (k, n) as (panels, k, columns of one), with zeros at the end."""
    (k, n), whole = w.shape, w.shape[1] // panel
    out = np.zeros((-(-n // panel), k, panel), w.dtype)
    out[:whole] = w[:, : whole * panel].reshape(k, whole, panel).swapaxes(0, 1)
    if n % panel:
        out[whole, :, : n % panel] = w[:, whole * panel :]
    return out


def _multiply(x: ndarray, laid: ndarray, y: ndarray) -> None:
    """``y`` becomes ``x`` times what is laid out."""
    count, k, panel = laid.shape
    first, columns = np.zeros(count * panel, x.dtype), x.strides[1] != x.itemsize
    tracks = ((x, x.strides[columns]), (y, y.strides[0]))
    told = np.array([v for a, stride in tracks for v in (address(a), 0, stride, -1, 0)], np.int64)
    _run(columns)(address(told), 1, len(x), 0, y.shape[1], k, address(laid), address(first))


__all__ = ["product", "wanted"]
