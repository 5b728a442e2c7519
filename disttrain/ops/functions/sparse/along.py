"""What goes along dimensions of sparse tensors: sums, softmax, other orders, parts of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....errors import DimError, LayoutError, ShapeError
from ...primitives import elementwise as el
from ...primitives import gathering as prim
from ...primitives.reduce import sum_
from ...primitives.views import getitem, permute, reshape
from .blocks import BlockTensor
from .compressed import CompressedTensor, converted
from .coo import SparseTensor, flat, joined, made, meetings


def total(x: Any, dims: tuple, keepdim: bool) -> Any:
    """The sum over ``dims``: dense where no sparse dimension is left, else sparse."""
    dims = tuple(sorted(d % x.ndim for d in dims))
    if len(dims) == x.ndim and not keepdim:
        return sum_(x._held, dims=tuple(range(x._held.ndim)), keepdim=False)
    if isinstance(x, CompressedTensor):
        if not keepdim:
            raise ShapeError(
                "reduction operations on CSR tensors with keepdim=False is unsupported"
            )
        return x.like(total(converted(x, "sparse_coo"), dims, True))
    k = x.sparse_dim()
    inside = tuple(d - k + 1 for d in dims if d >= k)
    values = sum_(x._held, dims=inside, keepdim=keepdim) if inside else x._held
    sums = [d for d in dims if d < k]
    rest = tuple(values.shape[1:])
    if len(sums) == k and not keepdim:
        return sum_(values, dims=(0,), keepdim=False)
    places = x._places.copy()
    if keepdim:
        places[sums] = 0
        size = tuple(1 if d in sums else n for d, n in enumerate(x._size[:k]))
    else:
        left = [d for d in range(k) if d not in sums]
        places, size = places[left], tuple(x._size[d] for d in left)
    out = made(places, values, (*size, *rest), x._unique and not sums)
    return out.coalesce() if sums else out


def turned(x: Any, dims: tuple) -> Any:
    """The dimensions in another order, sparse ones and dense ones each among themselves."""
    dims = tuple(d % x.ndim for d in dims)
    if dims == tuple(range(x.ndim)):
        return x.with_values(x._held)
    if isinstance(x, BlockTensor):
        lead = x._batch
        if dims != (*range(lead), lead + 1, lead, *range(lead + 2, x.ndim)):
            raise ShapeError(
                f"transpose(): can only transpose dimensions of the same type (Batch, Sparse, "
                f"Dense), got dims {list(dims)}"
            )
        return x.turned()
    if isinstance(x, CompressedTensor):
        if dims[:2] != (1, 0) or x.dense_dim():
            raise LayoutError(f"permute: dims {list(dims)} of a compressed tensor")
        return x.turned()
    k = x.sparse_dim()
    if any((d < k) != (i < k) for i, d in enumerate(dims)):
        raise ShapeError(
            f"permute: dims {list(dims)} given for a tensor with {k} sparse dimensions: they "
            "cannot change places with dense ones"
        )
    values = (
        permute(x._held, dims=(0, *(d - k + 1 for d in dims[k:]))) if x.dense_dim() else x._held
    )
    order = list(dims[:k])
    unique = x._unique and order == list(range(k))
    return made(x._places[order], values, tuple(x._size[d] for d in dims), unique)


def reshaped(x: Any, shape: tuple) -> Any:
    """With dimensions of size 1 more or less; other shapes have no meaning for places."""
    k, dense = x.sparse_dim(), x.dense_dim()
    least = min(dense, len(shape) - k)  # dense ones stay dense, if there are enough
    for j in range(len(shape) - max(least, 0), 0, -1) if isinstance(x, SparseTensor) else ():
        rows = _rows_of(x, shape[:j])
        if rows and _without_ones(shape[j:]) == _without_ones(x._size[k:]):
            held = reshape(x._held, shape=(x._nnz(), *shape[j:])) if dense else x._held
            return made(np.stack(rows), held, tuple(shape), x._unique)
    raise ShapeError("reshape is not implemented for sparse tensors")


def _without_ones(sizes: tuple) -> list:
    return [n for n in sizes if n != 1]


def _rows_of(x: Any, shape: tuple) -> list | None:
    """The places where the sparse dimensions are ``shape``: those of size 1 come and go."""
    if _without_ones(shape) != _without_ones(x._size[: x.sparse_dim()]):
        return None
    kept = iter([p for n, p in zip(x._size, x._places, strict=False) if n != 1])
    return [np.zeros(x._nnz(), np.int64) if n == 1 else next(kept) for n in shape]


def chosen(x: Any, index: Any, dim: int) -> Any:
    """The parts number ``index`` (a vector) along ``dim``."""
    x = converted(x, "sparse_coo")
    k, at = x.sparse_dim(), index.detach().array
    wanted = np.asarray(at if isinstance(at, np.ndarray) else at.to_host()).astype(np.int64)
    if wanted.ndim != 1:
        raise LayoutError("take: a sparse tensor takes a vector of numbers (index_select)")
    n = x._size[dim]
    if wanted.size and (wanted.min() < 0 or wanted.max() >= n):
        raise DimError(f"index_select: an index lies outside of dimension {dim} of size {n}")
    if dim >= k:
        return x.with_values(prim.take(x._held, index, dim=dim - k + 1, skip=None))
    x = x.coalesce()
    which, found = meetings(x._places[dim], wanted, n)
    places = x._places[:, found].copy()
    places[dim] = which
    size = (*x._size[:dim], len(wanted), *x._size[dim + 1 :])
    values = prim.take(x._held, x.index(found), dim=0, skip=None)
    rows = flat(places, size)
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        places = places[:, order]
        values = prim.take(values, x.index(order), dim=0, skip=None)
    return made(places, values, size, True)


def part(x: Any, index: tuple) -> Any:
    """``x[...]`` by numbers, slices and None."""
    if isinstance(x, BlockTensor) and len(index) <= x._batch and all(_whole(i) for i in index):
        return x.chosen(index)
    x = converted(x, "sparse_coo").coalesce()
    k = x.sparse_dim()
    given = [i for i in index if i is not None]
    if Ellipsis in given:
        at = given.index(Ellipsis)
        given[at : at + 1] = [slice(None)] * (x.ndim - len(given) + 1)
    given += [slice(None)] * (x.ndim - len(given))
    if None in index or not all(isinstance(i, (int, slice)) for i in given):
        raise LayoutError("x[...]: a sparse tensor takes numbers and slices")
    keep, rows, size = np.ones(x._nnz(), bool), [], []
    for n, i, places in zip(x._size, given, x._places, strict=False):
        if isinstance(i, int):
            keep &= places == i % n
            continue
        start, stop, step = i.indices(n)
        keep &= (places >= start) & (places < stop) & ((places - start) % step == 0)
        rows.append((places - start) // step)
        size.append(len(range(start, stop, step)))
    values = prim.take(x._held, x.index(np.flatnonzero(keep)), dim=0, skip=None)
    if any(i != slice(None) for i in given[k:]):
        values = getitem(values, index=(slice(None), *given[k:]))
    if not rows:  # a dense part: of one place, or of none
        return sum_(values, dims=(0,), keepdim=False)
    return made(np.stack(rows)[:, keep], values, (*size, *values.shape[1:]), True)


def _whole(i: object) -> bool:
    return isinstance(i, (int, np.integer)) and not isinstance(i, bool)


def together(tensors: tuple, dim: int) -> Any:
    """Sparse tensors one behind the other along ``dim``."""
    if not all(isinstance(t, SparseTensor) for t in tensors):
        raise ShapeError(
            "cat: Concatenating sparse tensors, but a dense one was found among them: make all "
            "sparse (to_sparse()), or all dense (to_dense())"
        )
    first = tensors[0]
    if dim >= first.sparse_dim():
        raise LayoutError(f"cat: dimension {dim} of sparse tensors is a dense one")
    places, before = [], 0
    for t in tensors:
        own = t._places.copy()
        own[dim] += before
        places.append(own)
        before += t._size[dim]
    size = (*first._size[:dim], before, *first._size[dim + 1 :])
    return made(np.concatenate(places, 1), joined([t._held for t in tensors]), size, False)


def _groups(x: SparseTensor, dim: int) -> tuple[Tensor, int, np.ndarray]:
    """For each value the number of its line along ``dim``, and how many lines have values."""
    others = [d for d in range(x.sparse_dim()) if d != dim]
    if not others:
        rows = np.zeros(x._nnz(), np.int64)
    else:
        rows = flat(x._places[others], tuple(x._size[d] for d in others))
    kept, which = np.unique(rows, return_inverse=True)
    which = which.reshape(-1).astype(np.int64)
    return x.index(which), kept.size, which


def softmax(x: Any, dim: int, log: bool) -> Any:
    """Softmax over the values that stand along ``dim``; places that are not there count as
    -infinity."""
    x = converted(x, "sparse_coo").coalesce()
    if dim >= x.sparse_dim():
        values = x._held
        inner = dim - x.sparse_dim() + 1
        out = values.log_softmax(inner) if log else values.softmax(inner)
        return x.with_values(out)
    index, lines, which = _groups(x, dim)
    values = x._held
    shape = (lines, *values.shape[1:])
    top = x.index(np.zeros(1)).new_zeros(shape, dtype=values.dtype)
    raw: Any = values.detach()
    if lines:
        top = _largest(raw, which, lines)
    moved = el.sub(values, prim.take(top, index, dim=0, skip=None))
    exps = el.exp(moved)
    sums = prim.spread(exps, index, dim=0, shape=shape, skip=None)
    if log:
        return x.with_values(el.sub(moved, prim.take(el.log(sums), index, dim=0, skip=None)))
    return x.with_values(el.div(exps, prim.take(sums, index, dim=0, skip=None)))


def _largest(values: Any, which: np.ndarray, lines: int) -> Tensor:
    """The largest value of every line."""
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(lines))
    host = values.cpu().array[order]
    kind = host.dtype if host.dtype.kind == "f" else np.dtype(np.float32)
    top = np.maximum.reduceat(host.astype(kind), starts, axis=0)
    return values.new_tensor(top.astype(host.dtype)) if lines else values
