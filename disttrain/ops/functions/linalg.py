"""Public products of matrices and vectors, and norms. Torch's names."""

from __future__ import annotations

import math as _math
from typing import Any

from ...core import fast
from ...core.tensor import Tensor
from ...errors import ShapeError
from ..primitives import elementwise as el
from ..primitives import linalg
from ..primitives.views import reshape
from .args import numpy_names
from .args import tensor as as_input
from .elementwise import abs, square
from .reduce import amax, amin, count_nonzero, root, sum, typed

_fast_matmul = fast.binary(linalg.matmul)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product; vectors and batches as in numpy."""
    n, m = as_input(input, "matmul").ndim, as_input(other, "matmul", "other").ndim
    if n >= 2 and m >= 2:
        return _fast_matmul(input, other)
    if n == 0 or m == 0:
        raise ShapeError(
            f"matmul: shapes {list(input.shape)} and {list(other.shape)} given; both need at "
            "least one dimension; use * for scalars"
        )
    a = reshape(input, shape=(1, *input.shape)) if n == 1 else input
    b = reshape(other, shape=(*other.shape, 1)) if m == 1 else other
    out = linalg.matmul(a, b)
    shape = tuple(out.shape)
    if n == 1:
        shape = (*shape[:-2], *shape[-1:])
    if m == 1:
        shape = shape[:-1]
    return reshape(out, shape=shape)


def _exactly(where: str, t: Tensor, ndim: int, name: str) -> None:
    if t.ndim != ndim:
        raise ShapeError(
            f"{where}: {name} has shape {list(t.shape)}; {ndim} dimensions are needed (matmul "
            "takes any number)"
        )


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _exactly("mm", input, 2, "input")
    _exactly("mm", mat2, 2, "mat2")
    return linalg.matmul(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices."""
    _exactly("bmm", input, 3, "input")
    _exactly("bmm", mat2, 3, "mat2")
    return linalg.matmul(input, mat2)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector."""
    _exactly("mv", input, 2, "input")
    _exactly("mv", vec, 1, "vec")
    return matmul(input, vec)


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of products of two vectors."""
    _exactly("dot", input, 1, "input")
    _exactly("dot", tensor, 1, "tensor")
    return matmul(input, tensor)


inner = matmul


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors."""
    _exactly("outer", input, 1, "input")
    _exactly("outer", vec2, 1, "vec2")
    return reshape(input, shape=(-1, 1)) * reshape(vec2, shape=(1, -1))


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``."""
    product = mm(mat1, mat2)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``; weight [out, in], input [..., in]."""
    return linalg.linear(input, weight, bias)


@numpy_names
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The vector p-norm over ``dim`` ('fro' and 2: Euclidean)."""
    input = typed(input, dtype)
    p = 2.0 if p in ("fro", None) else float(p)
    if p == 2.0:
        return root(sum(square(abs(input)), dim, keepdim))
    if p == _math.inf:
        return amax(abs(input), dim, keepdim)
    if p == -_math.inf:
        return amin(abs(input), dim, keepdim)
    if p == 0.0:
        return el.cast(count_nonzero(input, dim), dtype=input.dtype.np)
    if p == 1.0:
        return sum(abs(input), dim, keepdim)
    return root(sum(abs(input) ** p, dim, keepdim), p)


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """``linalg.vector_norm``."""
    return norm(x, ord, dim, keepdim, dtype)


__all__ = [
    "addmm",
    "bmm",
    "dot",
    "inner",
    "linear",
    "matmul",
    "mm",
    "mv",
    "norm",
    "outer",
]
