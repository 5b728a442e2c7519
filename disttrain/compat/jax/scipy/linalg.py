"""``jax.scipy.linalg``: a table over ``disttrain.arrays.matrices``."""

from __future__ import annotations

from typing import Any

from ....arrays import matrices
from .. import types
from ..numpy import linalg as numpy_linalg
from ..numpy import rows
from ..numpy.lifting import given_back, one, operands

_TABLE = """
solve_triangular a b -> inexact; solve=scipy_solve a b -> inexact; expm A -> inexact
toeplitz c r -> same; hankel c r -> same; circulant c -> same; lu_factor a -> inexact
lu a -> inexact; polar a -> inexact; det a -> inexact; inv a -> inexact
"""
NAMES: dict[str, Any] = rows.table(_TABLE, (matrices,))
_IGNORED = ("overwrite_a", "overwrite_b", "check_finite", "debug", "lapack_driver", "permute_l_")


def _quiet(fn: Any) -> Any:
    """``fn``, which takes SciPy's options that mean nothing here."""

    def run(*args: Any, **given: Any) -> Any:
        return fn(*args, **{k: v for k, v in given.items() if k not in _IGNORED})

    run.__name__, run.__doc__ = fn.__name__, fn.__doc__
    return run


NAMES = {name: _quiet(fn) for name, fn in NAMES.items()}


def cholesky(a: Any, lower: bool = False, **options: Any) -> Any:
    """The triangular factor: the upper one, unless ``lower``."""
    value = one("cholesky", a, types.inexact)
    return given_back(matrices.cholesky(value, not lower), False, a)


def cho_factor(a: Any, lower: bool = False, **options: Any) -> Any:
    """The factor for ``cho_solve``."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: Any, b: Any, **options: Any) -> Any:
    """The x of a x = b by ``cho_factor`` of a."""
    (c, right), _ = operands("cho_solve", (c_and_lower[0], b), types.inexact)
    return given_back(matrices.cho_solve(c, right, c_and_lower[1]), False, c_and_lower[0], b)


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, **options: Any) -> Any:
    """The x of a x = b by ``lu_factor`` of a."""
    (factors, right), _ = operands("lu_solve", (lu_and_piv[0], b), types.inexact)
    pivots = one("lu_solve", lu_and_piv[1])
    return given_back(matrices.lu_solve(factors, right, pivots, trans), False, *lu_and_piv, b)


def block_diag(*arrs: Any) -> Any:
    """Matrices on the diagonal of a larger one."""
    tensors, _ = operands("block_diag", arrs)
    return given_back(matrices.block_diag(tensors), False, *arrs)


def eigh(
    a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, **options: Any
) -> Any:
    """Eigenvalues, and -vectors, of a symmetric matrix."""
    if b is not None:
        raise NotImplementedError("Only the b=None case of eigh is implemented")
    out = numpy_linalg.NAMES["eigh"](a, UPLO="L" if lower else "U")
    return out[0] if eigvals_only else tuple(out)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, **options: Any) -> Any:
    """The singular values, between two orthogonal factors."""
    out = numpy_linalg.NAMES["svd"](a, full_matrices, compute_uv)
    return tuple(out) if compute_uv else out


def qr(a: Any, mode: str = "full", **options: Any) -> Any:
    """An orthogonal and a triangular factor."""
    kind = {"full": "complete", "economic": "reduced", "r": "r"}[mode]
    out = numpy_linalg.NAMES["qr"](a, mode=kind)
    return (out,) if mode == "r" else tuple(out)


NAMES.update(
    cholesky=cholesky, cho_factor=cho_factor, cho_solve=cho_solve, lu_solve=lu_solve,
    block_diag=block_diag, eigh=eigh, svd=svd, qr=qr,
)  # fmt: skip
globals().update(NAMES)
__all__ = list(NAMES)
