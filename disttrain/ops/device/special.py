"""Gamma, error and Bessel functions on devices: the platform's special functions, computed in
float64 and rounded, as on the host."""

from __future__ import annotations

import math
from typing import Any

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ..primitives import bessel, sampling
from .table import F64, converted, on_device


def _by(name: str, function: str) -> None:
    @on_device(name)
    def forward(platform: Platform, *args: object) -> Any:
        return _wide(platform, platform.special(function), *args)


def _wide(platform: Platform, function: Any, *args: Any) -> Any:
    kinds = [a.dtype for a in args if isinstance(a, platform.array_type)]
    if any(k.kind == "c" for k in kinds):
        raise TypeError("not defined for complex numbers")
    given = [
        converted(platform, a, F64) if isinstance(a, platform.array_type) else float(a)
        for a in args
    ]
    return converted(platform, function(*given), kinds[0])


_NAMES = {
    "lgamma": "gammaln", "erfc": "erfc", "erfinv": "erfinv", "i0": "i0", "i0e": "i0e", "i1": "i1",
    "i1e": "i1e", "erfcx": "erfcx", "log_ndtr": "log_ndtr", "ndtri": "ndtri", "entr": "entr",
    "xlog1py": "xlog1py", "zeta": "zeta", "igamma": "gammainc", "igammac": "gammaincc",
    bessel.bessel_j0.name: "j0", bessel.bessel_j1.name: "j1", bessel.bessel_y0.name: "y0",
    bessel.bessel_y1.name: "y1", bessel.modified_bessel_k0.name: "k0",
    bessel.modified_bessel_k1.name: "k1", bessel.scaled_modified_bessel_k0.name: "k0e",
    bessel.scaled_modified_bessel_k1.name: "k1e",
}  # fmt: skip
for _name, _function in _NAMES.items():
    _by(_name, _function)


@on_device("polygamma")
def _polygamma(platform: Platform, a: RawArray, n: int) -> Any:
    if n == 0:
        return _wide(platform, platform.special("digamma"), a)
    zeta, factor = platform.special("zeta"), (-1.0) ** (n + 1) * math.factorial(n)
    return _wide(platform, lambda x: zeta(n + 1.0, x) * factor, a)


@on_device("spherical_bessel_j0")
def _spherical(platform: Platform, a: RawArray) -> Any:
    xp = platform.xp

    def of(x: Any) -> Any:
        safe = xp.where(x == 0, 1.0, x)
        out = xp.where(abs(x) < 1e-4, 1 - x * x / 6, xp.sin(safe) / safe)
        return xp.where(xp.isinf(x), 0.0, out)

    return _wide(platform, of, a)


@on_device("airy_ai")
def _airy(platform: Platform, a: RawArray) -> Any:
    return _wide(platform, bessel.airy, a)


@on_device("standard_gamma_grad")
def _gamma_moves(platform: Platform, a: RawArray, b: RawArray) -> Any:
    digamma = platform.special("digamma")
    return _wide(platform, lambda shape, x: sampling.gamma_moves(shape, x, digamma), a, b)


@on_device("dirichlet_grad")
def _dirichlet_moves(platform: Platform, x: RawArray, a: RawArray, total: RawArray) -> Any:
    digamma = platform.special("digamma")
    moves = sampling.dirichlet_moves
    return _wide(platform, lambda at, own, all_: moves(at, own, all_, digamma), x, a, total)
