"""The pseudoinverse of Moore and Penrose."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.annotations import Shaped, Value
from ....core.gate import Primitive
from ...declare import primitive
from ...promotion import only
from .parts import Fronted, adjoint, matmul


def _forward(
    a: np.ndarray, atol: np.ndarray | None, rtol: np.ndarray | None, hermitian: bool, least: float
) -> Any:
    """Of the singular values (the sizes of eigenvalues) those above max(atol, rtol times the
    largest) are inverted; ``least`` is rtol where it is not given."""
    if not a.size:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    u, s, vh = _parts(a, hermitian)
    size = np.abs(s)
    bound = size.max(-1, keepdims=True) * (least if rtol is None else rtol[..., None])
    bound = bound if atol is None else np.maximum(bound, atol[..., None])
    kept = size > bound
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    vectors = np.swapaxes(vh, -1, -2).conj() * inverse[..., None, :]
    return vectors @ np.swapaxes(u, -1, -2).conj()


def _parts(a: np.ndarray, hermitian: bool) -> tuple:
    if not hermitian:
        return tuple(np.linalg.svd(a, full_matrices=False))
    values, vectors = np.linalg.eigh(a)
    return vectors, values, np.swapaxes(vectors, -1, -2).conj()


def _rule(g: Value, a: Value, out: Value) -> Any:
    """Golub and Pereyra, 1973, "The differentiation of pseudo-inverses and nonlinear least squares
    problems whose variables separate", (4.12)."""
    back, turned = adjoint(out), adjoint(g)
    left = matmul(matmul(turned, out), back)
    right = matmul(matmul(back, out), turned)
    return (
        left - matmul(a, matmul(out, left))
        + right - matmul(matmul(right, out), a)
        - matmul(matmul(back, g), back)
    )  # fmt: skip


def _shape(a: Shaped, atol: object, rtol: object, hermitian: bool, least: float) -> tuple:
    return (*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype


pinv: Primitive = primitive(
    "pinv", _forward, "a atol rtol", vjp={"a": _rule}, shape=_shape,
    promote=only("linalg.pinv", "fc"),
    samples=lambda rng: [
        ((rng.normal(size=shape), None, None), {"hermitian": False, "least": 1e-15})
        for shape in ((3, 3), (4, 2), (2, 2, 3))
    ],
    batch=Fronted(lambda: pinv),
)  # fmt: skip
pinv.checks = True
