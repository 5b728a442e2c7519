"""Matrices: systems of equations with the adjoint matrix, decompositions, bands and diagonals."""

from __future__ import annotations

from typing import Any

from .. import linalg
from ..core.tensor import Tensor
from ..errors import LinAlgError, ShapeError
from ..ops import api as ops
from ..ops import later

_L: Any = linalg


def adjoint(x: Tensor) -> Tensor:
    """The transposed matrix, conjugated."""
    return ops.conj(x.transpose(-1, -2))


def matmul(a: Tensor, b: Tensor, turn_a: bool = False, turn_b: bool = False,
           adjoint_a: bool = False, adjoint_b: bool = False) -> Tensor:  # fmt: skip
    """The product of matrices, transposed or adjoint."""
    if min(a.ndim, b.ndim) < 2:
        raise ShapeError("In[0] ndims must be >= 2")
    a = adjoint(a) if adjoint_a else a.transpose(-1, -2) if turn_a else a
    b = adjoint(b) if adjoint_b else b.transpose(-1, -2) if turn_b else b
    return ops.matmul(a, b)


def matvec(a: Tensor, b: Tensor, turn: bool = False) -> Tensor:
    """The product of matrices and vectors."""
    return matmul(a, b.unsqueeze(-1), turn).squeeze(-1)


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    """The product over so many dimensions, or these of either."""
    if isinstance(axes, int):
        return ops.tensordot(a, b, dims=axes)
    first, second = ([x] if isinstance(x, int) else list(x) for x in axes)
    return ops.tensordot(a, b, dims=(first, second))


def _told(fn: Any, message: str, *given: Tensor) -> Tensor:
    try:
        found: Tensor = fn(*given)
        return found
    except LinAlgError:
        raise LinAlgError(message) from None


def solve(matrix: Tensor, rhs: Tensor, turned: bool = False) -> Tensor:
    """``x`` of ``matrix @ x == rhs``, or of the adjoint matrix."""
    matrix = adjoint(matrix) if turned else matrix
    return _told(_L.solve, "Input matrix is not invertible.", matrix, rhs)


def inverse(x: Tensor, turned: bool = False) -> Tensor:
    """The inverse, or its adjoint."""
    found = _told(_L.inv, "Input is not invertible.", x)
    return adjoint(found) if turned else found


def cholesky(x: Tensor) -> Tensor:
    """The lower factor."""
    why = "Cholesky decomposition was not successful. The input might not be valid."
    return _told(_L.cholesky, why, x)


def triangular_solve(
    matrix: Tensor, rhs: Tensor, lower: bool = True, turned: bool = False
) -> Tensor:
    """``solve`` of a triangular matrix."""
    matrix = adjoint(matrix) if turned else matrix
    found: Tensor = _L.solve_triangular(matrix, rhs, upper=lower == turned)
    return found


def svd(x: Tensor, whole: bool = False, vectors: bool = True) -> Any:
    """Singular values, and both sides' vectors as columns."""
    if not vectors:
        return _L.svdvals(x)
    u, s, vh = _L.svd(x, full_matrices=whole)
    return s, u, adjoint(vh)


def least_squares(matrix: Tensor, rhs: Tensor, weight: float = 0.0) -> Tensor:
    """The solution with the least error and ``weight`` times its own square, by the normal
    equations."""
    eye = ops.eye(matrix.shape[-1], dtype=matrix.dtype) * weight
    return solve(adjoint(matrix) @ matrix + eye, adjoint(matrix) @ rhs)


def norm(x: Tensor, order: Any = "euclidean", axis: Any = None, keepdims: bool = False) -> Tensor:
    """The norm of vectors, or, for an ``order`` and two dimensions, of matrices."""
    dims = axis if axis is None or isinstance(axis, int) else tuple(axis)
    found: Tensor
    if isinstance(dims, tuple) and order != "euclidean":
        found = _L.matrix_norm(x, order, dim=dims, keepdim=keepdims)
    else:
        order = 2 if order == "euclidean" else order
        found = _L.vector_norm(x, order, dim=dims, keepdim=keepdims)
    return found


def band(x: Tensor, below: int, above: int) -> Tensor:
    """So many diagonals below and above the middle one; -1: all."""
    lower = x if below < 0 else ops.triu(x, -below)
    return lower if above < 0 else ops.tril(lower, above)


def set_diagonal(x: Tensor, diagonal: Tensor, k: int = 0) -> Tensor:
    """``x`` with another diagonal."""
    return ops.diagonal_scatter(x, diagonal, k, -2, -1)


def transposed(x: Tensor, conjugate: bool = False) -> Tensor:
    """Matrices the other way round, as a copy."""
    return (adjoint(x) if conjugate else x.transpose(-1, -2)).clone()


def adjoint_copy(x: Tensor) -> Tensor:
    """The adjoint matrix, as a copy."""
    return adjoint(x).clone()


def cholesky_solve(factor: Tensor, rhs: Tensor) -> Tensor:
    """``solve`` of the matrix whose lower factor is given."""
    return later.cholesky_solve(rhs, factor)


def qr(x: Tensor, whole: bool = False) -> tuple[Tensor, ...]:
    """The orthogonal factor, with all its columns or those of the rank, and the upper one."""
    return tuple(_L.qr(x, mode="complete" if whole else "reduced"))


def eigh(x: Tensor) -> tuple[Tensor, ...]:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return tuple(_L.eigh(x))


def slogdet(x: Tensor) -> tuple[Tensor, ...]:
    """The sign of the determinant, and the logarithm of its magnitude."""
    return tuple(_L.slogdet(x))


def diagonal(x: Tensor, k: int = 0) -> Tensor:
    """The ``k``-th diagonals of matrices, as a copy."""
    return ops.diagonal(x, k, -2, -1).clone()


def trace(x: Tensor) -> Tensor:
    """The sum of each matrix's diagonal."""
    return ops.diagonal(x, 0, -2, -1).sum(-1)


def first_diagonal(x: Tensor) -> Tensor:
    """The diagonal of the first two dimensions, as a copy."""
    return ops.diagonal(x).clone()


def rank(x: Tensor) -> Tensor:
    """The rank of each matrix (int32)."""
    found: Tensor = _L.matrix_rank(x).int()
    return found
