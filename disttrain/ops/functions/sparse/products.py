"""Products of matrices of which one or both are sparse."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....errors import DTypeError, LayoutError, ShapeError
from ...primitives import elementwise as el
from ...primitives import gathering as prim
from ...primitives.sparse import sampled_product, sparse_product
from ...primitives.views import permute, reshape
from .blocks import BlockTensor
from .compressed import CompressedTensor, converted
from .coo import SparseTensor, made, meetings
from .structured import Structured


def matmul(a: Any, b: Any) -> Any:
    """``a @ b``: dense where one of them is, sparse of two sparse ones."""
    _fit(a, b)
    if isinstance(a, BlockTensor) or isinstance(b, BlockTensor):
        out = matmul(_plain(a), _plain(b))
        one = a if isinstance(a, BlockTensor) else b
        return one.like(out) if isinstance(out, SparseTensor) else out
    if isinstance(a, Structured) and isinstance(b, Structured):
        return _sparse(a, b)
    if a.ndim == 3 and isinstance(a, SparseTensor):
        return _batched(a, b)
    if a.ndim != 2 or b.ndim != 2:
        raise LayoutError(
            f"matmul: a sparse tensor of {a.ndim if isinstance(a, Structured) else b.ndim} "
            "dimensions cannot be multiplied with a dense one of "
            f"{b.ndim if isinstance(a, Structured) else a.ndim}; needed are matrices"
        )
    if isinstance(a, Structured):
        rows, columns = (a.index(x) for x in a.rows_and_columns())
        return sparse_product(a._held, b, rows, columns, size=a._size[0])
    rows, columns = (b.index(x) for x in b.rows_and_columns())
    turned = permute(a, dims=(1, 0))
    return permute(sparse_product(b._held, turned, columns, rows, size=b._size[1]), dims=(1, 0))


def _plain(x: Any) -> Any:
    """``x`` by coordinates, where it is in blocks or a batch."""
    return x.as_coordinates() if isinstance(x, BlockTensor) else x


def _fit(a: Any, b: Any) -> None:
    for t in (a, b):
        if isinstance(t, Structured) and t.dense_dim():
            raise ShapeError(
                f"matmul: a sparse tensor with {t.dense_dim()} dense dimensions given; needed are "
                "values that are numbers (dense_dim() 0)"
            )
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul: shapes {list(a.shape)} and {list(b.shape)} given: inner sizes "
            f"{a.shape[-1]} and {b.shape[-2]} differ"
        )
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"matmul: expected operands of one dtype, but got {a.dtype!r} and {b.dtype!r}"
        )


def _batched(a: SparseTensor, b: Tensor) -> Any:
    """A batch of sparse matrices times one of dense ones: those along one diagonal."""
    if b.ndim != 3 or b.shape[0] != a.shape[0]:
        raise ShapeError(f"bmm: shapes {list(a.shape)} and {list(b.shape)} given")
    (batch, n, _), (_, m, d) = a._size, b.shape
    at, rows, columns = a._places
    out = sparse_product(
        a._held, reshape(b, shape=(batch * m, d)), a.index(at * n + rows),
        a.index(at * m + columns), size=batch * n,
    )  # fmt: skip
    return reshape(out, shape=(batch, n, d))


def _sparse(a: Any, b: Any) -> Any:
    """The product of two sparse matrices: every pair of values that meets, added up by place."""
    if a.ndim != 2 or b.ndim != 2:
        raise LayoutError("matmul: of two sparse tensors only matrices can be multiplied")
    rows, inner = a.rows_and_columns()
    right = converted(b, "sparse_coo").coalesce()
    mine, its = meetings(right._places[0], inner, b._size[0])
    values = el.mul(
        prim.take(a._held, a.index(mine), dim=0, skip=None),
        prim.take(right._held, a.index(its), dim=0, skip=None),
    )
    places = np.stack([rows[mine], right._places[1][its]])
    out = made(places, values, (a._size[0], b._size[1]), False).coalesce()
    both = isinstance(a, CompressedTensor) and isinstance(b, CompressedTensor)
    return converted(out, "sparse_csr") if both else out


def sampled(self: Any, mat1: Tensor, mat2: Tensor) -> Tensor:
    """The values of ``mat1 @ mat2`` at the places of ``self``."""
    rows, columns = (self.index(x) for x in self.rows_and_columns())
    return sampled_product(mat1, permute(mat2, dims=(1, 0)), rows, columns)
