"""Products of matrices on devices (by the platform's library), inverses, determinants, singular
values and solutions (by the array module's)."""

from __future__ import annotations

from typing import Any

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ...core.types.wide import is_half
from .table import on_device


@on_device("local_product")
@on_device("matmul")
def _matmul(platform: Platform, a: RawArray, b: RawArray) -> Any:
    return platform.matmul(a, b)


@on_device("linear")
def _linear(platform: Platform, x: RawArray, w: Any, b: RawArray | None = None) -> Any:
    """With a bias the product is added to it: one pass over the result less, one rounding."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if b is None:
        out = platform.matmul(rows, w.T)
    else:
        out = platform.empty((*rows.shape[:-1], w.shape[0]), x.dtype)
        out[...] = b
        platform.matmul(rows, w.T, out, add=True)
    return out.reshape((*x.shape[:-1], w.shape[0]))


def refuse_half(a: RawArray) -> None:
    """``TypeError`` for types that no decomposition takes."""
    if is_half(a.dtype) or a.dtype.kind not in "fc":
        raise TypeError(f"arrays of {a.dtype} are not supported by this function; use .float()")


@on_device("inv")
def _inv(platform: Platform, a: RawArray) -> Any:
    refuse_half(a)
    with platform.checked():
        return platform.xp.linalg.inv(a) if a.size else a.copy()


@on_device("det")
def _det(platform: Platform, a: RawArray) -> Any:
    refuse_half(a)
    xp = platform.xp
    return xp.linalg.det(a).reshape(a.shape[:-2]) if a.size else xp.ones(a.shape[:-2], a.dtype)


@on_device("slogdet")
def _slogdet(platform: Platform, a: RawArray) -> tuple:
    refuse_half(a)
    xp, lead = platform.xp, a.shape[:-2]
    if not a.size:
        return xp.ones(lead, a.dtype), xp.zeros(lead, a.real.dtype)
    return tuple(x.reshape(lead) for x in xp.linalg.slogdet(a))


@on_device("svd")
def _svd(platform: Platform, a: RawArray) -> tuple:
    refuse_half(a)
    with platform.checked():
        return tuple(platform.xp.linalg.svd(a, full_matrices=False))


@on_device("svd_square")
def _svd_square(platform: Platform, a: RawArray) -> tuple:
    refuse_half(a)
    xp, (m, n) = platform.xp, a.shape[-2:]
    if not a.size:  # any vectors do
        return tuple(
            xp.broadcast_to(xp.eye(k, dtype=a.dtype), (*a.shape[:-2], k, k)).copy() for k in (m, n)
        )
    with platform.checked():
        return tuple(xp.linalg.svd(a, full_matrices=True)[::2])


@on_device("solve")
def _solve(platform: Platform, a: RawArray, b: RawArray) -> Any:
    """Leading dimensions are the same on both sides."""
    refuse_half(a)
    with platform.checked():
        return platform.xp.linalg.solve(a, b) if b.size else platform.empty(b.shape, b.dtype)
