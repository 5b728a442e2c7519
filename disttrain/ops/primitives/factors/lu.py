"""Matrices as a permutation, a lower and an upper triangle: a = p l u."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....backends import lapack
from ....core.annotations import Shaped, Value
from ....core.gate import Primitive
from ...declare import primitive
from ...promotion import only
from ..failures import flat, no_failure
from ..gathering import gather
from ..sort import argsort_
from ..views import Batched, expand, reshape
from .parts import adjoint, below, beside, matmul, part, tri
from .triangular import solve_triangular

_INT32 = np.dtype(np.int32)


def _forward(a: np.ndarray, check: str) -> tuple:
    """LAPACK's results. ``check``: who refuses a 0 on the diagonal of u, or ""."""
    out = lapack.lu(a)
    if check:
        no_failure(check, out[2], flat)
    return out


def _shape(a: Shaped, check: str) -> list:
    *lead, m, n = a.shape
    return [(a.shape, a.dtype), ((*lead, min(m, n)), _INT32), (tuple(lead), _INT32)]


def _lower(x: Value) -> Any:
    return tri(x, k=-1, upper=False)


def _upper(x: Value) -> Any:
    return tri(x, k=0, upper=True)


def _square_rule(gl: Value, gu: Value, lu: Value) -> Any:
    """Of as many rows as columns, without the permutation (Giles, 2008, and de Hoog, Anderssen and
    Lukas, 2011, "Differentiation of matrix functionals using triangular factorization")."""
    left = gl + _lower(matmul(adjoint(_lower(lu)), gl))
    right = _upper(matmul(gu, adjoint(_upper(lu))))
    inner = solve_triangular(adjoint(lu), left + right, upper=True, unit=True)
    return adjoint(solve_triangular(lu, adjoint(inner), upper=True, unit=False))


def _rule(g: tuple, a_shape: tuple, out: tuple) -> tuple:
    """What is beside the square part follows from it: u2 = l^-1 a2, or l2 = a2 u^-1."""
    given, (lu, pivots, _) = g[0], out
    m, n = tuple(a_shape)[-2:]
    k = min(m, n)
    first, later = slice(None, k), slice(k, None)
    lu1 = part(lu, first, first)
    gl, gu = _lower(part(given, first, first)), _upper(part(given, first, first))
    rest: Any = None
    if n > m:
        rest = solve_triangular(adjoint(lu1), part(given, first, later), upper=True, unit=True)
        gl = gl - _lower(matmul(rest, adjoint(part(lu, first, later))))
    elif m > n:
        side = adjoint(part(given, later, first))
        rest = adjoint(solve_triangular(lu1, side, upper=True, unit=False))
        gu = gu - _upper(matmul(adjoint(part(lu, later, first)), rest))
    whole = _square_rule(gl, gu, lu1)
    if rest is not None:
        whole = (beside if n > m else below)(whole, rest)
    return (unordered(whole, row_order(pivots, rows=m)),)


def _order(pivots: np.ndarray, rows: int) -> Any:
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    if flat.size and not (flat.min() > 0 and flat.max() <= rows):
        raise ValueError(
            "pivots given to lu_solve must all be greater or equal to 1 and smaller or equal to "
            f"LU.size(-2) ({rows}); those given to lu_unpack lie between 1 and LU.size(-2). Did "
            "you properly pass the result of lu_factor?"
        )
    out = np.tile(np.arange(rows), (len(flat), 1))
    each = np.arange(len(flat))
    for i in range(flat.shape[-1]):
        j = flat[:, i] - 1
        out[each, i], out[each, j] = out[each, j], out[each, i].copy()
    return out.reshape(*pivots.shape[:-1], rows)


# The row of ``a`` that is in each row of ``l u``, for the exchanges that ``lu_factor`` tells.
row_order: Primitive = primitive(
    "row_order", _order, "pivots",
    shape=lambda pivots, rows: ((*pivots.shape[:-1], rows), np.dtype(np.int64)),
    samples=lambda rng: [((np.array([[3, 3, 3], [2, 2, 4]], np.int32),), {"rows": 4})],
    batch=Batched(lambda: row_order, lambda p, n: {}),
)  # fmt: skip


row_order.checks = True


def ordered(x: Value, order: Value) -> Any:
    """The rows of each matrix in that order."""
    index = expand(reshape(order, shape=(*order.shape, 1)), shape=tuple(x.shape))
    return gather(x, index, dim=len(x.shape) - 2)


def unordered(x: Value, order: Value) -> Any:
    """The rows of each matrix back where ``ordered`` took them from."""
    return ordered(x, argsort_(order, dim=len(order.shape) - 1, descending=False))


lu_factor: Primitive = primitive(
    "lu_factor", _forward, "a", vjp=_rule, multi=True, shape=_shape, nondiff_outputs=(1, 2),
    promote=only("linalg.lu_factor", "fc"),
    samples=lambda rng: [
        ((rng.normal(size=shape),), {"check": ""}) for shape in ((3, 3), (4, 2), (2, 2, 3))
    ],
    batch=Batched(lambda: lu_factor, lambda p, n: {}),
)  # fmt: skip
lu_factor.kept = lambda out: (0, 1)
lu_factor.checks = True
