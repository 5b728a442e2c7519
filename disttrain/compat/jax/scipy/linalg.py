"""``jax.scipy.linalg``: a table over ``disttrain.arrays.matrices``."""

from __future__ import annotations

from typing import Any

from ....arrays import matrices
from .. import types
from ..numpy.lifting import given_back, one, operands, table

_TABLE = """
. -> inexact: expm lu_factor lu inv svd=scipy_svd qr=scipy_qr eigh=scipy_eigh cholesky=factor
cho_factor; . -> same: circulant; . b -> inexact: solve_triangular solve=scipy_solve; . r -> same:
toeplitz hankel; a -> inexact: polar det
"""
NAMES: dict[str, Any] = table(_TABLE, (matrices,))


def cho_solve(c_and_lower: Any, b: Any, **options: Any) -> Any:
    """The x of a x = b by ``cho_factor`` of a."""
    (c, right), _ = operands("cho_solve", (c_and_lower[0], b), types.inexact)
    return given_back(matrices.cho_solve(c, right, c_and_lower[1]))


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, **options: Any) -> Any:
    """The x of a x = b by ``lu_factor`` of a."""
    (factors, right), _ = operands("lu_solve", (lu_and_piv[0], b), types.inexact)
    pivots = one("lu_solve", lu_and_piv[1])
    return given_back(matrices.lu_solve(factors, right, pivots, trans))


def block_diag(*arrs: Any) -> Any:
    """Matrices on the diagonal of a larger one."""
    return given_back(matrices.block_diag(operands("block_diag", arrs)[0]))


NAMES.update(cho_solve=cho_solve, lu_solve=lu_solve, block_diag=block_diag)
globals().update(NAMES)
__all__ = list(NAMES)
