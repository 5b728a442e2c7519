"""The exponential of matrices, by scaling and squaring a Padé approximation (Higham, 2005, "The
scaling and squaring method for the matrix exponential revisited")."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return approximated(np, a, lambda x: x)


def approximated(xp: Any, a: Any, read: Callable[[Any], Any]) -> Any:
    """The exponential with the functions of an array module; ``read`` gives the host a number."""
    if not a.size:
        return a.copy()
    terms, most = _APPROXIMATIONS[a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1)]
    norm = xp.abs(a).sum(-2).max(-1)[..., None, None]
    good = xp.isfinite(norm)
    times = xp.ceil(xp.log2(xp.where(good & (norm > most), norm / most, 1)))
    out = _pade(xp, xp.where(good, a, 0) * xp.exp2(-times).astype(norm.dtype), terms)
    for k in range(int(read(times.max()))):
        out = xp.where(times > k, xp.matmul(out, out), out)
    return xp.where(good, out, math.nan).astype(a.dtype)


def _pade(xp: Any, a: Any, terms: tuple) -> Any:
    one, twice = xp.eye(a.shape[-1], dtype=a.dtype), xp.matmul(a, a)
    powers = [xp.broadcast_to(one, a.shape), twice]
    for _ in range(len(terms) // 2 - 2):
        powers.append(xp.matmul(powers[-1], twice))
    odd = xp.matmul(a, _weighted(terms[1::2], powers))
    even = _weighted(terms[::2], powers)
    return xp.linalg.solve(even - odd, even + odd)


def _weighted(weights: tuple, powers: list) -> Any:
    out = powers[0] * weights[0]
    for weight, power in zip(weights[1:], powers[1:], strict=True):
        out = out + power * weight
    return out


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
