"""Decompositions of matrices A (..., m, n), floating or complex. Everything is composed of
primitives, so every derivative and transform follows."""

from __future__ import annotations

from typing import NamedTuple

from ....core.tensor import Tensor
from ....core.types.casting import computes_in
from ....errors import ConfigError, ShapeError
from ...primitives import linalg as products
from ...primitives.factors import cholesky as definite
from ...primitives.factors import eigen, indefinite
from ...primitives.factors import lu as lu_primitives
from ...primitives.factors import qr as qr_primitives
from ...primitives.factors.parts import adjoint, identity
from ..views.shapes import expand, tril, triu
from . import checks


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


class CholeskyEx(NamedTuple):
    L: Tensor
    info: Tensor


class Eigen(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class LU(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    LU: Tensor
    pivots: Tensor


class LUFactorEx(NamedTuple):
    LU: Tensor
    pivots: Tensor
    info: Tensor


class LDLFactor(NamedTuple):
    LD: Tensor
    pivots: Tensor


class LDLFactorEx(NamedTuple):
    LD: Tensor
    pivots: Tensor
    info: Tensor


@computes_in("full")
def qr(A: Tensor, mode: str = "reduced") -> QR:  # noqa: N803
    """A = Q R, Q orthogonal (unitary) and R upper triangular. ``mode``: "reduced" (Q is m by
    min(m, n)), "complete" (Q is square) or "r" (R alone; Q is empty, and there is no derivative).

    The derivative needs linearly independent columns (the first m where there are more); mode
    "complete" has one for m <= n.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ConfigError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', "
            "or 'complete'"
        )
    checks.floating("linalg.qr", checks.matrices("linalg.qr", A))
    return QR(*qr_primitives.qr(A, mode=mode))


@computes_in("full")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:  # noqa: N803
    """``cholesky``, and for each matrix 0 or the order of its first leading minor that is not
    positive definite, as int32; raises for these only if ``check_errors``."""
    return _cholesky("linalg.cholesky_ex", A, upper, check_errors)


def _cholesky(where: str, A: Tensor, upper: bool, check: bool) -> CholeskyEx:  # noqa: N803
    checks.floating(where, checks.square(where, A))
    told = where if check else ""
    factor, info = definite.cholesky(adjoint(A) if upper else A, check=told)
    return CholeskyEx(adjoint(factor) if upper else factor, info)


@computes_in("full")
def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:  # noqa: N803
    """L with A = L L^H, lower triangular with a positive diagonal (``upper``: U with A = U^H U), of
    symmetric (Hermitian) positive definite matrices, of which one triangle is read.

    Raises ``LinAlgError`` where one is not positive definite.
    """
    return _cholesky("linalg.cholesky", A, upper, True).L


def _is_upper(letter: str) -> bool:
    if letter.upper() not in ("L", "U"):
        raise ConfigError(f"Expected UPLO argument to be 'L' or 'U', but got {letter}")
    return letter.upper() == "U"


@computes_in("full")
def eigh(A: Tensor, UPLO: str = "L") -> Eigen:  # noqa: N803
    """The eigenvalues, rising and real, and the eigenvectors (columns) of symmetric (Hermitian)
    matrices, of which the lower (``UPLO="U"``: the upper) triangle is read."""
    checks.floating("linalg.eigh", checks.square("linalg.eigh", A))
    return Eigen(*eigen.eigh(A, upper=_is_upper(UPLO)))


@computes_in("full")
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803
    """The eigenvalues of ``eigh``."""
    return eigh(A, UPLO).eigenvalues


@computes_in("full")
def eig(A: Tensor) -> Eigen:  # noqa: N803
    """The eigenvalues, in no order, and the eigenvectors (columns, of length 1) of square matrices;
    both complex."""
    checks.floating("linalg.eig", checks.square("linalg.eig", A))
    return Eigen(*eigen.eig(A))


@computes_in("full")
def eigvals(A: Tensor) -> Tensor:  # noqa: N803
    """The eigenvalues of ``eig``."""
    return eig(A).eigenvalues


# --- LU ------------------------------------------------------------------------------------------
def _factored(where: str, A: Tensor, pivot: bool, check: bool) -> LUFactorEx:  # noqa: N803
    checks.floating(where, checks.matrices(where, A))
    if not pivot:
        raise ConfigError(f"{where}: LU without pivoting is not implemented on the CPU")
    return LUFactorEx(*lu_primitives.lu_factor(A, check=where if check else ""))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:  # noqa: N803
    """``lu_factor``, and for each matrix 0 or the place of the first 0 on U's diagonal, counted
    from 1, as int32; raises for these only if ``check_errors``."""
    return _factored("torch.linalg.lu_factor_ex", A, pivot, check_errors)


def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:  # noqa: N803
    """L and U of ``lu`` in one matrix (L's diagonal is not stored), and the row that was exchanged
    with each of the first min(m, n), counted from 1, as int32.

    Raises ``LinAlgError`` for a 0 on U's diagonal.
    """
    return LUFactor(*_factored("torch.linalg.lu_factor", A, pivot, True)[:2])


def linalg_lu(A: Tensor, *, pivot: bool = True) -> LU:  # noqa: N803
    """A = P L U: a permutation, a lower triangle with ones on its diagonal, an upper triangle."""
    return unpacked(*_factored("linalg.lu", A, pivot, False)[:2])


def unpacked(factors: Tensor, pivots: Tensor) -> LU:
    """P, L and U of ``lu_factor``'s result."""
    return LU(permutation(pivots, factors.shape[-2], factors), *triangles(factors))


def triangles(factors: Tensor) -> tuple[Tensor, Tensor]:
    """L (..., m, k) and U (..., k, n), k = min(m, n), that lie in one matrix."""
    m, n = factors.shape[-2:]
    k = min(m, n)
    lower = factors[..., :k] if n > k else factors
    upper = factors[..., :k, :] if m > k else factors
    return tril(lower, -1) + _ones_on_diagonal(factors, m, k), triu(upper)


def _ones_on_diagonal(like: Tensor, rows: int, columns: int) -> Tensor:
    return identity(like, max(rows, columns))[:rows, :columns]


def permutation(pivots: Tensor, rows: int, like: Tensor) -> Tensor:
    """The permutation matrix of ``lu_factor``'s exchanges, in the type of ``like``."""
    order = lu_primitives.row_order(pivots, rows=rows)
    one = expand(identity(like, rows), (*order.shape[:-1], rows, rows))
    return lu_primitives.unordered(one, order)


# --- symmetric indefinite matrices, reflections --------------------------------------------------
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorEx:  # noqa: N803
    """``ldl_factor``, and LAPACK's number for each matrix, as int32: 0, or the place of a block of
    zeros, counted from 1; raises for these only if ``check_errors``."""
    return _ldl("linalg.ldl_factor_ex", A, hermitian, check_errors)


def _ldl(where: str, A: Tensor, hermitian: bool, check: bool) -> LDLFactorEx:  # noqa: N803
    checks.floating(where, checks.square(where, A))
    told = where if check else ""
    return LDLFactorEx(*indefinite.ldl_factor(A, hermitian=hermitian, check=told))


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactor:  # noqa: N803
    """Symmetric matrices as L D L^T (``hermitian``: L D L^H), as LAPACK stores it for
    ``ldl_solve``: L and the blocks of D in one matrix, and the exchanged rows as int32. Of A the
    lower triangle is read. There is no derivative."""
    return LDLFactor(*_ldl("torch.linalg.ldl_factor", A, hermitian, True)[:2])


@computes_in("full")
def householder_product(A: Tensor, tau: Tensor) -> Tensor:  # noqa: N803
    """The first n columns of the product of the reflections I - tau_i v_i v_i^H, where v_i is the
    i-th column of A (..., m, n) below the diagonal, with 1 on it and 0 above."""
    where = "torch.linalg.householder_product"
    checks.matrices(where, A, "input")
    m, n = A.shape[-2:]
    if m < n:
        raise ShapeError(
            f"{where}: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if n < tau.shape[-1] if tau.ndim else True:
        raise ShapeError(f"{where}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    checked_factors(where, A, tau)
    start = expand(_ones_on_diagonal(A, m, n), A.shape)
    return reflected(A, tau, start, left=True, transpose=False)


def checked_factors(where: str, A: Tensor, tau: Tensor) -> None:  # noqa: N803
    """Refuse factors of reflections that do not belong to the vectors."""
    if tau.ndim != A.ndim - 1 or tau.shape[:-1] != A.shape[:-2]:
        raise ShapeError(
            f"{where}: Expected tau to have one dimension less than input and its batch, but got "
            f"shapes {list(tau.shape)} and {list(A.shape)}"
        )
    checks.floating(where, A)
    checks.one_type(where, A, tau)


def reflected(A: Tensor, tau: Tensor, x: Tensor, left: bool, transpose: bool) -> Tensor:  # noqa: N803
    """The product of reflections (``transpose``: its adjoint) times x, or x times it."""
    m, count = A.shape[-2], tau.shape[-1]
    vectors = tril(A[..., :count], -1) + _ones_on_diagonal(A, m, count)
    for i in reversed(range(count)) if left != transpose else range(count):
        v, factor = vectors[..., i : i + 1], tau[..., i : i + 1].unsqueeze(-1)
        factor = adjoint(factor) if transpose else factor
        if left:
            x = x - products.matmul(factor * v, products.matmul(adjoint(v), x))
        else:
            x = x - products.matmul(products.matmul(x, factor * v), adjoint(v))
    return x if count else x.clone()
