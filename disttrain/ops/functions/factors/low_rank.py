"""The largest singular values by random projections, and a few eigenvalues by iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....context import thread
from ....core.grad_mode import no_grad
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.casting import computes_in
from ....errors import ConfigError, ShapeError
from ...primitives.factors.parts import adjoint, identity
from ..args import broadcast
from ..linalg import matmul, svd
from ..linalg import norm as euclidean
from ..random import randn
from ..reduce import mean, sum
from ..views.join import cat
from ..views.shapes import broadcast_to
from . import checks
from .decompositions import eigh, linalg_cholesky, qr
from .solving import pinv, solve_triangular


@computes_in("full")
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None  # noqa: N803
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """U, S, V with A (less ``M``) close to U diag(S) V^H of rank ``q`` (None: 6), by ``niter``
    (None: 2) iterations of a random subspace (Halko, Martinsson and Tropp, 2009, "Finding structure
    with randomness", algorithm 5.1)."""
    checks.floating("svd_lowrank", checks.matrices("svd_lowrank", A))
    if M is not None:
        A = A - broadcast_to(M, tuple(A.shape))  # noqa: N806
    wide = A.shape[-2] < A.shape[-1]
    a = adjoint(A) if wide else A
    basis = _basis(a, 6 if q is None else q, 2 if niter is None else niter)
    u, s, vh = svd(matmul(adjoint(basis), a), full_matrices=False)
    u, v = matmul(basis, u), adjoint(vh)
    return (v, s, u) if wide else (u, s, v)


def _basis(A: Tensor, q: int, niter: int) -> Tensor:  # noqa: N803
    """Orthonormal columns whose span is close to that of the first singular vectors (4.4 there)."""
    chosen = randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    out = qr(matmul(A, chosen)).Q
    for _ in range(niter):
        out = qr(matmul(adjoint(A), out)).Q
        out = qr(matmul(A, out)).Q
    return out


@computes_in("full")
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2  # noqa: N803
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``svd_lowrank`` of a matrix of ``q`` (None: up to 6) principal components of the rows of A
    (``center``: less their mean)."""
    m, n = checks.matrices("pca_lowrank", A).shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ConfigError(
            f"pca_lowrank: q(={q}) must be non-negative integer and not greater than min(m, n)="
            f"{min(m, n)}"
        )
    if niter < 0:
        raise ConfigError(f"pca_lowrank: niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - mean(A, -2, keepdim=True) if center else A, q, niter)


# --- eigenvalues by iteration ------------------------------------------------------------------
@computes_in("full")
def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None,  # noqa: N803
    n: int | None = None, iK: Tensor | None = None, niter: int | None = None,  # noqa: N803
    tol: float | None = None, largest: bool | None = None, method: str | None = None,
    tracker: Callable[[Any], None] | None = None, ortho_iparams: dict | None = None,
    ortho_fparams: dict | None = None, ortho_bparams: dict | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The ``k`` largest (or smallest) eigenvalues and their vectors of A x = lambda B x, of
    symmetric A and positive definite B (..., m, m), by the locally optimal block preconditioned
    conjugate gradient method (Knyazev, 2001). ``X``: first vectors (else ``n`` random ones),
    ``iK``: a preconditioner. The first derivative by A (without B) is that of the exact
    eigenvectors.

    ``method``, ``tracker`` and the parameters of orthogonalization have no effect: bases are
    orthonormalized by QR.
    """
    checks.floating("lobpcg", checks.square("lobpcg", A))
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    width = (k if n is None else n) if X is None else X.shape[-1]
    if method not in (None, "basic", "ortho"):
        raise ConfigError(f"lobpcg: method={method!r} given; needed 'basic' or 'ortho'")
    if m < 3 * width:
        raise ShapeError(
            f"lobpcg: LPBPCG algorithm is not applicable when the number of A rows (={m}) is "
            f"smaller than 3 x the number of requested eigenpairs (={width})"
        )
    largest = True if largest is None else largest
    tol = tol if tol is not None else dtypes.finfo(A.dtype).eps ** 0.5
    lead = broadcast("lobpcg", A.shape[:-2], () if B is None else B.shape[:-2])
    first = X if X is not None else randn(*lead, m, width, dtype=A.dtype, device=A.device)
    steps = 1000 if niter is None or niter < 0 else niter
    with no_grad():
        a, b = A.detach(), None if B is None else B.detach()
        values, vectors = _iterated(a, b, broadcast_to(first, (*lead, m, width)), iK,
                                    steps, tol, largest)  # fmt: skip
    values, vectors = values[..., :k], vectors[..., :k]
    if thread.grad_enabled and A.requires_grad and B is None:
        return _corrected(A, values, vectors)
    return values, vectors


def _ritz(a: Tensor, b: Tensor | None, basis: Tensor, largest: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues and combinations of a basis, the wanted ones first."""
    inner = matmul(adjoint(basis), matmul(a, basis))
    if b is None:
        values, turned = eigh(inner)
    else:
        factor = linalg_cholesky(matmul(adjoint(basis), matmul(b, basis)))
        half = solve_triangular(factor, inner, upper=False)
        whole = adjoint(solve_triangular(factor, adjoint(half), upper=False))
        values, turned = eigh(whole)
        turned = solve_triangular(adjoint(factor), turned, upper=True)
    return (values.flip(-1), turned.flip(-1)) if largest else (values, turned)


def _iterated(
    a: Tensor, b: Tensor | None, x: Tensor, preconditioner: Tensor | None, steps: int, tol: float,
    largest: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    width, basis = x.shape[-1], qr(x).Q
    values, turned = _ritz(a, b, basis, largest)
    x, before = matmul(basis, turned[..., :width]), None
    for _ in range(steps):
        right = x if b is None else matmul(b, x)
        rest = matmul(a, x) - right * values[..., :width].unsqueeze(-2)
        size = euclidean(rest, dim=(-2, -1)) / (
            euclidean(a, dim=(-2, -1)) * euclidean(x, dim=(-2, -1))
        )
        if bool((size <= tol * 1e-3).all()):
            break
        rest = rest if preconditioner is None else matmul(preconditioner, rest)
        parts = [x, rest] if before is None else [x, rest, before]
        basis = qr(cat(parts, -1)).Q
        values, turned = _ritz(a, b, basis, largest)
        following = matmul(basis, turned[..., :width])
        before = following - matmul(x, matmul(adjoint(x), following))
        x = following
    return values[..., :width], x


def _corrected(A: Tensor, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:  # noqa: N803
    """The same with a graph: lambda = x^H A x, and one step of Newton's method for x."""
    moved = matmul(A, vectors)
    found = sum(vectors * moved, -2)
    one, columns = identity(A, A.shape[-1]), []
    for i in range(values.shape[-1]):
        x, value = vectors[..., i : i + 1], values[..., i, None, None]
        inverse = pinv(value * one - A.detach(), rtol=dtypes.finfo(A.dtype).eps ** 0.5)
        columns.append(x + matmul(inverse, moved[..., i : i + 1] - x * found[..., i, None, None]))
    return found, cat(columns, -1)
