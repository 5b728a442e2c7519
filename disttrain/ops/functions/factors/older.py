"""What PyTorch had for matrices before ``linalg``: other names, other orders of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ....core.annotations import Dims
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.casting import computes_in
from ....errors import DTypeError, ShapeError
from ...primitives.factors import qr as factors
from ...primitives.factors.parts import adjoint
from ..args import one_dim
from ..creation.create import zeros
from ..linalg import matrix_norm, vector_norm
from ..linalg import svd as decomposed_svd
from ..views.shapes import expand
from . import checks, solving
from . import decompositions as made


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor


class Geqrf(NamedTuple):
    a: Tensor
    tau: Tensor


class Solution(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor


class LU(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """``linalg.cholesky``."""
    return made.linalg_cholesky(input, upper=upper)


def qr(input: Tensor, some: bool = True) -> QR:
    """``linalg.qr``: Q and R, reduced or (``some=False``) complete."""
    return QR(*made.qr(input, "reduced" if some else "complete"))


@computes_in("full")
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """U, S and V (not its adjoint, as ``linalg.svd`` has it); ``some=False``: U and V are square;
    ``compute_uv=False``: they are zeros."""
    checks.floating("svd", checks.matrices("svd", input, "input"))
    if compute_uv:
        u, s, vh = decomposed_svd(input, full_matrices=not some)
        return SVD(u, s, adjoint(vh))
    s = decomposed_svd(input, full_matrices=False)[1]
    m, n = input.shape[-2:]
    u, v = (zeros(*input.shape[:-2], k, k, dtype=input.dtype, device=input.device) for k in (m, n))
    return SVD(u, s, v)


@computes_in("full")
def geqrf(input: Tensor) -> Geqrf:
    """R and, below it, the vectors of the reflections whose product is Q; and their factors: what
    ``orgqr`` and ``ormqr`` take. There is no derivative."""
    checks.floating("geqrf", checks.matrices("geqrf", input, "input"))
    return Geqrf(*factors.geqrf(input))


def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """``linalg.householder_product``."""
    return made.householder_product(input, input2)


@computes_in("full")
def ormqr(
    input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """The product of all reflections of ``geqrf``'s result (``input`` and the factors ``input2``;
    ``transpose``: its adjoint) times ``input3``, or (``left=False``) ``input3`` times it."""
    where = "torch.ormqr"
    checks.matrices(where, input, "input")
    checks.matrices(where, input3, "other")
    size, rows = input3.shape[-2 if left else -1], input.shape[-2]
    if rows != size:
        raise ShapeError(
            f"{where}: other.shape[{-2 if left else -1}] must be equal to input.shape[-2]; shapes "
            f"{list(input3.shape)} and {list(input.shape)} given"
        )
    if input2.ndim < 1 or input2.shape[-1] > min(size, input.shape[-1]):
        raise ShapeError(
            f"{where}: tau.shape[-1] must be equal to min(other.shape[{-2 if left else -1}], "
            "input.shape[-1])"
        )
    made.checked_factors(where, input, input2)
    checks.one_type(where, input, input3)
    if input3.shape[:-2] != input.shape[:-2]:
        raise ShapeError(
            f"{where}: batch dimensions of other to be equal to input.shape[:-2], but got "
            f"{list(input3.shape)} and {list(input.shape)}"
        )
    return made.reflected(input, input2, input3, left, transpose)


@computes_in("full")
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:  # noqa: N803
    """``linalg.lu_factor_ex``: both factors in one matrix, the exchanged rows and, if asked for,
    LAPACK's numbers."""
    found = made.lu_factor_ex(A, pivot=pivot, check_errors=not get_infos)
    return tuple(found) if get_infos else tuple(found[:2])


@computes_in("full")
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:  # noqa: N803
    """``linalg.lu_solve``."""
    return solving.lu_solve(LU_data, LU_pivots, b)


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True  # noqa: N803
) -> LU:  # fmt: skip
    """P, L and U of ``linalg.lu_factor``'s result; empty where they are not asked for."""
    where = "torch.lu_unpack"
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise DTypeError(
            f"{where}: LU_pivots is expected to be a contiguous tensor of torch.int32 "
            "dtype.\nNote: this function is intended to be used with the output produced by "
            "linalg.lu_factor"
        )
    m, n = checks.matrices(where, LU_data, "LU_data").shape[-2:]
    if unpack_pivots and tuple(LU_pivots.shape) != (*LU_data.shape[:-2], min(m, n)):
        raise ShapeError(f"{where}: LU_pivots of shape {list(LU_pivots.shape)} do not fit")
    nothing = zeros(0, dtype=LU_data.dtype, device=LU_data.device)
    p = made.permutation(LU_pivots, m, LU_data) if unpack_pivots else nothing
    lower, upper = made.triangles(LU_data) if unpack_data else (nothing, nothing)
    return LU(p, lower, upper)


@computes_in("full")
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False  # noqa: N803
) -> Solution:  # fmt: skip
    """X with A X = b (``transpose``: A^T for A), for triangular A, and a copy of A."""
    checks.square("triangular_solve", A)
    checks.equations("triangular_solve", A, b, True)
    a, right = checks.one_batch("triangular_solve", A, b)
    above = upper != transpose
    turned = a.transpose(-1, -2) if transpose else a
    x = solving.solve_triangular(turned, right, upper=above, unitriangular=unitriangular)
    return Solution(x, expand(a, a.shape).clone())


@computes_in("full")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """``linalg.pinv`` with ``rtol=rcond``."""
    return solving.pinv(input, rcond)


def frobenius_norm(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """``linalg.vector_norm`` of order 2 over ``dim`` (empty: all)."""
    several = None if not isinstance(dim, int) and not len(dim) else dim
    return vector_norm(input, 2, several, keepdim)


def nuclear_norm(
    input: Tensor, dim: Dims | bool = False, keepdim: bool = False
) -> Tensor:  # fmt: skip
    """The sum of the singular values over two dimensions (a boolean in the place of ``dim`` is
    ``keepdim``, over the last two)."""
    if isinstance(dim, bool):
        return matrix_norm(input, "nuc", (-2, -1), dim or keepdim)
    return matrix_norm(input, "nuc", dim, keepdim)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of order ``pow`` over all dimensions but ``dim``, which stay with size 1 (-1: over
    all, as a number)."""
    if dim == -1:
        return vector_norm(v, pow)
    kept = one_dim(dim, v.ndim, "norm_except_dim")
    return vector_norm(v, pow, [d for d in range(v.ndim) if d != kept], keepdim=True)


def _gone(name: str, instead: str) -> Callable[..., NoReturn]:
    def run(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "This function was deprecated since version 1.9 and is now removed. Please use the "
            f"`torch.linalg.{instead}` function instead of `torch.{name}`."
        )

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Removed, as in PyTorch: raises ``RuntimeError``; use ``linalg.{instead}``."
    return run


eig, lstsq, matrix_rank = (
    _gone("eig", "eig"),
    _gone("lstsq", "lstsq"),
    _gone("matrix_rank", "matrix_rank"),
)
solve, symeig = _gone("solve", "solve"), _gone("symeig", "eigh")
