"""Factors of matrices on devices, by the array module's functions or in steps of whole arrays, and
Fourier transforms. The host waits where an error depends on numbers, as PyTorch's does. What has no
form here says so."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends import lapack
from ...backends.device.platform import Platform
from ...errors import DeviceError
from ..primitives import failures, fourier
from ..primitives.factors import cholesky, eigen, exponential, indefinite, lu, qr, triangular
from ..primitives.factors.parts import complex_type
from .linalg import refuse_half
from .table import on_device


@on_device("qr")
def _qr(platform: Platform, a: RawArray, mode: str) -> tuple:
    refuse_half(a)
    if mode != "r":
        return tuple(platform.xp.linalg.qr(a, mode))
    return platform.empty((0,), a.dtype), platform.xp.linalg.qr(a, "r")


@on_device("geqrf")
def _geqrf(platform: Platform, a: RawArray) -> tuple:
    refuse_half(a)
    xp, lead = platform.xp, a.shape[:-2]
    if not a.size:
        return a.copy(), platform.empty((*lead, min(a.shape[-2:])), a.dtype)
    each = a.reshape(-1, *a.shape[-2:])
    parts = [xp.linalg.qr(each[i], "raw") for i in range(each.shape[0])]
    vectors = xp.stack([h.T for h, _ in parts]).reshape(a.shape)
    return vectors, xp.stack([tau for _, tau in parts]).reshape(*lead, -1)


@on_device("cholesky")
def _cholesky(platform: Platform, a: RawArray, check: str) -> tuple:
    """A pivot that is not positive stays where the factorization ended."""
    refuse_half(a)
    xp, size = platform.xp, a.shape[-1]
    if not a.size:
        return a.copy(), xp.zeros(a.shape[:-2], np.int32)
    out = xp.linalg.cholesky(a).reshape(a.shape)
    bad = ~(xp.diagonal(out, 0, -2, -1).real > 0)
    first = xp.where(bad, xp.arange(1, size + 1), size + 1).min(-1)
    info = xp.where(first > size, 0, first).astype(np.int32).reshape(a.shape[:-2])
    if check:
        failures.no_failure(check, platform.download(info), failures.indefinite)
    return out, info


@on_device("eigh")
def _eigh(platform: Platform, a: RawArray, upper: bool) -> tuple:
    refuse_half(a)
    with platform.checked():
        return tuple(platform.xp.linalg.eigh(a, "U" if upper else "L"))


@on_device("eig")
def _eig(platform: Platform, a: RawArray) -> tuple:
    refuse_half(a)
    kind = complex_type(a.dtype)
    return tuple(x.astype(kind) for x in platform.xp.linalg.eig(a))


@on_device("solve_triangular")
def _solve_triangular(
    platform: Platform, a: RawArray, b: RawArray, upper: bool, unit: bool, check: str = ""
) -> Any:
    """Zeros on the diagonal give infinities, whoever asks."""
    refuse_half(a)
    return lapack.substituted(platform.xp, a, b, upper, unit)


@on_device("lu_factor")
def _lu_factor(platform: Platform, a: RawArray, check: str) -> tuple:
    refuse_half(a)
    out = lapack.eliminated(platform.xp, a)
    if check:
        failures.no_failure(check, platform.download(out[2]), failures.flat)
    return out


@on_device("row_order")
def _row_order(platform: Platform, pivots: RawArray, rows: int) -> Any:
    xp, lead = platform.xp, pivots.shape[:-1]
    flat = pivots.reshape(math.prod(lead), pivots.shape[-1])
    places = xp.arange(rows)
    out = xp.broadcast_to(places, (flat.shape[0], rows))
    for i in range(flat.shape[-1]):
        other = flat[:, i : i + 1] - 1
        chosen = xp.where(places == i, other, xp.where(places == other, i, places))
        out = xp.take_along_axis(out, chosen, -1)
    return out.reshape(*lead, rows).astype(np.int64)


@on_device("matrix_exp")
def _matrix_exp(platform: Platform, a: RawArray) -> Any:
    """The host waits for the largest norm."""
    refuse_half(a)
    return exponential.approximated(platform.xp, a, platform.download)


@on_device("ldl_factor", "ldl_solve")
def _ldl(platform: Platform, *args: RawArray, **params: object) -> NoReturn:
    raise DeviceError(
        "linalg.ldl_factor and ldl_solve have no form for arrays on a device; move the matrices "
        "with .cpu()"
    )


@on_device("fft")
def _fft(platform: Platform, a: RawArray, dims: tuple, inverse: bool, norm: str) -> Any:
    refuse_half(a)
    xp = platform.xp
    return (xp.fft.ifftn if inverse else xp.fft.fftn)(a, axes=dims, norm=norm)


@on_device("rfft")
def _rfft(platform: Platform, a: RawArray, dims: tuple, norm: str) -> Any:
    refuse_half(a)
    return platform.xp.fft.rfftn(a, axes=dims, norm=norm)


@on_device("irfft")
def _irfft(platform: Platform, a: RawArray, dims: tuple, size: int, norm: str) -> Any:
    refuse_half(a)
    sizes = [*(a.shape[d] for d in dims[:-1]), size]
    return platform.xp.fft.irfftn(a, sizes, dims, norm)


__all__ = ["cholesky", "eigen", "exponential", "fourier", "indefinite", "lu", "qr", "triangular"]
