"""``jax.numpy.linalg``: a table over ``disttrain.linalg``."""

from __future__ import annotations

from typing import Any

from ....arrays import matrices, products, reductions, shapes
from . import lifting
from .functions import NAMES as FUNCTIONS

_TABLE = """
. -> inexact: cholesky cond eig eigh eigvals eigvalsh inv matrix_norm matrix_rank pinv qr svd
svdvals tensorinv vector_norm; a -> inexact: det matrix_power slogdet; . b -> inexact: lstsq solve
tensorsolve; arrays* -> same: multi_dot; x -> inexact: norm
"""
NAMES: dict[str, Any] = lifting.table(_TABLE, (matrices, products, reductions, shapes))
for _name in ("cross", "matmul", "matrix_transpose", "outer", "tensordot", "vecdot"):
    NAMES[_name] = FUNCTIONS[_name]
for _name in ("trace", "diagonal"):
    NAMES[_name] = lifting.function(_name, getattr(matrices, _name), "x", "same", True)
globals().update(NAMES)
__all__ = list(NAMES)
