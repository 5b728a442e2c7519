"""Public products of matrices and vectors, and norms. Torch's names."""

from __future__ import annotations

import math as _math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as _np

from ...context import SLOW, thread
from ...core import Algebra, fast
from ...core.annotations import Dims, DTypeLike, Number
from ...core.overriding import refused
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...core.types.wide import is_half
from ...errors import ConfigError, DimError, DTypeError, ShapeError
from ..primitives import elementwise as el
from ..primitives import linalg
from ..primitives.views import expand, permute, reshape
from ..promotion import fitted, refuse, same_type
from .args import broadcast, dims, in_float32, kinds, numpy_names, one_dim
from .args import tensor as as_input
from .creation.create import zeros_like
from .elementwise import abs, square
from .reduce import amax, amin, root, sum, typed
from .views.join import cat

_fast_matmul = fast.binary(linalg.matmul)
_small_matmul = fast.binary(linalg.matmul, forward=_np.matmul)  # by fewer numbers than
_LEAST = linalg.LEAST


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product; vectors and batches as in numpy."""
    if out is not None:
        return Algebra.into(out, matmul, (input, other))
    if thread.mode != SLOW and isinstance(input, Tensor) and isinstance(other, Tensor):
        a, b = input.array, other.array
        if a.ndim > 1 and b.ndim > 1:
            return (_small_matmul if b.size < _LEAST else _fast_matmul)(input, other)
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        which, given = ("other", other) if isinstance(input, Tensor) else ("input", input)
        said = f"matmul: {which} must be a Tensor, not {type(given).__name__}"
        return refused(matmul, (input, other), said)
    n, m = input.ndim, other.ndim
    if n >= 2 and m >= 2:
        return _fast_matmul(input, other)
    if n == 0 or m == 0:
        raise ShapeError(
            f"matmul: shapes {list(input.shape)} and {list(other.shape)} given; both need at "
            "least one dimension; use * for scalars"
        )
    inner = input.shape[-1], other.shape[0 if m == 1 else -2]
    if inner[0] != inner[1]:  # said here, of the shapes that were given
        raise ShapeError(
            f"matmul(a: {_told(input)}, b: {_told(other)}): inner sizes {inner[0]} and {inner[1]} "
            "differ"
        )
    rows = reshape(input, shape=(1, *input.shape)) if n == 1 else input
    cols = reshape(other, shape=(*other.shape, 1)) if m == 1 else other
    out = linalg.matmul(rows, cols)
    shape = tuple(out.shape)
    if n == 1:
        shape = (*shape[:-2], *shape[-1:])
    if m == 1:
        shape = shape[:-1]
    return reshape(out, shape=shape)


def _told(t: Tensor) -> str:
    return f"{t.dtype.name}{list(t.shape)}"


def _exactly(where: str, t: Tensor, ndim: int, name: str) -> None:
    if t.ndim != ndim:
        raise ShapeError(
            f"{where}: {name} has shape {list(t.shape)}; {ndim}D tensors expected (matmul takes "
            "any number of dimensions)"
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


@computes_in("lower")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector."""
    _exactly("mv", input, 2, "input")
    _exactly("mv", vec, 1, "vec")
    return matmul(input, vec)


@computes_in("widest")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of products of two vectors."""
    _exactly("dot", input, 1, "input")
    _exactly("dot", tensor, 1, "tensor")
    if input.dtype is not tensor.dtype and thread.autocast is None:
        raise DTypeError(
            "dot : expected both vectors to have same dtype, but found "
            f"{input.dtype!r} and {tensor.dtype!r}"
        )
    if input.shape != tensor.shape:
        raise ShapeError(
            f"dot: inconsistent tensor size, expected shapes {list(input.shape)} and "
            f"{list(tensor.shape)} to have the same number of elements"
        )
    return matmul(input, tensor)


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimension of both: (..., n) and (...', n) to (..., ...')."""
    if as_input(input, "inner").ndim == 0 or as_input(other, "inner", "other").ndim == 0:
        return input * other
    a, b = tuple(input.shape), tuple(other.shape)
    if a[-1] != b[-1]:
        raise ShapeError(
            f"inner: shapes {list(a)} and {list(b)} given; the last dimensions must be equal"
        )
    if len(a) == len(b) == 1:
        return dot(input, other)
    rows = reshape(input, shape=(_math.prod(a[:-1]), a[-1]))
    columns = reshape(other, shape=(_math.prod(b[:-1]), a[-1]))
    out = linalg.matmul(rows, permute(columns, dims=(1, 0)))
    return reshape(out, shape=(*a[:-1], *b[:-1]))


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors."""
    _exactly("outer", input, 1, "input")
    _exactly("outer", vec2, 1, "vec2")
    return reshape(input, shape=(-1, 1)) * reshape(vec2, shape=(1, -1))


@computes_in("lower")
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``."""
    same_type("addmm", input, mat1, mat2)
    return _addmm(input, mat1, mat2, beta, alpha)


