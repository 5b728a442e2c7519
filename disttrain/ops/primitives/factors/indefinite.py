"""Symmetric (Hermitian) matrices that need not be definite: a = l d l^T, by blocks of one and two
(Bunch and Kaufman, 1977). LAPACK's form; the factors have no derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import lapack
from ....core.annotations import Shaped
from ....core.gate import Primitive
from ...declare import primitive
from ...promotion import only
from ..failures import no_failure
from ..views import Batched
from .eigen import symmetric
from .parts import Fronted, H, square

_INT32 = np.dtype(np.int32)


def _forward(a: np.ndarray, hermitian: bool, check: str) -> tuple:
    """LAPACK's results. ``check``: who refuses a block of zeros of d, or ""."""
    out = lapack.ldl(a, hermitian)
    if check:
        no_failure(
            check, out[2], lambda n: f"D[{n},{n}] is zero, so that nothing can be solved by it"
        )
    return out


def _shape(a: Shaped, hermitian: bool, check: str) -> list:
    square(a)
    return [(a.shape, a.dtype), (a.shape[:-1], _INT32), (a.shape[:-2], _INT32)]


ldl_factor: Primitive = primitive(
    "ldl_factor", _forward, "a", multi=True, shape=_shape,
    promote=only("linalg.ldl_factor", "fc"),
    samples=lambda rng: [
        ((symmetric(rng, *lead),), {"hermitian": False, "check": ""}) for lead in ((), (2,))
    ],
    batch=Batched(lambda: ldl_factor, lambda p, n: {}),
)  # fmt: skip


ldl_factor.checks = True


def _solve_samples(rng: np.random.Generator) -> list:
    ld, pivots, _ = lapack.ldl(symmetric(rng), False)
    return [((ld, pivots, rng.normal(size=(3, 2))), {"hermitian": False})]


def _solve_shape(ld: Shaped, pivots: Shaped, b: Shaped, hermitian: bool) -> tuple:
    square(ld)
    return b.shape, ld.dtype


def _right_side(g: Any, ld: Any, pivots: Any, hermitian: bool) -> Any:
    """a is symmetric, or its own adjoint: the solution with its conjugate."""
    if hermitian:
        return ldl_solve(ld, pivots, g, hermitian=True)
    return H(ldl_solve(ld, pivots, H(g), hermitian=False))


ldl_solve: Primitive = primitive(
    "ldl_solve", lapack.ldl_solved, "ld pivots b", vjp={"b": _right_side}, shape=_solve_shape,
    promote=only("linalg.ldl_solve", "fc"), samples=_solve_samples,
    batch=Fronted(lambda: ldl_solve),
)  # fmt: skip
