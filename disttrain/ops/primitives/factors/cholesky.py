"""Positive definite matrices as a triangle times its adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.annotations import Shaped
from ....core.gate import Primitive
from ...declare import primitive
from ...promotion import only
from ..failures import indefinite, no_failure
from ..views import Batched
from .parts import adjoint, halved_diagonal, matmul, square
from .triangular import solve_triangular


def _forward(a: np.ndarray, check: str) -> tuple:
    """The lower factor of each matrix, of which the lower triangle is read; and the order of the
    first leading minor that is not positive, or 0. ``check``: who refuses such a matrix, or ""."""
    info = np.zeros(a.shape[:-2], np.int32)
    try:
        return np.linalg.cholesky(a), info
    except np.linalg.LinAlgError:
        out = _one_by_one(a, info)
        if check:
            no_failure(check, info, indefinite)
        return out


def _one_by_one(a: np.ndarray, info: np.ndarray) -> tuple:
    out = np.zeros(a.shape, a.dtype)
    for at in np.ndindex(*info.shape):
        try:
            out[at] = np.linalg.cholesky(a[at])
        except np.linalg.LinAlgError:
            info[at] = _first_minor(a[at])
            good = int(info[at]) - 1
            out[at] = np.tril(a[at])
            out[at][:good, :good] = np.linalg.cholesky(a[at][:good, :good])
    return out, info


def _first_minor(a: np.ndarray) -> int:
    """The order of the first leading minor that has no factor, by bisection."""
    low, high = 0, len(a)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            np.linalg.cholesky(a[:middle, :middle])
            low = middle
        except np.linalg.LinAlgError:
            high = middle
    return high


def _shape(a: Shaped, check: str) -> list:
    square(a)
    return [(a.shape, a.dtype), (a.shape[:-2], np.dtype(np.int32))]


def _rule(g: tuple, out: tuple) -> tuple:
    """Murray, 2016, "Differentiation of the Cholesky decomposition", 4: the gradient of the
    symmetric matrix."""
    factor = out[0]
    inner = halved_diagonal(matmul(adjoint(factor), g[0]))
    inner = (inner + adjoint(inner)) * 0.5
    back = adjoint(factor)
    left = solve_triangular(back, inner, upper=True, unit=False)
    whole: Any = solve_triangular(back, adjoint(left), upper=True, unit=False)
    return (adjoint(whole),)


def _positive(rng: np.random.Generator, *lead: int) -> np.ndarray:
    a = rng.normal(size=(*lead, 3, 3))
    return a @ np.swapaxes(a, -1, -2) + np.eye(3)


cholesky: Primitive = primitive(
    "cholesky", _forward, "a", vjp=_rule, multi=True, shape=_shape, nondiff_outputs=(1,),
    promote=only("linalg.cholesky", "fc"),
    samples=lambda rng: [((_positive(rng),), {"check": ""}), ((_positive(rng, 2),), {"check": ""})],
    batch=Batched(lambda: cholesky, lambda p, n: {}),
)  # fmt: skip
cholesky.kept = lambda out: (0,)
cholesky.checks = True
