"""Orthogonal (unitary) times upper triangular matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.annotations import Shaped, Value
from ....core.gate import Primitive
from ....errors import AutogradError
from ...declare import primitive
from ...promotion import only
from ..views import Batched
from .parts import adjoint, beside, halved, matmul, part, tri
from .triangular import solve_triangular


def _forward(a: np.ndarray, mode: str) -> tuple:
    if mode != "r":
        return tuple(np.linalg.qr(a, mode))  # type: ignore[call-overload]
    return np.empty((0,), a.dtype), np.linalg.qr(a, "r")


def _shape(a: Shaped, mode: str) -> list:
    *lead, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    q = (0,) if mode == "r" else (*lead, m, k)
    return [(q, a.dtype), ((*lead, k, n), a.dtype)]


def _tall(gq: Value, gr: Value, q: Value, r: Value) -> Any:
    """Of as many rows as columns, or more (Walter and Lehmann, 2010, "Algorithmic differentiation
    of linear algebra functions"): what goes back is right-divided by the adjoint of r."""
    inner = tri(matmul(gr, adjoint(r)) - matmul(adjoint(q), gq), k=0, upper=True)
    whole = gq + matmul(q, halved(inner))
    return adjoint(solve_triangular(r, adjoint(whole), upper=True, unit=False))


def _rule(g: tuple, a: Value, out: tuple, mode: str) -> tuple:
    """Of fewer rows than columns, a = (x y) and r = (u v), the first columns give q and u, and
    v = q^H y (Roberts and Roberts, 2020, "QR and LQ decomposition matrix backpropagation")."""
    (gq, gr), (q, r) = g, out
    m, n = tuple(a.shape)[-2:]
    if mode == "r":
        raise AutogradError(
            "linalg.qr: The derivative of linalg.qr depends on Q, which is not computed when "
            "mode='r'. Please use linalg.qr(A, mode='reduced') if you are going to require "
            "gradients"
        )
    if mode == "complete" and m > n:
        raise AutogradError(
            "linalg.qr: The QR decomposition is not differentiable when mode='complete' and "
            "nrows > ncols; use mode='reduced'"
        )
    if m >= n:
        return (_tall(gq, gr, q, r),)
    every, left, right = slice(None), slice(None, m), slice(m, None)
    gv = part(gr, every, right)
    gq = gq + matmul(part(a, every, right), adjoint(gv))
    first = _tall(gq, part(gr, every, left), q, part(r, every, left))
    return (beside(first, matmul(q, gv)),)


def _unbatched_empty(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    out, places = Batched(lambda: qr, lambda p, n: {})(args, dims, params, size)
    return out, ((None, 0) if params["mode"] == "r" else places)


qr: Primitive = primitive(
    "qr", _forward, "a", vjp=_rule, multi=True, shape=_shape, promote=only("linalg.qr", "fc"),
    samples=lambda rng: [
        ((rng.normal(size=(3, 3)),), {"mode": "reduced"}),
        ((rng.normal(size=(4, 2)),), {"mode": "reduced"}),
        ((rng.normal(size=(2, 2, 4)),), {"mode": "complete"}),
    ],
    batch=_unbatched_empty,
)  # fmt: skip


def _reflectors(a: np.ndarray) -> tuple:
    h, tau = np.linalg.qr(a, "raw")
    return np.ascontiguousarray(np.swapaxes(h, -1, -2)), tau


def _reflectors_shape(a: Shaped) -> list:
    return [(a.shape, a.dtype), ((*a.shape[:-2], min(a.shape[-2:])), a.dtype)]


# The algorithm's own result: r and, below it, the vectors of reflections; and their factors.
geqrf: Primitive = primitive(
    "geqrf", _reflectors, "a", multi=True, shape=_reflectors_shape, promote=only("geqrf", "fc"),
    samples=lambda rng: [((rng.normal(size=shape),), {}) for shape in ((4, 2), (2, 3))],
    batch=Batched(lambda: geqrf, lambda p, n: {}),
)  # fmt: skip
