"""Casts between float32 and the half types, in one pass over memory.

    scaled(x, factor, out)      out = x * factor, computed in float32 and rounded once
    copied(sources, targets)    each source into its target, in as few launches as there can be

numpy casts float16 one number after the other, those below 2**-14 at seventy times the price of
others, which gradients often are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from ..device.platform import platform_of
from ..family import Family
from ..lang.expr import var
from ..lang.kernel import COMPUTE, Array, Kernel, Scalar, elementwise

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


@cache
def _copy(dtype: str, into: str) -> Kernel:
    return elementwise(f"copy_{into}", var("x"), (Array("x", dtype),), into)


def copied(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
    """Copy each of ``sources`` into the one of ``targets``, which has its shape; types may differ.
    Parts of one flat array as targets put arrays together, as sources they take it apart. On an
    accelerator one launch serves many pairs of two types."""
    groups: dict[tuple, list[tuple]] = {}
    for x, out in zip(sources, targets, strict=True):
        platform = platform_of(out)
        known = x.dtype.name in COMPUTE and out.dtype.name in COMPUTE
        if platform is None or not known:
            np.copyto(out, x, casting="unsafe")
        else:
            key = (platform, platform.index_of(out), x.dtype.name, out.dtype.name)
            groups.setdefault(key, []).append((x, out))
    for (platform, _, dtype, into), pairs in groups.items():
        platform.launch_many(_copy(dtype, into), pairs)
