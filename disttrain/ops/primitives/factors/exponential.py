"""The exponential of matrices, by scaling and squaring a Padé approximation (Higham, 2005, "The
scaling and squaring method for the matrix exponential revisited")."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.annotations import Value
from ....core.gate import Primitive
from ...declare import primitive
from ...promotion import only
from ..views import Batched
from .parts import adjoint, below, beside, part, square

_WIDE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_NARROW = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
# Coefficients, and the largest 1-norm that they serve, by the bytes of a real number (table 2.3).
_APPROXIMATIONS = {8: (_WIDE, 5.371920351148152), 4: (_NARROW, 3.925724783138660)}


def _forward(a: np.ndarray) -> Any:
    if a.dtype.char not in "fdFD":
        raise TypeError(f"array type {a.dtype} is unsupported in linalg")
    if not a.size:
        return a.copy()
    terms, most = _APPROXIMATIONS[a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1)]
    norm = np.abs(a).sum(-2).max(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.ceil(np.log2(norm / most))
    times = np.where(np.isfinite(times), np.clip(times, 0, 1100), 0)[..., None, None]
    out = _pade(a * np.exp2(-times).astype(a.real.dtype), terms, norm)
    for k in range(int(times.max())):
        out = np.where(times > k, out @ out, out)
    return out


def _pade(a: np.ndarray, terms: tuple, norm: np.ndarray) -> Any:
    one = np.eye(a.shape[-1], dtype=a.dtype)
    powers, square_ = [one], a @ a
    for _ in range(len(terms) // 2 - 1):
        powers.append(powers[-1] @ square_ if len(powers) > 1 else square_)
    odd = a @ sum(b * p for b, p in zip(terms[1::2], powers, strict=True))
    even = sum(b * p for b, p in zip(terms[::2], powers, strict=True))
    if np.isfinite(norm).all():
        return np.linalg.solve(even - odd, even + odd).astype(a.dtype, copy=False)
    good = np.isfinite(norm)[..., None, None]
    made = np.linalg.solve(np.where(good, even - odd, one), np.where(good, even + odd, one))
    return np.where(good, made, math.nan).astype(a.dtype, copy=False)


def _rule(g: Value, a: Value) -> Any:
    """The derivative in the direction of g at the adjoint of a, which is the upper right block of
    the exponential of ((a^H, g), (0, a^H)) (Mathias, 1996, "A chain rule for matrix functions")."""
    n, back = a.shape[-1], adjoint(a)
    whole = matrix_exp(below(beside(back, g), beside(g * 0, back)))
    return part(whole, slice(None, n), slice(n, None))


def _shape(a: Any) -> tuple:
    square(a)
    return a.shape, a.dtype


matrix_exp: Primitive = primitive(
    "matrix_exp", _forward, "a", vjp={"a": _rule}, shape=_shape,
    promote=only("linalg.matrix_exp", "fc"),
    samples=lambda rng: [
        ((rng.normal(size=(3, 3)),), {}), ((rng.normal(size=(2, 2, 2)) * 2,), {}),
    ],
    batch=Batched(lambda: matrix_exp, lambda p, n: {}),
)  # fmt: skip
