"""What solves with matrices: equations, inverses, least squares; and their exponentials."""

from __future__ import annotations

from typing import NamedTuple

from ....core.classes import values_of
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.casting import computes_in
from ....core.types.wide import is_half
from ....errors import ConfigError, DTypeError, ShapeError
from ...primitives import failures
from ...primitives import linalg as products
from ...primitives.batching import made_beside
from ...primitives.elementwise import maximum
from ...primitives.factors import (
    eigen,
    exponential,
    indefinite,
    lu,
    pseudoinverse,
    triangular,
)
from ...primitives.factors.parts import adjoint, identity, real_type, swap
from ..args import in_float32
from ..args import tensor as as_input
from ..creation.create import zeros_like
from ..elementwise import abs, square
from ..linalg import svd
from ..reduce import all as every
from ..reduce import amax, sum
from ..views.shapes import expand
from . import checks
from .decompositions import lu_factor_ex


class InvEx(NamedTuple):
    inverse: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    result: Tensor
    info: Tensor


class Lstsq(NamedTuple):
    """What ``lstsq`` tells."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False  # noqa: N803
) -> Tensor:  # fmt: skip
    """X with A X = B (``left=False``: X A = B), for triangular A (..., n, n), of which the other
    triangle is not read (``unitriangular``: nor the diagonal, which counts as ones). Zeros on the
    diagonal give infinities."""
    where = "linalg.solve_triangular"
    checks.square(where, A)
    checks.equations(where, A, B, left)
    checks.floating(where, A)
    checks.one_type(where, A, B)
    a, b = checks.one_batch(where, A, B)
    if left:
        return triangular.solve_triangular(a, b, upper=upper, unit=unitriangular)
    turned = triangular.solve_triangular(swap(a), swap(b), upper=not upper, unit=unitriangular)
    return swap(turned)


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False  # noqa: N803
) -> Tensor:  # fmt: skip
    """X with A X = B (``left=False``: X A = B; ``adjoint``: A^H for A), by ``lu_factor``'s
    result."""
    where = "linalg.lu_solve"
    if pivots.dtype is not dtypes.int32:
        raise DTypeError(f"{where}: pivots should be a Tensor of scalar type torch.int32")
    checks.square(where, LU)
    checks.equations(where, LU, B, left)
    if tuple(pivots.shape) != tuple(LU.shape[:-1]):
        raise ShapeError(
            f"{where}: Number of pivots per batch should be same as the dimension of the matrix"
        )
    checks.floating(where, LU)
    checks.one_type(where, LU, B)
    factors, b = checks.one_batch(where, LU, B)
    order = lu.row_order(expand(pivots, factors.shape[:-1]), rows=LU.shape[-1])
    if not left:  # X A = B is A^H X^H = B^H
        return _adjoint(_lu_solved(factors, order, _adjoint(b), not adjoint))
    return _lu_solved(factors, order, b, adjoint)


_adjoint = adjoint


def _lu_solved(factors: Tensor, order: Tensor, b: Tensor, turned: bool) -> Tensor:
    solved = triangular.solve_triangular
    if not turned:
        inner = solved(factors, lu.ordered(b, order), upper=False, unit=True)
        return solved(factors, inner, upper=True, unit=False)
    back = _adjoint(factors)
    inner = solved(back, b, upper=False, unit=False)
    return lu.unordered(solved(back, inner, upper=True, unit=True), order)


@computes_in("full")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:  # noqa: N803
    """``inv``, and for each matrix 0 or the place of the first 0 on the diagonal of its factor U,
    counted from 1, as int32; raises for these only if ``check_errors``."""
    where = "linalg.inv_ex"
    checks.floating(where, checks.square(where, A))
    factors, pivots, info = lu_factor_ex(A)
    if check_errors:
        failures.no_failure(where, values_of(info), failures.singular)
    one = expand(identity(A, A.shape[-1]), A.shape)
    return InvEx(lu_solve(factors, pivots, one), info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:  # noqa: N803
    """``solve``, and for each matrix 0 or the place of the first 0 on the diagonal of its factor U,
    counted from 1, as int32; raises for these only if ``check_errors``."""
    where = "linalg.solve_ex"
    checks.floating(where, checks.square(where, A))
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    if vector and not left:
        raise ShapeError(f"{where}: Vector broadcasting of the left hand side is not supported")
    b = B.unsqueeze(-1) if vector else B
    checks.equations(where, A, b, left)
    checks.one_type(where, A, B)
    factors, pivots, info = lu_factor_ex(A)
    if check_errors:
        failures.no_failure(where, values_of(info), failures.unsolvable)
    out = lu_solve(factors, pivots, b, left=left)
    return SolveEx(out.squeeze(-1) if vector else out, info)


@computes_in("full")
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X with A X = ``input``, where ``input2`` is the Cholesky factor L of A = L L^H (``upper``: U
    of A = U^H U)."""
    checks.square("cholesky_solve", input2)
    checks.equations("cholesky_solve", input2, input, True)
    checks.floating("cholesky_solve", input2)
    checks.one_type("cholesky_solve", input2, input)
    factor, b = checks.one_batch("cholesky_solve", input2, input)
    return _definite(factor, b, upper, "")