@in_float32
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: Number) -> Tensor:
    product = mm(mat1, mat2)
    input = expand(input, shape=tuple(product.shape))
    if alpha != 1:
        product = product * fitted("addmm", alpha, product.dtype)
    if beta == 0:  # nan and infinities of the input do not count
        return product + zeros_like(input)
    return (input if beta == 1 else input * fitted("addmm", beta, input.dtype)) + product


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``; weight [out, in] (or [in]: one number), input [..., in]."""
    if not isinstance(weight, Tensor):
        said = f"linear: weight must be a Tensor, not {type(weight).__name__}"
        return refused(linear, (input, weight, bias), said)
    if weight.ndim == 1:
        out = matmul(input, weight)
        return out if bias is None else out + bias
    if weight.ndim != 2:
        raise ShapeError(
            f"linear: weight of shape {list(weight.shape)} given; one or two dimensions are needed"
        )
    return linalg.linear(input, weight, bias)


# --- norms -------------------------------------------------------------------------------------
@computes_in("full")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of ``input - other``, broadcasting."""
    return norm(input - other, p)


def _norm_input(where: str, input: Tensor, dtype: DTypeLike | None) -> Tensor:
    kinds(where, "fVc", as_input(input, where))
    if dtype is not None:
        kind = dtypes.as_dtype(dtype)
        fits = kind.is_complex if input.dtype.is_complex else kind.is_floating_point
        if not fits or dtypes.promote_types(input.dtype, kind) is not kind:
            raise DTypeError(
                f"{where}: dtype={kind!r} given for {input.dtype!r}; it must be as wide, and "
                "complex if and only if the tensor is"
            )
    return typed(input, dtype)


