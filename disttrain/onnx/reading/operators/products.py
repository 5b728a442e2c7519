"""Products of matrices, contractions, determinants."""

from __future__ import annotations

from typing import Any

from .... import linalg
from ....core.tensor import Tensor
from ....ops import api
from ..table import MICROSOFT, operator, simple

simple(MatMul=lambda a, b: api.matmul(a, b), Det=lambda x: linalg.det(x))
simple(Einsum=lambda *given, equation: api.einsum(equation.replace(" ", ""), *given))


@operator("Gemm")
def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0, broadcast: int = 1,
) -> Tensor:  # fmt: skip
    """``alpha A B + beta C``."""
    a, b = a.t() if transA else a, b.t() if transB else b
    plain = a.dtype.is_floating_point
    out = api.matmul(a, b)
    if alpha != 1.0:
        out = out * alpha if plain else (out * alpha).to(a.dtype)
    if c is None:
        return out
    return out + (c if beta == 1.0 else (c * beta).to(a.dtype))


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def _fused_matmul(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    a, b = _turned(a, transA, transBatchA), _turned(b, transB, transBatchB)
    out: Any = api.matmul(a, b)
    return out if alpha == 1.0 else out * alpha


def _turned(x: Tensor, last: int, batch: int) -> Tensor:
    """Rows and columns exchanged, after what was in front of the batch has come behind it."""
    x = api.movedim(x, 0, -2) if batch and x.ndim > 2 else x
    return x.transpose(-1, -2) if last and x.ndim > 1 else x
