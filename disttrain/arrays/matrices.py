"""Linear algebra with NumPy's and SciPy's arguments, and matrices of a known structure."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import linalg
from ..core.tensor import Tensor
from ..ops import api as ops
from .axes import axes_of

SlogdetResult = namedtuple("SlogdetResult", ["sign", "logabsdet"])
EighResult = namedtuple("EighResult", ["eigenvalues", "eigenvectors"])
EigResult = namedtuple("EigResult", ["eigenvalues", "eigenvectors"])
QRResult = namedtuple("QRResult", ["Q", "R"])
SVDResult = namedtuple("SVDResult", ["U", "S", "Vh"])


def det(a: Tensor) -> Tensor:
    """Determinants."""
    _square(a, "det")
    return linalg.det(a)


def slogdet(a: Tensor, method: str | None = None) -> tuple[Tensor, Tensor]:
    """Signs and logarithms of determinants."""
    _square(a, "slogdet")
    return SlogdetResult(*linalg.slogdet(a))


def inv(a: Tensor) -> Tensor:
    """Inverses; nan where there is none."""
    _square(a, "inv")
    found, info = linalg.inv_ex(a)
    return ops.where((info != 0).reshape((*info.shape, 1, 1)), float("nan"), found)


def svdvals(x: Tensor) -> Tensor:
    """Singular values."""
    return linalg.svdvals(x)


def eigvals(a: Tensor) -> Tensor:
    """Eigenvalues."""
    _square(a, "eigvals")
    return linalg.eigvals(a)


def tensorinv(a: Tensor, ind: int = 2) -> Tensor:
    """The inverse for ``tensordot`` over ``ind`` dimensions."""
    return linalg.tensorinv(a, ind)


def _square(a: Tensor, name: str) -> None:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(
            f"Argument to {name} must have shape [..., n, n], got shape {tuple(a.shape)}"
        )


def _even(a: Tensor) -> Tensor:
    return (a + a.mH) / 2


def cholesky(a: Tensor, upper: bool = False, symmetrize_input: bool = True) -> Tensor:
    """The triangular factor of a positive matrix; nan where it is not positive."""
    _square(a, "cholesky")
    factor, info = linalg.cholesky_ex(_even(a) if symmetrize_input else a)
    bad = (info != 0).reshape((*info.shape, 1, 1))
    keep = np.tri(a.shape[-1], dtype=bool)
    factor = ops.where(bad & ops.as_tensor(keep), float("nan"), factor)
    return factor.mH if upper else factor


def eigh(
    a: Tensor,
    UPLO: str | None = None,
    symmetrize_input: bool = True,  # noqa: N803
) -> tuple[Tensor, Tensor]:
    """Eigenvalues and -vectors of a symmetric matrix, of which one triangle is read."""
    _square(a, "eigh")
    return EighResult(*linalg.eigh(_even(a) if symmetrize_input else a, UPLO or "L"))


def eigvalsh(a: Tensor, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Tensor:  # noqa: N803
    """Eigenvalues of a symmetric matrix."""
    return eigh(a, UPLO, symmetrize_input)[0]


def eig(a: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and -vectors."""
    _square(a, "eig")
    return EigResult(*linalg.eig(a))


def matrix_power(a: Tensor, n: int) -> Tensor:
    """``a`` times itself."""
    _square(a, "matrix_power")
    return linalg.matrix_power(a, n)


def matrix_rank(M: Tensor, rtol: Any = None, *, tol: Any = None) -> Tensor:  # noqa: N803
    """How many singular values are not small."""
    if M.ndim < 2:
        return (M != 0).any().to(M.dtype) if M.ndim else (M != 0).long()
    s = linalg.svdvals(M)
    share = max(M.shape[-2:]) * float(np.finfo(s.meta()[1]).eps) if rtol is None else rtol
    least = ops.amax(s, -1, keepdim=True) * share if tol is None else tol
    return ops.sum(s > least, -1)


