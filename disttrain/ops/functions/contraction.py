"""Products of tensors over chosen dimensions, and what matrices have under older names.

Everything is composed of primitives, so every derivative and transform follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.tensor import Tensor
from ...errors import ConfigError, DimError, ShapeError
from ..primitives import linalg as primitives
from ..promotion import same_type
from . import matrices
from .args import dims as as_dims
from .args import tensor as as_input
from .elementwise import conj, log, where
from .linalg import dot, matmul, multi_dot, outer
from .views.shapes import permute, reshape

ger = outer
slogdet = matrices.slogdet


def det(input: Tensor) -> Tensor:
    """The determinant of each matrix of ``input`` (..., n, n)."""
    return primitives.det(input)


def inverse(input: Tensor) -> Tensor:
    """The inverse of each matrix of ``input`` (..., n, n); ``LinAlgError`` for a singular one."""
    return matrices.inv(input)


def matrix_power(input: Tensor, n: int) -> Tensor:
    """Each matrix of ``input`` (..., k, k) multiplied ``n`` times with itself."""
    return matrices.matrix_power(input, n)


def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant of each matrix: nan where that is below 0, -inf where it is
    0; complex matrices give complex logarithms."""
    sign, size = matrices.slogdet(input)
    if sign.is_complex():
        return log(sign) + size
    return where(sign < 0, math.nan, size)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the cheapest order."""
    return matrices[0].clone() if len(matrices) == 1 else multi_dot(matrices)


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The sum of ``conj(input) * other`` of two vectors of one size and dtype."""
    return dot(conj(input), other)


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along ``dim`` (None: the first dimension of size 3)."""
    if dim is None:
        sizes = as_input(input, "cross").shape
        dim = next((k for k, n in enumerate(sizes) if n == 3), None)
        if dim is None:
            raise DimError(f"cross: no dimension of size 3 in input; its shape is {list(sizes)}")
    return matrices.cross(input, other, dim=dim)


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: every element of ``input`` times all of ``other``. Of tensors of n and
    m dimensions the smaller one gets leading ones."""
    a, b = as_input(input, "kron"), as_input(other, "kron", "other")
    n = max(a.ndim, b.ndim)
    mine, its = ((1,) * (n - t.ndim) + tuple(t.shape) for t in (a, b))
    apart = reshape(a, tuple(k for size in mine for k in (size, 1)))
    beside = reshape(b, tuple(k for size in its for k in (1, size)))
    return reshape(apart * beside, tuple(p * q for p, q in zip(mine, its, strict=True)))


def tensordot(
    a: Tensor, b: Tensor, dims: int | Sequence[int] | Sequence[Sequence[int]] | Tensor = 2
) -> Tensor:
    """The sum of products over ``dims``: a number n (the last n of ``a`` and the first n of ``b``),
    or two lists of dimensions. What is left of ``a`` comes first, then what is left of ``b``.

    Raises ``ShapeError`` where two summed dimensions differ in size (1 fits any).
    """
    if isinstance(dims, int) and dims < 0:
        raise ConfigError(f"tensordot expects dims >= 0, but got dims={dims}")
    same_type("tensordot", as_input(a, "tensordot", "a"), as_input(b, "tensordot", "b"))
    mine, its = _summed(a, b, dims)
    for i, j in zip(mine, its, strict=True):
        n, m = a.shape[i], b.shape[j]
        if n != m and 1 not in (n, m):
            raise ShapeError(
                "tensordot: contracted dimensions need to match, but first has size "
                f"{n} in dim {i} and second has size {m} in dim {j}"
            )
        if n != m:
            a, b = (a, b.sum(j, keepdim=True)) if n == 1 else (a.sum(i, keepdim=True), b)
    left = [i for i in range(a.ndim) if i not in mine]
    right = [j for j in range(b.ndim) if j not in its]
    shape = tuple(a.shape[i] for i in left) + tuple(b.shape[j] for j in right)
    size = math.prod(a.shape[i] for i in mine)
    rows, columns = (math.prod(t.shape[k] for k in kept) for t, kept in ((a, left), (b, right)))
    x = reshape(permute(a, (*left, *mine)), (rows, size))
    y = reshape(permute(b, (*its, *right)), (size, columns))
    if not (left or right):
        return dot(reshape(x, (-1,)), reshape(y, (-1,)))
    return reshape(matmul(x, y), shape)


def _summed(a: Tensor, b: Tensor, dims: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions of both that are summed over, pair by pair."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not dims <= min(a.ndim, b.ndim):
            raise ConfigError(
                f"tensordot: dims={dims} given for tensors of {a.ndim} and {b.ndim} dimensions"
            )
        return tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))
    pair: list[Any] = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if len(pair) == 2 and isinstance(pair[0], int) and isinstance(pair[1], int):
        pair = [[pair[0]], [pair[1]]]
    if len(pair) != 2:
        raise ConfigError(f"tensordot: dims={dims!r} given; needed a number or two lists")
    mine, its = (
        as_dims(list(one), t.ndim, "tensordot") if len(one) else ()
        for one, t in zip(pair, (a, b), strict=True)
    )
    if len(mine) != len(its):
        raise ConfigError("tensordot: both dimension lists should have same length")
    return tuple(mine), tuple(its)


__all__ = [
    "chain_matmul",
    "cross",
    "det",
    "ger",
    "inverse",
    "kron",
    "logdet",
    "matrix_power",
    "slogdet",
    "tensordot",
    "vdot",
]
