"""Gamma, error and Bessel functions on devices: the platform's special functions, computed in
float64 and rounded, as on the host."""

from __future__ import annotations

import math
from typing import Any

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
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


for _name, _function in {
    "lgamma": "gammaln", "erfc": "erfc", "erfinv": "erfinv", "i0": "i0", "i0e": "i0e", "i1": "i1",
    "i1e": "i1e",
    "igamma": "gammainc", "igammac": "gammaincc",
}.items():  # fmt: skip
    _by(_name, _function)


@on_device("polygamma")
def _polygamma(platform: Platform, a: RawArray, n: int) -> Any:
    if n == 0:
        return _wide(platform, platform.special("digamma"), a)
    zeta, factor = platform.special("zeta"), (-1.0) ** (n + 1) * math.factorial(n)
    return _wide(platform, lambda x: zeta(n + 1.0, x) * factor, a)
