"""Sums, products and quotients, element by element, of which one or both operands are sparse."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....errors import ShapeError
from ...primitives import elementwise as el
from ...primitives import gathering as prim
from ...primitives.views import reshape
from .blocks import BlockTensor
from .compressed import CompressedTensor, converted
from .coo import SparseTensor, flat, joined, made, unflat
from .structured import Structured


def is_number(x: object) -> bool:
    """A number, or a dense tensor without dimensions."""
    return not isinstance(x, Tensor) or (x.ndim == 0 and not isinstance(x, Structured))


def add(a: Any, b: Any) -> Any:
    """``a + b`` of two sparse ones (sparse), or of a dense and a sparse one (dense)."""
    if not isinstance(b, Structured) or is_number(a):
        raise ShapeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if tuple(a.shape) != tuple(b.shape):
        raise ShapeError(
            f"add: expected 'self' and 'other' to have same size, but self has size "
            f"{list(a.shape)} while other has size {list(b.shape)}"
        )
    if not isinstance(a, Structured):
        return el.add(a, b.to_dense())
    if isinstance(a, CompressedTensor) and isinstance(b, CompressedTensor):
        return a.like(_joined(converted(a, "sparse_coo"), converted(b, "sparse_coo")))
    return _joined(converted(a, "sparse_coo"), converted(b, "sparse_coo"))


def _joined(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    if a.sparse_dim() != b.sparse_dim():
        raise ShapeError(
            f"add: expected 'self' and 'other' to have same number of sparse dimensions, but "
            f"{a.sparse_dim()} and {b.sparse_dim()} given"
        )
    if a._places is b._places or np.array_equal(a._places, b._places):
        out = a.with_values(el.add(a._held, b._held))
        out._unique = a._unique or b._unique
        return out
    kind = np.result_type(a._held.meta()[1], b._held.meta()[1])
    values = [
        t._held if t._held.meta()[1] == kind else el.cast(t._held, dtype=kind) for t in (a, b)
    ]
    out = made(np.concatenate([a._places, b._places], 1), joined(values), a._size, False)
    return out.coalesce() if a._unique and b._unique else out


def sub(a: Any, b: Any) -> Any:
    """``a - b``."""
    if not isinstance(b, Structured):
        raise ShapeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return add(a, b.with_values(el.neg(b._held)))


def mul(a: Any, b: Any) -> Any:
    """``a * b``: sparse, at the places of both."""
    if not isinstance(a, Structured):
        return mul(b, a)
    if is_number(b):
        return a.with_values(el.mul(a._held, b))
    if not isinstance(b, Structured):
        one: Any = a.coalesce() if isinstance(a, SparseTensor) else a
        if isinstance(a, BlockTensor):
            each = a.as_coordinates()
            numbers = reshape(picked(b, each), shape=tuple(a._held.shape))
            return a.with_values(el.mul(a._held, numbers))
        return one.with_values(el.mul(one._held, picked(b, one)))
    if isinstance(a, CompressedTensor):
        return a.like(_common(converted(a, "sparse_coo"), converted(b, "sparse_coo")))
    return _common(converted(a, "sparse_coo"), converted(b, "sparse_coo"))


def _common(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The product of two, which is where both have a place."""
    a, b = a.coalesce(), b.coalesce()
    if a._size != b._size:
        raise ShapeError(
            f"mul: expected 'self' and 'other' to have same sizes, but {list(a._size)} != "
            f"{list(b._size)}"
        )
    if np.array_equal(a._places, b._places):
        return a.with_values(el.mul(a._held, b._held))
    kept, mine, its = np.intersect1d(a.flat(), b.flat(), True, return_indices=True)
    values = (prim.take(t._held, t.index(at), dim=0, skip=None) for t, at in ((a, mine), (b, its)))
    places = unflat(kept.astype(np.int64), a._places_shape())
    return made(places, el.mul(*values), a._size, True)


def picked(dense: Tensor, one: Any) -> Tensor:
    """The numbers of ``dense``, broadcast to the shape of ``one``, at its places."""
    places = np.stack(one.rows_and_columns()) if isinstance(one, CompressedTensor) else one._places
    shape = (1,) * (one.ndim - dense.ndim) + tuple(dense.shape)
    sizes = one._size
    if len(shape) > len(sizes) or any(n not in (1, m) for n, m in zip(shape, sizes, strict=True)):
        raise ShapeError(
            f"mul: shapes {list(dense.shape)} and {list(sizes)} given; the dense one is to "
            "broadcast to the sparse one's"
        )
    lead, rest = shape[: len(places)], shape[len(places) :]
    at = flat(np.where(np.array(lead)[:, None] == 1, 0, places), lead)
    rows = reshape(dense, shape=(int(np.prod(lead)), *rest))
    return prim.take(rows, one.index(at), dim=0, skip=None)


def div(a: Any, b: Any, prim_: Any = el.div) -> Any:
    """``a / b`` for a number ``b``."""
    if not isinstance(a, Structured):
        raise TypeError
    if not is_number(b):
        raise ShapeError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(b.shape)} for divisor)"
        )
    return a.with_values(prim_(a._held, b))
