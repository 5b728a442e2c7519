"""Matrices with orthonormal columns as functions of arbitrary ones, and back.

    matrix_exp(A)                exp of a square matrix (Higham 2005): exp(A - A^H) is orthogonal
    cayley(A)                    (I - A/2)^-1 (I + A/2), orthogonal for A = -A^H
    householder_product(A, tau)  the first columns of the product of reflections
    reflections(Q)               A and tau of a QR decomposition, as LAPACK's geqrf gives them
    orthonormal(Q)               the orthogonal factor of Q, with the signs that keep orthogonal Q

All but the last two can be differentiated. Batches of matrices are matrices in the last two
dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import linalg, ops
from ...core import wrap
from ...core.types import dtypes

# Coefficients of the [13/13] Pade approximant of exp, and the norm up to which it is exact.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_EXACT = 5.37


def _eye(like: ops.Tensor, n: int) -> Any:
    return ops.eye(n, dtype=like.dtype, device=like.device)


def matrix_exp(A: Any) -> Any:
    """The exponential of square matrices, by scaling and squaring a Pade approximant."""
    one = _eye(A, A.shape[-1])
    size = float(A.detach().abs().sum(-2).max()) if A.numel() else 0.0
    halvings = max(0, math.ceil(math.log2(size / _EXACT))) if size > _EXACT else 0
    A = A / 2.0**halvings
    b, two = _PADE, A @ A
    four, six = two @ two, two @ two @ two
    odd = six @ (b[13] * six + b[11] * four + b[9] * two)
    odd = A @ (odd + b[7] * six + b[5] * four + b[3] * two + b[1] * one)
    even = six @ (b[12] * six + b[10] * four + b[8] * two)
    even = even + b[6] * six + b[4] * four + b[2] * two + b[0] * one
    out = linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        out = out @ out
    return out


def cayley(A: Any) -> Any:
    """The Cayley map of square matrices."""
    one = _eye(A, A.shape[-1])
    return linalg.solve(one - 0.5 * A, one + 0.5 * A)


def householder_product(A: Any, tau: Any) -> Any:
    """The first k columns of H_1 ... H_k with H_i = I - tau_i v_i v_i^H, where v_i is column i of
    ``A`` (..., n, k) below the diagonal, with 1 on it."""
    n, k = A.shape[-2], A.shape[-1]
    v = A.tril(-1) + _eye(A, n)[:, :k]
    out = _eye(A, n)[:, :k]
    for i in reversed(range(k)):
        column = v[..., i : i + 1]
        row = column.transpose(-2, -1)
        row = row.conj() if row.is_complex() else row
        out = out - tau[..., i, None, None] * (column @ (row @ out))
    return out


def reflections(Q: Any) -> tuple[Any, Any]:
    """R above the diagonal and the reflections below it, and their factors tau (..., k)."""
    raw, tau = np.linalg.qr(Q.detach().array, mode="raw")
    return wrap(np.ascontiguousarray(np.swapaxes(raw, -2, -1))), wrap(np.ascontiguousarray(tau))


def orthonormal(Q: Any) -> Any:
    """The orthogonal factor of ``Q`` whose R has a positive diagonal."""
    q, r = np.linalg.qr(Q.detach().array)
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)
    size = np.abs(diagonal)
    signs = np.where(size > 0, diagonal / np.where(size > 0, size, 1), 0)
    return wrap(np.asarray(q * signs[..., None, :], q.dtype))


def is_orthonormal(Q: Any) -> bool:
    """Whether the columns are orthonormal, to the precision of their type."""
    a = Q.detach().array
    gram = np.swapaxes(a.conj(), -2, -1) @ a
    bound = 10.0 * a.shape[-2] * dtypes.finfo(Q.dtype).eps
    return bool(np.allclose(gram, np.eye(a.shape[-1]), rtol=1e-5, atol=bound))


__all__ = [
    "cayley",
    "householder_product",
    "is_orthonormal",
    "matrix_exp",
    "orthonormal",
    "reflections",
]