def _definite(factor: Tensor, b: Tensor, upper: bool, check: str) -> Tensor:
    """The solution by a Cholesky factor; ``check``: who refuses a 0 on its diagonal, or ""."""
    solved = triangular.solve_triangular
    first, second = (adjoint(factor), factor) if upper else (factor, adjoint(factor))
    half = solved(first, b, upper=False, unit=False, check=check)
    return solved(second, half, upper=True, unit=False)


@computes_in("full")
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, given its Cholesky factor. ``LinAlgError`` for a 0 on its diagonal."""
    checks.floating("cholesky_inverse", checks.square("cholesky_inverse", input))
    one = expand(identity(input, input.shape[-1]), input.shape)
    return _definite(input, one, upper, "cholesky_inverse")


def ldl_solve(
    LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False  # noqa: N803
) -> Tensor:  # fmt: skip
    """X with A X = B, by ``ldl_factor``'s result. The derivative is that by B."""
    where = "torch.linalg.ldl_solve"
    checks.square(where, LD)
    checks.equations(where, LD, B, True)
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise ShapeError(f"{where}: Expected LD.shape[:-1] and pivots.shape to be the same")
    if pivots.dtype.np.kind not in "iu":
        raise DTypeError(f"{where}: Expected pivots to be integers. Got {pivots.dtype!r}")
    checks.floating(where, LD)
    checks.one_type(where, LD, B)
    factors, b = checks.one_batch(where, LD, B)
    swaps = expand(pivots, factors.shape[:-1])
    return indefinite.ldl_solve(factors, swaps, b, hermitian=hermitian)


# --- pseudoinverses and ranks ------------------------------------------------------------------
def _bound(A: Tensor, value: float | Tensor | None, name: str) -> Tensor | None:  # noqa: N803
    """A limit of singular values as a tensor of their type."""
    if value is None or isinstance(value, Tensor):
        if isinstance(value, Tensor) and value.is_complex():
            raise DTypeError(f"linalg: {name} tensor of complex type is not supported")
        return value
    kind = real_type(A.meta()[1])
    return made_beside(A, lambda xp: xp.full((), value, kind))


def _least(A: Tensor, atol: float | Tensor | None, rtol: float | Tensor | None) -> float:  # noqa: N803
    """rtol where it is not given: none beside a given atol."""
    given = atol is not None and (isinstance(atol, Tensor) or atol > 0)
    return 0.0 if given else max(A.shape[-2:]) * dtypes.finfo(A.dtype).eps