@computes_in("full")
@numpy_names
def norm(
    input: Tensor,
    p: float | str = "fro",
    dim: Dims | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The vector p-norm over ``dim`` ('fro' and 2: Euclidean; 'nuc': the sum of the singular values
    of matrices)."""
    if p == "nuc":
        return matrix_norm(input, p, _two_dims("norm", input, dim), keepdim, dtype=dtype)
    if isinstance(p, str) and p != "fro":
        raise ConfigError(f"norm: p={p!r} given; needed a number, 'fro' or 'nuc'")
    return vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@computes_in("full")
def vector_norm(
    x: Tensor,
    ord: float | str = 2,
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """(sum |x|^ord)^(1/ord) over ``dim`` (None: all); inf: the largest, -inf: the smallest, 0: how
    many are not zero. The gradient at 0 is 0."""
    if isinstance(ord, complex):
        raise ConfigError("vector_norm: Expected a non-complex scalar as the order of norm")
    if isinstance(ord, str):
        raise TypeError(f"vector_norm: ord={ord!r} given; needed a number")
    return _vector_norm(_norm_input("norm", x, dtype), float(ord), dim, keepdim)


@in_float32
def _vector_norm(x: Tensor, p: float, dim: Dims | None, keepdim: bool) -> Tensor:
    size = abs(x)
    if p < 0 or p == _math.inf:
        gone = [d for d in dims(dim, x.ndim, "norm") if x.shape[d] == 0]
        if gone or not (x.shape.numel() or dim is not None):
            raise ShapeError(
                f"linalg.vector_norm cannot compute the {p} norm on the dimension "
                f"{gone or 'of no elements'} of a shape of {list(x.shape)}, which has no elements"
            )
    if p == 2.0:
        return _euclidean(size, dim, keepdim)
    if p == _math.inf:
        return amax(size, dim, keepdim)
    if p == -_math.inf:
        return amin(size, dim, keepdim)
    if p == 0.0:
        one = wrap(_np.ones((), size.meta()[1]))
        return sum(el.where(el.ne(x, 0), one, size * 0), dim, keepdim)  # (of gradient 0)
    if p == 1.0:
        return sum(size, dim, keepdim)
    return root(sum(size**p, dim, keepdim), p)


def _euclidean(size: Tensor, dim: Dims | None, keepdim: bool) -> Tensor:
    return root(sum(square(size), dim, keepdim))


def _two_dims(where: str, x: Tensor, dim: Dims | None) -> tuple:
    if x.ndim < 2:
        raise ShapeError(
            f"linalg.{where}: The input tensor A must have at least 2 dimensions, one of shape "
            f"{list(x.shape)} given"
        )
    if dim is None and x.ndim == 2:
        return 0, 1
    if dim is None or isinstance(dim, int) or len(dim) != 2:
        raise ShapeError(
            f"linalg.{where}: dim must be a 2-tuple, the dimensions of the matrices; {dim} given "
            f"for a shape of {list(x.shape)}"
        )
    first, second = (one_dim(d, x.ndim, where) for d in dim)
    if first == second:
        raise DimError(f"{where}: dim={tuple(dim)}: dims must be different")
    return first, second


@computes_in("full")
def matrix_norm(
    A: Tensor, ord: float | str = "fro", dim: Dims = (-2, -1), keepdim: bool = False,  # noqa: N803
    *, dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """A norm of matrices over two dimensions: 'fro', 'nuc' (the sum of the singular values), 1 and
    -1 (the largest and smallest sum of a column's sizes), inf and -inf (of a row's), 2 and -2 (the
    largest and smallest singular value)."""
    dims = _two_dims("matrix_norm", A, dim)
    if isinstance(ord, complex):
        raise ConfigError("matrix_norm: Expected a non-complex scalar as the order of norm")
    if ord not in ("fro", "nuc", 1, -1, 2, -2, _math.inf, -_math.inf):
        raise ConfigError(
            f"linalg.matrix_norm: Order {ord} not supported; needed 'fro', 'nuc', 1, -1, 2, -2, "
            "inf or -inf"
        )
    x = _norm_input("matrix_norm", A, dtype)
    if ord in (2, -2, "nuc") and is_half(x.meta()[1]):
        raise refuse(f"matrix_norm(ord={ord!r})", x.meta()[1])
    return _matrix_norm(x, ord, dims, keepdim)


@in_float32
def _matrix_norm(x: Tensor, ord: float | str, dims: tuple, keepdim: bool) -> Tensor:
    if ord == "fro":
        return _euclidean(abs(x), dims, keepdim)
    rest = tuple(d for d in range(x.ndim) if d not in dims)
    x = permute(x, dims=(*rest, *dims))
    if isinstance(ord, str) or ord in (2, -2):
        values = linalg.svd(x)[1]
        out = sum(values, -1) if ord == "nuc" else (amax if ord == 2 else amin)(values, -1)
    else:
        sums = sum(abs(x), -2 if ord in (1, -1) else -1)
        out = (amax if float(ord) > 0 else amin)(sums, -1)
    if keepdim:
        shape = list(out.shape)
        for d in sorted(dims):
            shape.insert(d, 1)
        out = reshape(out, shape=tuple(shape))
    return out


@computes_in("full")
def linalg_norm(
    A: Tensor, ord: float | str | None = None, dim: Dims | None = None, keepdim: bool = False,  # noqa: N803
    *, dtype: DTypeLike | None = None,
) -> Tensor:  # fmt: skip
    """``linalg.norm``: of vectors or of matrices, as ``ord`` and ``dim`` say. Without ``ord`` the
    Euclidean norm over ``dim`` (None: all); with it, a matrix (or two dimensions) has the norm of a
    matrix."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None and as_input(A, "linalg.norm").ndim not in (1, 2):
        raise ShapeError(
            f"linalg.norm: ord={ord!r} given without dim for a shape of {list(A.shape)}; needed a "
            "vector or a matrix"
        )
    several = () if dim is None or isinstance(dim, int) else tuple(dim)
    if len(several) > 2:
        raise DimError(
            f"linalg.norm: dim={several} given with ord={ord!r}; needed one dimension (of vectors) "
            "or two (of matrices)"
        )
    pair = A.ndim == 2 if dim is None else len(several) == 2
    if pair or isinstance(ord, str):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


@computes_in("full")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (``left=False``: X A = B), for square matrices A (..., n, n).

    ``B`` is (..., n, k), or a vector for every matrix: (n,), or A's shape without its last
    dimension. Raises ``LinAlgError`` for a singular matrix.
    """
    if A.ndim < 2:
        raise ShapeError(f"solve: A of shape {list(A.shape)} given; needed at least 2 dimensions")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    if vector:
        return solve(A, B.unsqueeze(-1), left=left).squeeze(-1)
    if not left:
        return linalg.swap(solve(linalg.swap(A), linalg.swap(B)))
    before = broadcast("solve", A.shape[:-2], B.shape[:-2])
    one, two = ((*before, *t.shape[-2:]) for t in (A, B))
    return linalg.solve(expand(A, shape=one), expand(B, shape=two))


class SVD(NamedTuple):
    """A = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@computes_in("full")
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:  # noqa: N803
    """U, S, Vh with A = U diag(S) Vh, singular values falling. ``driver`` chooses among a GPU's
    algorithms in PyTorch, and is refused here.

    ``full_matrices``: U and Vh are square; the vectors that A (..., m, n) does not determine
    (beyond the first min(m, n)) take no part in backward.
    """
    if as_input(A, "linalg.svd", "A").ndim < 2:
        raise ShapeError(
            f"linalg.svd: The input tensor A must have at least 2 dimensions; {list(A.shape)} given"
        )
    if driver is not None:
        raise ConfigError(
            "linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER "
            "backend."
        )
    u, s, vh = linalg.svd(A)
    m, n = A.shape[-2:]
    if not full_matrices or m == n:
        return SVD(u, s, vh)
    if A.is_meta:
        square = [zeros_like(A[..., :1, :1]).expand(*A.shape[:-2], k, k) for k in (m, n)]
        return SVD(square[0], s, square[1])
    full_u, full_vh = linalg.svd_square(A.detach())
    if m > n:
        return SVD(cat([u, full_u[..., n:]], -1), s, vh)
    return SVD(u, s, cat([vh, full_vh[..., m:, :]], -2))


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of two or more matrices, in the order of multiplications that takes the fewest
    operations (a dynamic program over the chain: Cormen et al., Introduction to Algorithms, 15.2).
    The first and the last may be vectors."""
    chain = list(tensors)
    if len(chain) < 2:
        raise ShapeError(f"multi_dot(): expected at least 2 tensors but got {len(chain)}")
    first, last = chain[0].ndim == 1, chain[-1].ndim == 1
    for k, t in enumerate(chain):
        which = {0: "the first tensor", len(chain) - 1: "the last tensor"}.get(k)
        if t.ndim != 2 and not (t.ndim == 1 and which):
            needed = "1D or 2D" if which else "2D"
            raise ShapeError(
                f"multi_dot(): {which or f'tensor {k}'} must be {needed} but got {t.ndim}D"
            )
    same_type("multi_dot(): all tensors must have be the same dtype", *chain)
    if first:
        chain[0] = reshape(chain[0], shape=(1, chain[0].shape[0]))
    if last:
        chain[-1] = reshape(chain[-1], shape=(chain[-1].shape[0], 1))
    product = _chained(chain, _chain_order([t.shape[0] for t in chain] + [chain[-1].shape[1]]))
    if first or last:
        kept = product.shape[: 0 if first else 1] + product.shape[2 if last else 1 :]
        product = reshape(product, shape=tuple(kept))
    if out is None:
        return product
    out.copy_(product)
    return out


def _chain_order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each part of a chain of matrices, the k-th ``sizes[k]`` x ``sizes[k + 1]``."""
    count = len(sizes) - 1
    cost: dict[tuple[int, int], int] = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], cuts[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return cuts


def _chained(chain: list[Tensor], cuts: dict[tuple[int, int], int]) -> Tensor:
    def product(i: int, j: int) -> Tensor:
        if i == j:
            return chain[i]
        k = cuts[i, j]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, len(chain) - 1)


__all__ = [
    "addmm",
    "bmm",
    "dist",
    "dot",
    "inner",
    "linear",
    "matmul",
    "mm",
    "mv",
    "norm",
    "outer",
]
