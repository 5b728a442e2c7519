"""Casts between float32 and the half types, in one pass over memory.

    scaled(x, factor, out)      out = x * factor, computed in float32 and rounded once

numpy casts float16 one number after the other, those below 2**-14 at seventy times the price of
others, which gradients often are.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..family import Family
from ..lang.expr import var
from ..lang.kernel import Array, Kernel, Scalar, elementwise

SHORT = 4096  # elements up to which numpy is faster than asking for a kernel
TYPES = ("float32", "float16", "bfloat16")


def _kernel(into: str, dtype: str) -> Kernel:
    params = (Array("x", dtype), Scalar("factor", "float32"))
    return elementwise(f"scaled_{into}", var("x") * var("factor"), params, into)


_INTO = {name: Family(partial(_kernel, name)) for name in TYPES}


def scaled(x: np.ndarray, factor: float, out: np.ndarray) -> np.ndarray:
    """``out = x * factor``, each in whatever type it has; returns ``out``."""
    pays = x.size > SHORT or x.__class__ is not np.ndarray
    if pays and x.dtype.name in TYPES and out.dtype.name in TYPES:
        _INTO[out.dtype.name][x.dtype](x, float(factor), out)
        return out
    wide = np.result_type(x.dtype, np.float32) if x.dtype.kind == "f" else np.dtype(np.float32)
    with np.errstate(all="ignore"):
        value = x if factor == 1.0 else x.astype(wide) * wide.type(factor)
        np.copyto(out, value, casting="unsafe")
    return out
