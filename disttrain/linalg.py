"""``dt.linalg``: norms, products, decompositions, inverses."""

import sys

from .errors import LinAlgError
from .ops.functions import matrices
from .ops.functions.linalg import linalg_norm as norm
from .ops.functions.linalg import (
    matmul,
    matrix_norm,
    matrix_rank,
    multi_dot,
    solve,
    svd,
    vector_norm,
)
from .ops.functions.matrices import diagonal
from .ops.functions.outs import fills
from .ops.names import settle
from .ops.primitives import linalg as primitives

det, inv = fills(primitives.det), fills(primitives.inv)
matrix_norm, matrix_rank = fills(matrix_norm), fills(matrix_rank)
norm, solve, svd, vector_norm = fills(norm), fills(solve), fills(svd), fills(vector_norm)
cond, cross, matrix_power = (
    fills(matrices.cond),
    fills(matrices.cross),
    fills(matrices.matrix_power),
)
slogdet, svdvals, vecdot = fills(matrices.slogdet), fills(matrices.svdvals), fills(matrices.vecdot)
tensorinv, tensorsolve = fills(matrices.tensorinv), fills(matrices.tensorsolve)
vander = matrices.vander
settle(sys.modules[__name__])

__all__ = [
    "LinAlgError",
    "cond",
    "cross",
    "det",
    "diagonal",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]
