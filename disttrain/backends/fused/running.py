"""Running sums and products along an axis, by generated code where it gains.

    accumulate(ufunc, a, axis, backwards=False) -> a new array, or None: left to numpy

Floats are kept in float64 on the way, and rounded once per element.
"""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

import numpy as np

from .copies import contiguous

_LEAST = 2048  # elements from which it gains (measured)
_KINDS = ("float32", "float64", "int64")
_MOST = 4096  # matrices that may be asked for one by one


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first array that needs it."""
    return importlib.import_module("..llvm.kernels.running", __package__)


def accumulate(ufunc: Any, a: object, axis: int, backwards: bool = False) -> np.ndarray | None:
    """``ufunc.accumulate(a, axis)``, from the end on if ``backwards``; None where it does not gain.
    ``ufunc`` is ``np.add`` or ``np.multiply``."""
    if a.__class__ is not np.ndarray or a.size < _LEAST or a.dtype.name not in _KINDS:
        return None
    n, inner = a.shape[axis], math.prod(a.shape[axis + 1 :])
    outer = a.size // (n * inner)
    run, columns = _code().runs(a.dtype.name, ufunc.__name__)
    if run is None or not a.dtype.isnative or (outer > _MOST and inner > 1):
        return None
    a = a if a.flags.c_contiguous else contiguous(a)
    out = np.empty(a.shape, a.dtype)
    step, sign = inner * a.itemsize, -1 if backwards else 1
    shift = (n - 1) * step if backwards else 0
    to, source = (x.__array_interface__["data"][0] + shift for x in (out, a))
    if inner == 1:
        run(to, source, outer, n, n * step, sign * step)
        return out
    for k in range(outer):
        far = k * n * step
        columns(to + far, source + far, inner, n, a.itemsize, sign * step)
    return out


__all__ = ["accumulate"]
