"""Products of matrices on devices (by the platform's library), inverses, determinants, singular
values and solutions (by the array module's)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.device.platform import Platform
from .table import on_device


@on_device("matmul")
def _matmul(platform: Platform, a: Any, b: Any) -> Any:
    return platform.matmul(a, b)


@on_device("linear")
def _linear(platform: Platform, x: Any, w: Any, b: Any = None) -> Any:
    """With a bias the product is added to it: one pass over the result less, one rounding."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if b is None:
        out = platform.matmul(rows, w.T)
    else:
        out = platform.empty((*rows.shape[:-1], w.shape[0]), x.dtype)
        out[...] = b
        platform.matmul(rows, w.T, out, add=True)
    return out.reshape((*x.shape[:-1], w.shape[0]))


@on_device("inv")
def _inv(platform: Platform, a: Any) -> Any:
    if not a.size:
        return a.copy()
    return platform.xp.linalg.inv(a)


@on_device("det")
def _det(platform: Platform, a: Any) -> Any:
    xp = platform.xp
    if not a.size:
        return xp.ones(a.shape[:-2], a.dtype)
    return xp.asarray(xp.linalg.det(a)).reshape(a.shape[:-2])


@on_device("svd")
def _svd(platform: Platform, a: Any) -> tuple:
    return tuple(platform.xp.linalg.svd(a, full_matrices=False))


@on_device("solve")
def _solve(platform: Platform, a: Any, b: Any) -> Any:
    """Leading dimensions are the same on both sides."""
    if not b.size:
        return platform.empty(b.shape, np.result_type(a.dtype, b.dtype))
    return platform.xp.linalg.solve(a, b)