def multi_dot(arrays: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the cheapest order."""
    return linalg.multi_dot(list(arrays))


def qr(a: Tensor, mode: str = "reduced") -> Any:
    """An orthogonal and a triangular factor, or (``mode="r"``) the latter."""
    out = linalg.qr(a, "reduced" if mode == "r" else mode)
    return out[1] if mode == "r" else QRResult(*out)


def solve(a: Tensor, b: Tensor) -> Tensor:
    """The x of a x = b; ``b`` of one dimension is one vector."""
    _square(a, "solve")
    if b.ndim == 1:
        return linalg.solve(a, ops.unsqueeze(b, -1))[..., 0]
    return linalg.solve(a, b)


def svd(
    a: Tensor, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
    subset_by_index: None = None,
) -> Any:  # fmt: skip
    """The singular values, between two orthogonal factors."""
    if not compute_uv:
        return linalg.svdvals(a)
    return SVDResult(*linalg.svd(a, full_matrices=full_matrices))


def pinv(a: Tensor, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Tensor:
    """Moore's and Penrose's inverse."""
    share = rcond if rtol is None else rtol
    if share is None:
        share = 10.0 * max(a.shape[-2:]) * float(np.finfo(ops.real(a).meta()[1]).eps)
    return linalg.pinv(a, rtol=float(share), hermitian=hermitian)


def lstsq(a: Tensor, b: Tensor, rcond: float | None = None) -> Any:
    """Least squares: solution, sums of squares beside it, rank, singular values."""
    if a.ndim != 2 or b.ndim not in (1, 2):
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be two-dimensional")
    m, n = a.shape
    right = b.reshape(m, -1)
    share = max(m, n) * float(np.finfo(ops.real(a).meta()[1]).eps) if rcond is None else rcond
    u, s, vh = linalg.svd(a, full_matrices=False)
    keep = s >= (s[0] * share if s.shape[0] else 0)
    inverse = ops.where(keep, 1 / s, ops.zeros_like(s))
    x = ops.matmul(vh.mH, inverse.reshape(-1, 1).to(a.dtype) * ops.matmul(u.mH, right))
    rest = ops.abs(right - ops.matmul(a, x)) ** 2
    return x.reshape((n, *b.shape[1:])), ops.sum(rest, 0), ops.sum(keep), s


def tensorsolve(a: Tensor, b: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """The x of a x = b for arrays of more dimensions."""
    return linalg.tensorsolve(a, b, None if axes is None else tuple(axes))


def norm(x: Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A002
    """Norms of vectors (an axis) and matrices (two)."""
    if axis is None and ord is None:
        out = linalg.vector_norm(x.reshape(-1), 2)
        return out.reshape((1,) * x.ndim) if keepdims else out
    axes = axes_of(axis, x.ndim)
    if len(axes) > 2:
        raise ValueError(
            f"Improper number of axes for norm: axis={axes}. Pass one axis to compute a "
            "vector-norm, or two axes to compute a matrix-norm."
        )
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid order '{ord}' for vector norm.")
        return vector_norm(x, axes, keepdims, 2 if ord is None else ord)
    if ord not in (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise ValueError(f"Invalid order '{ord}' for matrix norm.")
    return linalg.matrix_norm(x, "fro" if ord is None else ord, axes, keepdims)


def vector_norm(x: Tensor, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:  # noqa: A002
    """Norms of vectors."""
    axes = axes_of(axis, x.ndim)
    if ord == 0:
        return ops.sum((x != 0).to(ops.real(x).dtype), axes, keepdims)
    return linalg.vector_norm(x, ord, axes, keepdims)


def matrix_norm(x: Tensor, keepdims: bool = False, ord: Any = "fro") -> Tensor:  # noqa: A002
    """Norms of matrices, in the last two dimensions."""
    return linalg.matrix_norm(x, ord, (-2, -1), keepdims)


def cond(x: Tensor, p: Any = None) -> Tensor:
    """The condition number of matrices."""
    if x.ndim < 2:
        raise ValueError(
            f"jnp.linalg.cond: input array must be at least 2D; got shape {tuple(x.shape)}"
        )
    return linalg.cond(x, p)


def trace(x: Tensor, offset: int = 0) -> Tensor:
    """The sum of the diagonal of matrices."""
    return ops.sum(ops.diagonal(x, offset, -2, -1), -1, dtype=x.dtype)


def diagonal(x: Tensor, offset: int = 0) -> Tensor:
    """The diagonal of matrices."""
    return ops.diagonal(x, offset, -2, -1)


# --- SciPy's ----------------------------------------------------------------------------------
def factor(a: Tensor, lower: bool = False) -> Tensor:
    """SciPy's ``cholesky``: the upper factor, or the lower one."""
    return cholesky(a, upper=not lower)


def cho_factor(a: Tensor, lower: bool = False) -> tuple[Tensor, bool]:
    """The triangular factor, and which triangle it is."""
    return factor(a, lower), lower


def scipy_svd(a: Tensor, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """``svd`` with SciPy's arguments."""
    out = svd(a, full_matrices, compute_uv)
    return tuple(out) if compute_uv else out


def scipy_qr(a: Tensor, mode: str = "full") -> Any:
    """``qr`` with SciPy's modes: full, economic, r."""
    out = qr(a, {"full": "complete", "economic": "reduced", "r": "r"}[mode])
    return (out,) if mode == "r" else tuple(out)


def scipy_eigh(a: Tensor, lower: bool = True, eigvals_only: bool = False) -> Any:
    """``eigh`` with SciPy's arguments."""
    out = eigh(a, "L" if lower else "U")
    return out[0] if eigvals_only else tuple(out)


def cho_solve(c: Tensor, b: Tensor, lower: bool = False) -> Tensor:
    """The x of a x = b by the factor ``c`` of a."""
    column = b.ndim == 1
    right = ops.unsqueeze(b, -1) if column else b
    factor = c if lower else c.mH
    half = linalg.solve_triangular(factor, right, upper=False)
    out = linalg.solve_triangular(factor.mH, half, upper=True)
    return out[..., 0] if column else out


def solve_triangular(
    a: Tensor, b: Tensor, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """The x of a x = b for a triangular ``a`` (``trans``: of its transpose)."""
    column = b.ndim == 1
    right = ops.unsqueeze(b, -1) if column else b
    if trans in (1, "T", 2, "C"):
        a, lower = (a.mT if trans in (1, "T") else a.mH), not lower
    out = linalg.solve_triangular(a, right, upper=not lower, unitriangular=unit_diagonal)
    return out[..., 0] if column else out


def scipy_solve(a: Tensor, b: Tensor, lower: bool = False, assume_a: str = "gen") -> Tensor:
    """``solve`` of any matrix, or (``assume_a="pos"``) of a positive one."""
    if assume_a in ("pos", "sym", "her") and assume_a == "pos":
        return cho_solve(factor(a, lower), b, lower)
    return solve(a, b)


def expm(A: Tensor) -> Tensor:  # noqa: N803
    """e to the power of matrices."""
    return linalg.matrix_exp(A)


def block_diag(arrays: Sequence[Tensor]) -> Tensor:
    """Matrices on the diagonal of a larger one."""
    return ops.block_diag(*arrays)


def toeplitz(c: Tensor, r: Tensor | None = None) -> Tensor:
    """Constant along each diagonal: first column ``c``, first row ``r``."""
    r = ops.conj(c) if r is None else r
    n, m = c.shape[-1], r.shape[-1]
    values = ops.cat([ops.flip(c, (-1,)), r[..., 1:]], -1)
    places = ops.arange(m).reshape(1, -1) - ops.arange(n).reshape(-1, 1) + n - 1
    return values[..., places]


def circulant(c: Tensor) -> Tensor:
    """Each column the one before, moved by one."""
    n = c.shape[-1]
    places = ops.remainder(ops.arange(n).reshape(-1, 1) - ops.arange(n).reshape(1, -1), max(n, 1))
    return c[..., places]


def hankel(c: Tensor, r: Tensor | None = None) -> Tensor:
    """Constant along each diagonal from below: first column ``c``, last row ``r``."""
    r = ops.zeros_like(c) if r is None else r
    values = ops.cat([c, r[..., 1:]], -1)
    return values[
        ..., ops.arange(c.shape[-1]).reshape(-1, 1) + ops.arange(r.shape[-1]).reshape(1, -1)
    ]


def hilbert(n: int) -> Tensor:
    """1 / (i + j + 1)."""
    line = ops.arange(n).double()
    return 1 / (line.reshape(-1, 1) + line.reshape(1, -1) + 1)


def lu_factor(a: Tensor) -> tuple[Tensor, Tensor]:
    """Triangular factors in one matrix, and which rows were swapped (from 0 on)."""
    factors, pivots = linalg.lu_factor(a)
    return factors, pivots - 1


def lu(a: Tensor, permute_l: bool = False) -> Any:
    """A permutation, a lower and an upper triangular factor."""
    p, lower, upper = linalg.lu(a)
    return (ops.matmul(p, lower), upper) if permute_l else (p, lower, upper)


def lu_solve(factors: Tensor, b: Tensor, pivots: Tensor, trans: int = 0) -> Tensor:
    """The x of a x = b by ``lu_factor`` of a (``trans``: of its transpose)."""
    column = b.ndim == 1
    right = ops.unsqueeze(b, -1) if column else b
    right = ops.conj(right) if trans == 1 else right
    out = linalg.lu_solve(factors, pivots + 1, right, adjoint=bool(trans))
    out = ops.conj(out) if trans == 1 else out
    return out[..., 0] if column else out


def polar(a: Tensor, side: str = "right") -> tuple[Tensor, Tensor]:
    """A unitary and a positive factor."""
    u, s, vh = linalg.svd(a, full_matrices=False)
    unitary = ops.matmul(u, vh)
    if side == "right":
        return unitary, ops.matmul(vh.mH * s.to(a.dtype), vh)
    return unitary, ops.matmul(u * s.to(a.dtype), u.mH)
