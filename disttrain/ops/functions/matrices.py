"""Functions of matrices and vectors that are composed of products, solutions and singular values.

Everything is composed of primitives, so every derivative and transform follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.tensor import Tensor
from ...core.types.casting import computes_in
from ...errors import ConfigError, DimError, LinAlgError, ShapeError
from ..primitives import linalg
from .args import broadcast, kinds, one_dim
from .args import tensor as as_input
from .creation.create import full_like, ones_like
from .elementwise import conj
from .linalg import matmul, matrix_norm, solve, svd
from .reduce import amax, amin, sum
from .views.join import cat, stack
from .views.shapes import diagonal as view_diagonal
from .views.shapes import expand, movedim, reshape


def _square(where: str, A: Tensor) -> None:  # noqa: N803
    if as_input(A, where, "A").ndim < 2:
        raise ShapeError(
            f"{where}: The input tensor A must have at least 2 dimensions; shape "
            f"{list(A.shape)} given"
        )
    rows, columns = A.shape[-2:]
    if rows != columns:
        raise ShapeError(
            f"{where}: A must be batches of square matrices, but they are {rows} by {columns} "
            "matrices"
        )


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803
    """A view of a diagonal of matrices: A (..., m, n) gives (..., k). Any dtype."""
    return view_diagonal(A, offset, dim1, dim2)


@computes_in("full")
def inv(A: Tensor) -> Tensor:  # noqa: N803
    """The inverse of each square matrix of A (..., n, n); ``LinAlgError`` for a singular one."""
    return linalg.inv(A)


@computes_in("full")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:  # noqa: N803
    """The singular values of A (..., m, n), falling: (..., min(m, n)); their type is real."""
    return svd(A, full_matrices=False, driver=driver)[1]


class Slogdet(NamedTuple):
    """A determinant is ``sign * exp(logabsdet)``."""

    sign: Tensor
    logabsdet: Tensor


def slogdet(A: Tensor) -> Slogdet:  # noqa: N803
    """The sign and the logarithm of the size of the determinant of each matrix of A (..., n, n):
    0 and -inf for a singular one. Floating or complex; the logarithm is real."""
    _square("linalg.slogdet", A)
    return Slogdet(*linalg.slogdet(A))


@computes_in("lower")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum over ``dim`` of ``conj(x) * y``, broadcasting; one dtype, floating or complex."""
    kinds("linalg.vecdot", "fVc", as_input(x, "linalg.vecdot", "x"))
    if x.dtype is not as_input(y, "linalg.vecdot", "y").dtype:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found {x.dtype} and "
            f"{y.dtype} instead; cast one of them with .to()"
        )
    return sum(conj(x) * y, dim)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of 3 elements along ``dim``, broadcasting. Any dtype of numbers.

    Raises ``ShapeError`` unless both have as many dimensions and 3 elements along ``dim``.
    """
    a, b = as_input(input, "linalg.cross"), as_input(other, "linalg.cross", "other")
    if a.ndim != b.ndim:
        raise ShapeError(
            "linalg.cross: inputs must have the same number of dimensions; shapes "
            f"{list(a.shape)} and {list(b.shape)} given"
        )
    d = one_dim(dim, a.ndim, "linalg.cross")
    if a.shape[d] != 3 or b.shape[d] != 3:
        raise ShapeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {a.shape[d]} and "
            f"{b.shape[d]}"
        )
    shape = broadcast("linalg.cross", a.shape, b.shape)
    x, y = (movedim(expand(t, shape), d, 0).unbind(0) for t in (a, b))
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return stack(parts, d)


def matrix_power(A: Tensor, n: int) -> Tensor:  # noqa: N803
    """A (..., k, k) multiplied ``n`` times with itself; for negative ``n`` its inverse.

    Floating or complex. Raises ``LinAlgError`` for a negative power of a singular matrix.
    """
    _square("linalg.matrix_power", A)
    if n == 0:
        one = np.eye(A.shape[-1], dtype=np.bool_)
        return expand(A.new_tensor(one).to(A.dtype), A.shape).clone()
    base, left = (linalg.inv(A), -n) if n < 0 else (A, n)
    out = None
    while left:
        if left & 1:
            out = base if out is None else matmul(out, base)
        left >>= 1
        if left:
            base = matmul(base, base)
    return out.clone() if out is A else out  # type: ignore[union-attr,return-value]


@computes_in("full")
def cond(A: Tensor, p: float | str | None = None) -> Tensor:  # noqa: N803
    """The condition number of A (..., m, n) in the norm ``p``: None, 2 and -2 (of singular values),
    or a norm of ``matrix_norm`` for square matrices; inf for a singular one. Real."""
    if as_input(A, "linalg.cond", "A").ndim < 2:
        raise ShapeError(
            "linalg.cond: The input tensor A must have at least 2 dimensions; shape "
            f"{list(A.shape)} given"
        )
    kinds("linalg.cond", "fc", A)
    if p in (None, 2, -2):
        values = svdvals(A)
        if not values.shape[-1]:
            return sum(values, -1)
        most, least = amax(values, -1), amin(values, -1)
        return least / most if p == -2 else most / least
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise ConfigError(
            f"linalg.cond got an invalid norm type: {p}; needed 'fro', 'nuc', 1, -1, 2, -2, inf or "
            "-inf"
        )
    _square("linalg.cond", A)
    if not A.shape.numel():
        return sum(abs(A), (-2, -1))
    try:
        return matrix_norm(A, p) * matrix_norm(linalg.inv(A), p)  # type: ignore[arg-type]
    except LinAlgError:  # one is singular
        if A.ndim == 2:
            return full_like(matrix_norm(A, p), math.inf)  # type: ignore[arg-type]
        return stack([cond(part, p) for part in A])


def vander(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803
    """The powers 0 to N - 1 (None: as many as elements) of x (..., n), as (..., n, N)."""
    kinds("linalg.vander", "iufVc", as_input(x, "linalg.vander", "x"))
    size = (x.shape[-1] if x.ndim else 1) if N is None else N
    if size <= 1:
        raise ShapeError(f"linalg.vander: N must be greater than 1; {size} given")
    first = ones_like(x).unsqueeze(-1)
    rest = expand(x.unsqueeze(-1), (*x.shape, size - 1)).cumprod(-1)
    return cat([first.to(rest.dtype), rest], -1)


@computes_in("full")
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:  # noqa: N803
    """The inverse of A as a map of its last dimensions (from ``ind``) to its first ``ind``."""
    if ind <= 0:
        raise DimError(f"linalg.tensorinv: Expected a strictly positive integer for 'ind', {ind}")
    first, last = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    rows, columns = math.prod(first), math.prod(last)
    if rows != columns:
        raise ShapeError(
            "linalg.tensorinv: Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {columns} != {rows}"
        )
    return reshape(linalg.inv(reshape(A, rows, columns)), *last, *first)


@computes_in("full")
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:  # noqa: N803
    """X with ``tensordot(A, X, X.ndim) == B``; ``dims`` of A are moved to its end before."""
    if dims is not None:
        A = movedim(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))  # noqa: N806
    last = tuple(A.shape[B.ndim :])
    rows, columns = math.prod(B.shape), math.prod(last)
    if math.prod(A.shape[: B.ndim]) != rows or rows != columns:
        raise ShapeError(
            "linalg.tensorsolve: Expected self to satisfy the requirement prod(self.shape[other."
            f"ndim:]) == prod(self.shape[:other.ndim]), but got {columns} != {rows}"
        )
    return reshape(solve(reshape(A, rows, columns), reshape(B, rows)), *last)


__all__ = [
    "cond",
    "cross",
    "diagonal",
    "inv",
    "matrix_power",
    "slogdet",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
]
