"""Elementwise primitives of Bessel's equation: of the first and second kind, modified ones of the
second kind, the spherical one of order 0, and Airy's function. Float64 inside, rounded once. As in
PyTorch they have no derivatives.

Sources, by their numbers in Abramowitz and Stegun: power series (9.1.12, 9.1.13, 9.6.13), Miller's
backward recurrence (9.12, example 1) with Neumann's series (9.1.88), Hankel's asymptotic
expansions (9.2.5 to 9.2.10); integrals (9.6.24, 10.4.32) by the trapezoidal rule, which converges
exponentially for them (Trefethen and Weideman, SIAM Review 56, 2014); for Airy's function far on
the negative side 10.4.60.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..declare import unary
from .special import wide

_EULER = 0.57721566490153286061
_SERIES, _HANKEL = 4.0, 25.0  # up to where power series, and Miller's recurrence, keep their digits
_START = 64  # the order from which Miller's recurrence goes down

Array = np.ndarray


def _power_series(x: Array, order: int) -> tuple[Array, Array]:
    """J of ``order`` (0 or 1), and what Y has beside its logarithm, near 0."""
    square, half = x * x / 4, x / 2
    term = half**order
    first, second = np.zeros_like(x), np.zeros_like(x)
    harmonic = 0.0 if order == 0 else 0.5  # the mean of H(k) and H(k + order)
    for k in range(24):
        first = first + term
        second = second - term * harmonic
        term = -term * square / ((k + 1) * (k + 1 + order))
        harmonic += (1 / (k + 1) + 1 / (k + 1 + order)) / 2
    return first, second


def _near(x: Array) -> tuple[Array, Array, Array, Array]:
    """J0, J1, Y0, Y1 up to 4."""
    j0, rest0 = _power_series(x, 0)
    j1, rest1 = _power_series(x, 1)
    log = np.log(x / 2) + _EULER
    y0 = 2 / np.pi * (log * j0 + rest0)
    return j0, j1, y0, 2 / np.pi * (log * j1 + rest1 - 1 / x)


def _between(x: Array) -> tuple[Array, Array, Array, Array]:
    """J0, J1, Y0, Y1 from 4 to 25."""
    above, here = np.zeros_like(x), np.full_like(x, 1e-200)
    total, even, odd = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for n in range(_START, 0, -1):  # here: J of order n
        if n % 2 == 0:
            total, even = total + 2 * here, even + (-1) ** (n // 2) * here / (n // 2)
        elif n > 1:
            k = n // 2
            odd = odd + (-1) ** k * n / (k * (k + 1)) * here
        above, here = here, 2 * n / x * here - above
    scale = 1 / (total + here)
    j0, j1, even, odd = here * scale, above * scale, even * scale, odd * scale
    log = np.log(x / 2) + _EULER
    y0 = 2 / np.pi * (log * j0 - 2 * even)
    return j0, j1, y0, 2 / np.pi * ((log - 1) * j1 - j0 / x - odd)


def _far(x: Array, order: int) -> tuple[Array, Array]:
    """J and Y of ``order`` from 25 on."""
    p, q, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 24):
        term = term * (4 * order * order - (2 * k - 1) ** 2) / (k * 8 * x)
        if k % 2:
            q = q + (-1) ** (k // 2) * term
        else:
            p = p + (-1) ** (k // 2) * term
    angle = x - (order / 2 + 0.25) * np.pi
    size = np.sqrt(2 / (np.pi * x))
    cos, sin = np.cos(angle), np.sin(angle)
    return size * (p * cos - q * sin), size * (p * sin + q * cos)


def _values(x: Array) -> list[Array]:
    """J0, J1, Y0, Y1 of what is not negative."""
    near, between = _near(np.minimum(x, _SERIES)), _between(np.clip(x, _SERIES, _HANKEL))
    j0, y0 = _far(np.maximum(x, _HANKEL), 0)
    j1, y1 = _far(np.maximum(x, _HANKEL), 1)
    return [
        np.where(x <= _SERIES, a, np.where(x <= _HANKEL, b, c))
        for a, b, c in zip(near, between, (j0, j1, y0, y1), strict=True)
    ]


def _finite(x: Array, out: Array) -> Array:
    return np.where(np.isfinite(x), out, np.nan)


def _second_kind(which: int) -> Any:
    def run(x: Array) -> Array:
        out = _values(np.where(x > 0, x, 1.0))[which]
        return _finite(x, np.where(x > 0, out, np.where(x == 0, -np.inf, np.nan)))

    return run


def _modified(order: int, scaled: bool) -> Any:
    """K of ``order``, or K exp(x): a series near 0, and the integral of
    exp(-x (cosh t - 1)) cosh(order t) farther on."""

    def run(x: Array) -> Array:
        near, far = np.clip(x, 1e-300, 2.0), np.maximum(x, 2.0)
        step = 0.25 / np.sqrt(far)
        total = step / 2 * np.ones_like(far)
        for i in range(1, 44):
            t = i * step
            total = total + step * np.exp(-2 * far * np.sinh(t / 2) ** 2) * np.cosh(order * t)
        series = _modified_series(near, order)
        size = np.exp(-far) if not scaled else 1.0
        out = np.where(x <= 2, series * (np.exp(near) if scaled else 1.0), total * size)
        out = np.where(x == np.inf, 0.0, np.where(x == 0, np.inf, out))
        return np.where(x >= 0, out, np.nan)

    return run


def _modified_series(x: Array, order: int) -> Array:
    square, term = x * x / 4, (x / 2) ** order
    first, second = np.zeros_like(x), np.zeros_like(x)
    harmonic = 0.0 if order == 0 else 0.5
    for k in range(20):
        first, second = first + term, second + term * harmonic
        term = term * square / ((k + 1) * (k + 1 + order))
        harmonic += (1 / (k + 1) + 1 / (k + 1 + order)) / 2
    found = (np.log(x / 2) + _EULER) * first - second
    return 1 / x + found if order else -found


def _spherical(x: Array) -> Array:
    square = x * x
    near = 1 - square / 6 + square * square / 120 - square**3 / 5040 + square**4 / 362880
    safe = np.where(x == 0, 1.0, x)
    out = np.where(np.abs(x) < 0.1, near, np.sin(safe) / safe)
    return np.where(np.isinf(x), 0.0, out)


def airy(x: Array) -> Array:
    """Ai, of arrays of a device too."""
    out = np.where(x < -9, _airy_waves(np.maximum(-x, 9.0)), _airy_middle(np.clip(x, -9.0, 2.0)))
    return _finite(x, np.where(x > 2, _airy_decay(np.maximum(x, 2.0)), out))


def _airy_middle(x: Array) -> Array:
    """The integral of exp(i (t³/3 + x t)) over a line 1/2 above the real one."""
    step, up = 0.06, 0.5
    total = np.zeros_like(x)
    for i in range(-146, 147):
        t = i * step
        angle = t**3 / 3 + (x - up * up) * t
        total = total + math.exp(-up * t * t) * np.cos(angle)
    return total * step / (2 * np.pi) * np.exp(up**3 / 3 - up * x)


def _airy_decay(x: Array) -> Array:
    """By K of order 1/3."""
    zeta = 2 / 3 * x * np.sqrt(x)
    step = 0.2 / np.sqrt(zeta)
    total = step / 2
    for i in range(1, 60):
        t = i * step
        total = total + step * np.exp(-2 * zeta * np.sinh(t / 2) ** 2) * np.cosh(t / 3)
    return np.sqrt(x / 3) / np.pi * total * np.exp(-zeta)


def _airy_waves(x: Array) -> Array:
    """Ai(-x) from 9 on."""
    zeta = 2 / 3 * x * np.sqrt(x)
    p, q, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 20):
        term = term * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / ((2 * k - 1) * 216 * k * zeta)
        if k % 2:
            q = q + (-1) ** (k // 2) * term
        else:
            p = p + (-1) ** (k // 2) * term
    angle = zeta + np.pi / 4
    return (np.sin(angle) * p - np.cos(angle) * q) / np.sqrt(np.pi * np.sqrt(x))


def _declared(name: str, fn: Any) -> Any:
    return unary(name, wide(fn), floating=True, takes="f4 f8")


bessel_j0 = _declared("bessel_j0", lambda x: _finite(x, _values(np.abs(x))[0]))
bessel_j1 = _declared("bessel_j1", lambda x: _finite(x, np.sign(x) * _values(np.abs(x))[1]))
bessel_y0 = _declared("bessel_y0", _second_kind(2))
bessel_y1 = _declared("bessel_y1", _second_kind(3))
modified_bessel_k0 = _declared("modified_bessel_k0", _modified(0, scaled=False))
modified_bessel_k1 = _declared("modified_bessel_k1", _modified(1, scaled=False))
scaled_modified_bessel_k0 = _declared("scaled_modified_bessel_k0", _modified(0, scaled=True))
scaled_modified_bessel_k1 = _declared("scaled_modified_bessel_k1", _modified(1, scaled=True))
spherical_bessel_j0 = _declared("spherical_bessel_j0", _spherical)
airy_ai = _declared("airy_ai", airy)
