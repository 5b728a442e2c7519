"""Eigenvalues and eigenvectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.annotations import Shaped, Value
from ....core.gate import Primitive
from ....errors import LinAlgError
from ...declare import primitive
from ...promotion import only
from ..aliases import diagonal, real
from ..elementwise import H, cast_like
from ..failures import phase_free
from ..linalg import solve
from ..views import Batched
from .parts import (
    adjoint,
    apart,
    array_type,
    complex_type,
    matmul,
    on_diagonal,
    real_type,
    row,
    skew,
    square,
)


def _hermitian(a: np.ndarray, upper: bool) -> tuple:
    if not np.isfinite(a).all():
        raise LinAlgError(
            "linalg.eigh: The algorithm failed to converge because the input matrix contained "
            "non-finite values."
        )
    return tuple(np.linalg.eigh(a, "U" if upper else "L"))


def _hermitian_shape(a: Shaped, upper: bool) -> list:
    square(a)
    return [(a.shape[:-1], real_type(a.dtype)), (a.shape, a.dtype)]


def _hermitian_rule(g: tuple, out: tuple) -> tuple:
    """Giles, 2008, "Collected matrix derivative results", 3.1, with the part of the vectors'
    gradient that turns them. Where eigenvalues are equal, their vectors have no derivative; what
    they would get counts as 0, so that functions of the values alone stay right."""
    (gw, gv), (w, v) = g, out
    products = matmul(adjoint(v), gv)
    phase_free("linalg.eigh", products)
    turned = skew(products) * cast_like(apart(w), v) * 0.5
    inner = turned + on_diagonal(gw, v)
    return (matmul(matmul(v, inner), adjoint(v)),)


def symmetric(rng: np.random.Generator, *lead: int) -> np.ndarray:
    """Symmetric matrices whose eigenvalues are well apart, for tests."""
    a = rng.normal(size=(*lead, 3, 3))
    return a + np.swapaxes(a, -1, -2) + np.diag([0.0, 3.0, 7.0])


# Of one triangle of Hermitian matrices: values rising, vectors as columns.
eigh: Primitive = primitive(
    "eigh", _hermitian, "a", vjp=_hermitian_rule, multi=True, shape=_hermitian_shape,
    promote=only("linalg.eigh", "fc"),
    samples=lambda rng: [
        ((symmetric(rng),), {"upper": False}), ((symmetric(rng, 2),), {"upper": True}),
    ],
    batch=Batched(lambda: eigh, lambda p, n: {}),
)  # fmt: skip


def _general(a: np.ndarray) -> tuple:
    if not np.isfinite(a).all():
        raise LinAlgError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    kind = complex_type(a.dtype)
    values, vectors = np.linalg.eig(a)
    return values.astype(kind, copy=False), vectors.astype(kind, copy=False)


def _general_shape(a: Shaped) -> list:
    square(a)
    kind = complex_type(a.dtype)
    return [(a.shape[:-1], kind), (a.shape, kind)]


def _general_rule(g: tuple, a: Value, out: tuple) -> tuple:
    """Boeddeker et al., 2017, "On the computation of complex-valued gradients with application to
    statistically optimum beamforming", (4.77), for vectors of length 1."""
    (gw, gv), (w, v) = g, out
    products = matmul(adjoint(v), gv)
    phase_free("linalg.eig", products)
    n = len(v.shape)
    lengths = cast_like(real(diagonal(products, offset=0, dim1=n - 2, dim2=n - 1)), v)
    products = products - matmul(adjoint(v), v * row(lengths))
    inner = products * H(apart(w)) + on_diagonal(gw, v)
    whole: Any = solve(adjoint(v), matmul(inner, adjoint(v)))
    return (whole if array_type(a).kind == "c" else real(whole),)


# Of any square matrices: complex values, in LAPACK's order, and vectors of length 1 as columns.
eig: Primitive = primitive(
    "eig", _general, "a", vjp=_general_rule, multi=True, shape=_general_shape,
    promote=only("linalg.eig", "fc"),
    samples=lambda rng: [((symmetric(rng) + rng.normal(size=(3, 3)) * 0.1,), {})],
    batch=Batched(lambda: eig, lambda p, n: {}),
)  # fmt: skip
for _factoring in (eigh, eig):
    _factoring.checks = True
