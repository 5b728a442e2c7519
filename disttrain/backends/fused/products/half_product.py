"""Products of bfloat16 matrices, where the processor multiplies pairs of those and adds them up in
float32.

    product(x, w, b) -> x @ w + b in bfloat16, rounded once; None where it is better done otherwise

The bits of a row do not depend on the other rows, nor on how many there are (what is done for
``w`` is done for any number of rows, though it is slower for one or two), nor on threads. The
processor takes numbers below 2**-126 as zero.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address
from ...lang.expr import var
from ...lang.kernel import Array, Kernel, Loop, Store

_LEAST = 1 << 12  # numbers of w from which it gains, beside some rows (measured)
_SPREAD = 1 << 22  # products from which it takes several threads


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first product."""
    return importlib.import_module("...llvm.kernels.recurrence", __package__)


@cache
def _panels(way: str) -> Any:
    return importlib.import_module("...llvm.kernels.pairs", __package__).panels(way)


def _laid_out(w: ndarray) -> ndarray:
    """The panels of ``w`` (k, n)."""
    far, near = w.strides
    if near != 2 and (far != 2 or near < 0):
        w = np.ascontiguousarray(w)
        far, near = w.strides
    (k, n), (way, step) = w.shape, ("across", far) if near == 2 else ("along", near)
    panels = np.empty(_columns(n) * k, np.uint16)
    _panels(way)(address(panels), address(w), n, k // 2, step)
    return panels


def _columns(n: int) -> int:
    """Of panels that have ``n``: theirs are 64."""
    return -(-n // 64) * 64


@cache
def _run() -> Any:
    """The code of a product; None where there is none."""
    code = _code()
    if not code.pairs() or _panels("across") is None:
        return None
    out = Array("y0", "bfloat16", writes=True)
    loop = Loop((Store("y0", var("s0")),))
    kernel = Kernel("half_product", (Array("s0", "float32"), out), (loop,), flat=True)
    return code.sequence(code.Phase(kernel, 1, 4, pairs=True))


def product(x: ndarray, w: ndarray, b: ndarray | None = None) -> ndarray | None:
    """``x`` (m, k), ``w`` (k, n) and ``b`` (n), all of bfloat16."""
    if x.dtype.name != "bfloat16" or w.dtype != x.dtype or x.ndim != 2 or w.ndim != 2:
        return None
    (m, k), n = x.shape, w.shape[1]
    if not m or k * n < _LEAST or k % 2 or len(w) != k or _run() is None:
        return None
    x = x if x.strides[1] == 2 else np.ascontiguousarray(x)
    panels, first = _laid_out(w), np.zeros(_columns(n), np.float32)
    if b is not None:
        first[:n] = b
    y = np.empty((m, n), x.dtype)
    tracks = ((x, x.strides[0]), (y, y.strides[0]))
    told = np.array([v for a, stride in tracks for v in (address(a), 0, stride, -1, 0)], np.int64)

    def some(part: slice) -> None:
        rows = part.stop - part.start
        _run()(address(told), 1, rows, part.start, n, k // 2, address(panels), address(first))

    several = None if m * k * n >= _SPREAD else 1
    threads.spread([partial(some, part) for part in threads.portions(m, 8, several)])
    return y


__all__ = ["product"]
