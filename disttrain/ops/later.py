"""Public functions that ``dt`` and Tensor load when one of them is first asked for: decompositions
under the names from before ``linalg``, transforms of short times, windows, distances."""

import sys

from . import api
from .functions.distances import cdist, pdist
from .functions.factors import low_rank, older, solving
from .functions.outs import fills
from .functions.pieces import exponents
from .functions.pieces.inverse import nonzero_static, slice_inverse, unsafe_split_with_sizes
from .functions.pieces.segments import segment_reduce
from .functions.sparse import named
from .functions.spectral.short_time import istft, stft
from .functions.spectral.windows import (
    bartlett_window,
    blackman_window,
    hamming_window,
    hann_window,
    kaiser_window,
)
from .names import settle

cholesky, qr, svd = fills(older.cholesky), fills(older.qr), fills(older.svd)
cholesky_inverse, cholesky_solve = fills(solving.cholesky_inverse), fills(solving.cholesky_solve)
geqrf, orgqr, ormqr = fills(older.geqrf), fills(older.orgqr), fills(older.ormqr)
lu, lu_solve, lu_unpack = fills(older.lu), fills(older.lu_solve), fills(older.lu_unpack)
triangular_solve, pinverse = fills(older.triangular_solve), older.pinverse
matrix_exp, lobpcg = solving.matrix_exp, low_rank.lobpcg
svd_lowrank, pca_lowrank = low_rank.svd_lowrank, low_rank.pca_lowrank
eig, symeig, lstsq = older.eig, older.symeig, older.lstsq
frexp = fills(exponents.frexp)
matrix_rank, solve = older.matrix_rank, older.solve
frobenius_norm, nuclear_norm = fills(older.frobenius_norm), fills(older.nuclear_norm)
norm_except_dim = older.norm_except_dim
dsmm = spmm = api.mm
hspmm, sspaddmm = fills(named.hspmm), fills(named.sspaddmm)
saddmm, smm = named.saddmm, named.smm
settle(sys.modules[__name__])

__all__ = [
    "frexp",
    "nonzero_static",
    "segment_reduce",
    "slice_inverse",
    "unsafe_split_with_sizes",
    "bartlett_window",
    "blackman_window",
    "cdist",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "dsmm",
    "eig",
    "frobenius_norm",
    "geqrf",
    "hamming_window",
    "hann_window",
    "hspmm",
    "istft",
    "kaiser_window",
    "lobpcg",
    "lstsq",
    "lu",
    "lu_solve",
    "lu_unpack",
    "matrix_exp",
    "matrix_rank",
    "norm_except_dim",
    "nuclear_norm",
    "orgqr",
    "ormqr",
    "pca_lowrank",
    "pdist",
    "pinverse",
    "qr",
    "saddmm",
    "smm",
    "solve",
    "spmm",
    "sspaddmm",
    "stft",
    "svd",
    "svd_lowrank",
    "symeig",
    "triangular_solve",
]
