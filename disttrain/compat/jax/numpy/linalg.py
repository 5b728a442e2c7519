"""``jax.numpy.linalg``: a table over ``disttrain.linalg``."""

from __future__ import annotations

import collections
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
_RESULTS = {
    "eigh": ("EighResult", "eigenvalues eigenvectors"),
    "eig": ("EigResult", "eigenvalues eigenvectors"),
    "slogdet": ("SlogdetResult", "sign logabsdet"),
    "qr": ("QRResult", "Q R"),
    "svd": ("SVDResult", "U S Vh"),
}


def _told(fn: Any, kind: Any) -> Any:
    """Results under their names."""

    def run(*args: Any, **given: Any) -> Any:
        out = fn(*args, **given)
        return kind(*out) if isinstance(out, tuple) else out

    run.__name__, run.__doc__ = fn.__name__, fn.__doc__
    return run


for _name, (_title, _fields) in _RESULTS.items():
    NAMES[_name] = _told(NAMES[_name], collections.namedtuple(_title, _fields))
globals().update(NAMES)
__all__ = list(NAMES)