def pinv(
    A: Tensor, rcond: float | Tensor | None = None, hermitian: bool = False, *,  # noqa: N803
    atol: float | Tensor | None = None, rtol: float | Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The pseudoinverse of A (..., m, n). Singular values that are at most max(atol, rtol times the
    largest) count as 0; ``rtol`` (``rcond`` is its older name) is max(m, n) times the precision of
    the type unless it or ``atol`` is given. ``hermitian``: A is, and its lower triangle is read."""
    name, rtol = ("rcond", rcond) if rtol is None else ("rtol", rtol)
    if as_input(A, "linalg.pinv", "A").ndim < 2:
        raise ShapeError(
            f"linalg.pinv({A.dtype!r}{list(A.shape)}): expected a tensor with 2 or more dimensions "
            "of float, double, cfloat or cdouble types"
        )
    checks.floating("linalg.pinv", A)
    if hermitian:
        checks.square("linalg.pinv", A)
    lead = A.shape[:-2]
    bounds = [b if b is None or not lead else expand(b, lead)
              for b in (_bound(A, atol, "atol"), _bound(A, rtol, name))]  # fmt: skip
    return pseudoinverse.pinv(A, *bounds, hermitian=hermitian, least=_least(A, atol, rtol))


@computes_in("full")
def matrix_rank(
    A: Tensor, tol: float | Tensor | None = None, hermitian: bool = False, *,  # noqa: N803
    atol: float | Tensor | None = None, rtol: float | Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How many singular values of A (..., m, n) are larger than max(atol, rtol * the largest), as
    int64. ``rtol`` is max(m, n) times the precision of the type unless it or ``atol`` is given;
    ``tol`` is ``atol`` under its older name. ``hermitian``: A is, and its lower triangle is read.
    """
    checks.floating("linalg.matrix_rank", checks.matrices("linalg.matrix_rank", A))
    if hermitian:
        checks.square("linalg.eigh", A)
        values = abs(eigen.eigh(A.detach(), upper=False)[0])
    else:
        values = svd(A.detach(), full_matrices=False)[1]
    atol = tol if atol is None else atol
    if not values.shape[-1]:
        return sum(values, -1).to(dtypes.int64)
    share = _bound(A, rtol, "rtol")
    least = _least(A, atol, rtol) if share is None else share.unsqueeze(-1)
    bound = amax(values, -1, keepdim=True) * least
    more = _bound(A, atol, "atol")
    if more is not None:
        bound = maximum(bound, zeros_like(bound) + more.unsqueeze(-1))
    return sum(values > bound, -1)


# --- least squares -----------------------------------------------------------------------------
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@computes_in("full")
def lstsq(
    input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> Lstsq:
    """X that makes A X - B smallest in the Frobenius norm, of smallest norm itself; A = ``input``
    (..., m, n), B = ``b`` (..., m, k) or (..., m). By the pseudoinverse, whatever the ``driver``,
    which says what is told: residuals (sums of squares, where A has full rank and m > n; not for
    "gelsy"), rank (not for "gels"), singular values ("gelsd", "gelss"); else these are empty.

    Singular values up to ``rcond`` times the largest count as 0.
    """
    where = "torch.linalg.lstsq"
    driver = _checked(where, input, b, driver)
    m, n = input.shape[-2:]
    vector = b.ndim == 1 or (b.ndim == input.ndim - 1 and b.shape == input.shape[:-1])
    right = b.unsqueeze(-1) if vector else b
    if right.shape[-2] != m:
        raise ShapeError(
            f"{where}: input.size(-2) should match other.size({-1 if vector else -2}); shapes "
            f"{list(input.shape)} and {list(b.shape)} given"
        )
    share = max(m, n) * dtypes.finfo(input.dtype).eps if rcond is None or rcond < 0 else rcond
    found = products.matmul(pinv(input, rtol=share), right)
    values = svd(input.detach(), full_matrices=False)[1]
    nothing = values.new_zeros(0)
    rank = _counted(values, share)
    full = driver == "gels" or (driver != "gelsy" and bool(every(rank == n)))
    rest = nothing
    if m > n and full:
        rest = sum(square(abs(products.matmul(input, found) - right)), -2)
    return Lstsq(
        found.squeeze(-1) if vector else found, rest,
        nothing.to(dtypes.int64) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else nothing,
    )  # fmt: skip


def _counted(values: Tensor, share: float) -> Tensor:
    if not values.shape[-1]:
        return sum(values, -1).to(dtypes.int64)
    return sum(values > amax(values, -1, keepdim=True) * share, -1)


def _checked(where: str, A: Tensor, B: Tensor, driver: str | None) -> str:  # noqa: N803
    checks.matrices(where, A, "input")
    if B.ndim < 1:
        raise ShapeError(f"{where}: other must have at least 1 dimension.")
    checks.floating(where, A)
    checks.one_type(where, A, B)
    if driver is not None and driver not in _DRIVERS:
        raise ConfigError(
            f"{where}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    return driver or "gelsy"


# --- exponentials ------------------------------------------------------------------------------
@in_float32
def _exponential(A: Tensor) -> Tensor:  # noqa: N803
    return exponential.matrix_exp(A)


def matrix_exp(A: Tensor) -> Tensor:  # noqa: N803
    """The exponential of square matrices: the sum of A^k / k!. Half types are computed in
    float32."""
    if not is_half(checks.matrices("linalg.matrix_exp", A).meta()[1]):
        checks.floating("linalg.matrix_exp", A)
    return _exponential(checks.square("linalg.matrix_exp", A))
