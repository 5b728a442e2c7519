"""The functions of ``torch.sparse``, and products of sparse matrices under older names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.annotations import DTypeLike
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....core.types.casting import computes_in
from ....errors import DimError, DTypeError, LayoutError, ShapeError
from ...primitives import elementwise as el
from ...primitives import linalg
from ...primitives.reduce import sum_
from . import along, products
from .compressed import converted
from .coo import SparseTensor, made
from .structured import Structured


def _matrices(where: str, *tensors: Any) -> None:
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{where}: a Tensor is needed, not {type(t).__name__}")
        if t.ndim != 2:
            raise ShapeError(f"{where}: matrices are needed; one of shape {list(t.shape)} given")


def _need_sparse(where: str, t: Any) -> None:
    if not isinstance(t, Structured):
        raise LayoutError(f"{where}: a sparse tensor is needed; one of layout {t.layout!r} given")


def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of two matrices, sparse or not; sparse where both are."""
    if reduce not in (None, "sum"):
        raise LayoutError(f"sparse.mm: reduce={reduce!r} given; there is 'sum'")
    _matrices("sparse.mm", mat1, mat2)
    return linalg.matmul(mat1, mat2)


@computes_in("lower")
def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * mat + alpha * mat1 @ mat2`` for a sparse ``mat1``."""
    _matrices("sparse.addmm", mat1, mat2)
    product = linalg.matmul(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return (mat if beta == 1 else mat * beta) + product


saddmm = addmm


def smm(input: Tensor, mat: Tensor) -> Tensor:
    """A sparse matrix times a dense one, as a sparse one."""
    _need_sparse("smm", input)
    kept, product = _rows(input, mat)
    count, n = product.shape
    places = np.stack([np.repeat(kept, n), np.tile(np.arange(n), count)])
    return made(places, product.reshape(count * n), (input.shape[0], n), True)


def _rows(sparse: Any, mat: Tensor) -> tuple[np.ndarray, Tensor]:
    """The numbers of the rows that have values, and these rows of the product."""
    rows, columns = sparse.rows_and_columns()
    kept, at = np.unique(rows, return_inverse=True)
    some = made(np.stack([at, columns]), sparse._held, (len(kept), sparse.shape[1]), False)
    return kept, mm(some, mat)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """A sparse matrix times a dense one, as a tensor of sparse rows."""
    _need_sparse("hspmm", mat1)
    kept, product = _rows(mat1, mat2)
    return made(kept[None], product, (mat1.shape[0], product.shape[1]), True)


def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2`` for sparse ``input`` and ``mat1``: sparse."""
    _need_sparse("sspaddmm", input)
    product = smm(mat1, mat2)
    return (input if beta == 1 else input * beta) + (product if alpha == 1 else product * alpha)


def sum(  # noqa: A001
    input: Tensor, dim: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """The sum of all values, or over ``dim``: dense where no sparse dimension is left."""
    if dtype is not None:
        input = el.cast(input, dtype=dtypes.as_dtype(dtype).np)
    count = input.ndim
    chosen: tuple[int, ...] = tuple(range(count))
    if dim is not None:
        chosen = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in chosen:
        if not -count <= d < count:
            raise DimError(
                f"sparse.sum: Dimension out of range (expected to be in range of [{-count}, "
                f"{count - 1}], but got {d})"
            )
    return sum_(input, dims=tuple(d % count for d in chosen), keepdim=False)


def _softmax(input: Tensor, dim: int, dtype: DTypeLike | None, log: bool) -> Tensor:
    name = "log_softmax" if log else "softmax"
    _need_sparse(f"sparse.{name}", input)
    if not -input.ndim <= dim < input.ndim:
        raise DimError(
            f"sparse.{name}: Dimension out of range (expected to be in range of [{-input.ndim}, "
            f"{input.ndim - 1}], but got {dim})"
        )
    if dtype is not None:
        input = el.cast(input, dtype=dtypes.as_dtype(dtype).np)
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise DTypeError(f"sparse.{name}: not implemented for {input.dtype!r}")
    return along.softmax(input, dim % input.ndim, log)


def softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """Softmax over the values along ``dim``; places that are not there count as -infinity."""
    return _softmax(input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of ``softmax``."""
    return _softmax(input, dim, dtype, True)


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2`` at the places of ``input``, in compressed rows."""
    one: Any = input
    if one.layout != "sparse_csr":
        raise ShapeError(
            "sampled_addmm: Expected self to have sparse csr layout, but got self.layout = "
            f"{one.layout!r}"
        )
    for name, t in (("mat1", mat1), ("mat2", mat2)):
        if isinstance(t, Structured) or t.ndim != 2:
            raise ShapeError(f"sampled_addmm: Expected {name} to be a dense matrix")
    fits = mat1.shape[1] == mat2.shape[0] and (mat1.shape[0], mat2.shape[1]) == one._size[:2]
    if not fits:
        raise ShapeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({list(mat1.shape)} and "
            f"{list(mat2.shape)}) to self.shape {list(one._size)}"
        )
    values = products.sampled(one, mat1, mat2)
    values = values if alpha == 1 else values * alpha
    if beta != 0:
        values = values + (one._held if beta == 1 else one._held * beta)
    return one.with_values(values)


def spdiags(
    diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: str | None = None
) -> Tensor:
    """A sparse matrix with rows of ``diagonals`` as its diagonals number ``offsets``; the element
    of column j of the matrix is that of column j of ``diagonals``."""
    rows = diagonals if diagonals.ndim == 2 else diagonals.reshape(1, -1)
    numbers = np.atleast_1d(np.asarray(offsets.detach().cpu().array))
    if len(numbers) != rows.shape[0]:
        raise ShapeError(
            f"spdiags: Number of diagonals ({rows.shape[0]}) does not match the number of offsets "
            f"({len(numbers)})"
        )
    if len(np.unique(numbers)) != len(numbers):
        raise ShapeError("spdiags: Offset tensor contains duplicate values")
    n, m = (int(k) for k in shape)
    at, which = [], []
    for k, offset in enumerate(numbers.tolist()):
        columns = np.arange(max(offset, 0), min(m, n + offset, rows.shape[1]))
        at.append(np.stack([columns - offset, columns]))
        which.append(k * rows.shape[1] + columns)
    places = np.concatenate(at, 1).astype(np.int64)
    out: SparseTensor = made(places, rows, (n, m), False)
    out._held = rows.reshape(-1)[out.index(np.concatenate(which))]
    return out if layout is None else converted(out.coalesce(), layout)
