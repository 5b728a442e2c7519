"""``dt.linalg``: norms, products, decompositions, inverses."""

import sys

from .errors import LinAlgError
from .ops.functions import linalg as products
from .ops.functions import matrices
from .ops.functions.factors import decompositions, solving
from .ops.functions.linalg import matmul, multi_dot
from .ops.functions.matrices import diagonal, vander
from .ops.functions.outs import fills
from .ops.names import settle
from .ops.primitives import linalg as primitives

det, inv = fills(primitives.det), fills(matrices.inv)
norm, vector_norm = fills(products.linalg_norm), fills(products.vector_norm)
matrix_norm, matrix_rank = fills(products.matrix_norm), fills(solving.matrix_rank)
svd, svdvals, solve = fills(products.svd), fills(matrices.svdvals), fills(products.solve)
cond, cross, vecdot = fills(matrices.cond), fills(matrices.cross), fills(matrices.vecdot)
matrix_power, slogdet = fills(matrices.matrix_power), fills(matrices.slogdet)
tensorinv, tensorsolve = fills(matrices.tensorinv), fills(matrices.tensorsolve)
qr, cholesky = fills(decompositions.qr), fills(decompositions.linalg_cholesky)
cholesky_ex = fills(decompositions.cholesky_ex)
eigh, eigvalsh = fills(decompositions.eigh), fills(decompositions.eigvalsh)
eig, eigvals = fills(decompositions.eig), fills(decompositions.eigvals)
lu, lu_factor = fills(decompositions.linalg_lu), fills(decompositions.lu_factor)
lu_factor_ex, lu_solve = fills(decompositions.lu_factor_ex), fills(solving.lu_solve)
ldl_factor, ldl_factor_ex = fills(decompositions.ldl_factor), fills(decompositions.ldl_factor_ex)
ldl_solve, lstsq = fills(solving.ldl_solve), fills(solving.lstsq)
householder_product = fills(decompositions.householder_product)
solve_triangular, solve_ex = fills(solving.solve_triangular), fills(solving.solve_ex)
inv_ex, pinv, matrix_exp = fills(solving.inv_ex), fills(solving.pinv), solving.matrix_exp
settle(sys.modules[__name__])

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]
