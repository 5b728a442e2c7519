"""Tensors given by coordinates (COO): each place has a number in every sparse dimension. A place
may be named several times: then its values are added up."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ....core.tensor import Tensor, beside, wrap
from ....core.types.layout import layout, sparse_coo, sparse_csc, sparse_csr
from ....errors import LayoutError, ShapeError
from ...primitives import gathering as prim
from ...primitives.views import cat
from .structured import Structured

_new = object.__new__


class SparseTensor(Structured):
    """Values (count, dense dimensions ...) at places (sparse dimensions, count)."""

    is_sparse = True
    layout: layout = sparse_coo
    _places: np.ndarray
    _unique: bool

    # --- places and values ------------------------------------------------------------------
    def _places_shape(self) -> tuple[int, ...]:
        return self._size[: len(self._places)]

    def places(self) -> tuple[np.ndarray, ...]:
        return (self._places,)

    def flat(self) -> np.ndarray:
        return flat(self._places, self._size)

    def _parts(self) -> tuple[np.ndarray, Any, bool]:
        """Places, the array of the values, and whether each place is named once."""
        return self._places, self._held.detach().array, self._unique

    def coalesce(self) -> SparseTensor:
        """With every place named once, in order; itself where it is known to be so."""
        if self._unique:
            return self
        at = self.flat()
        if not (at[1:] <= at[:-1]).any():
            out = self.with_values(self._held)
            out._unique = True
            return out
        kept, where = np.unique(at, return_inverse=True)
        shape = (kept.size, *self._held.shape[1:])
        index = self.index(where.reshape(-1))
        values = prim.spread(self._held, index, dim=0, shape=shape, skip=None)
        return made(unflat(kept, self._places_shape()), values, self._size, True)

    def is_coalesced(self) -> bool:
        """Whether every place is known to be named once, in order."""
        return self._unique

    def _coalesced_(self, coalesced: bool) -> Self:
        """Say that every place is named once, in order."""
        self._unique = coalesced
        return self

    def indices(self) -> Tensor:
        """The places (sparse dimensions, count) of a coalesced tensor."""
        self._need_unique("indices")
        return self._indices()

    def values(self) -> Tensor:
        """The values (count, ...) of a coalesced tensor, in the graph."""
        self._need_unique("values")
        return self._held

    def _need_unique(self, what: str) -> None:
        if not self.is_coalesced():
            raise ShapeError(
                f"{what}: Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )

    def _indices(self) -> Tensor:
        return beside(self._held, self._places)

    def rows_and_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of a matrix."""
        return self._places[0], self._places[1]

    def _shown(self) -> list[tuple[str, Tensor]]:
        return [("indices", wrap(self._places))]

    def __reduce_ex__(self, protocol: object) -> tuple:
        return _rebuilt, (wrap(self._places), self._held, self._size, self._unique, False)

    # --- other layouts ----------------------------------------------------------------------
    def to_sparse(
        self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
        dense_dim: int | None = None,
    ) -> Any:  # fmt: skip
        if layout is not None and layout != "sparse_coo":
            return self.to_layout(layout)
        if isinstance(sparse_dim, int) and sparse_dim != self.sparse_dim():
            raise ShapeError(
                f"to_sparse: sparse_dim argument {sparse_dim} given; it must be the input's, "
                f"{self.sparse_dim()}"
            )
        return self

    def to_layout(self, wanted: str) -> Any:
        """The same tensor in the layout ``wanted``."""
        raise LayoutError(f"to_sparse: no conversion to layout {wanted}")

    def to_sparse_coo(self) -> SparseTensor:
        return self

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """Rows compressed (a matrix)."""
        return self.to_layout(sparse_csr)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """Columns compressed (a matrix)."""
        return self.to_layout(sparse_csc)

    # --- in place ---------------------------------------------------------------------------
    def _become(self, other: SparseTensor) -> Self:
        leaf, grad = self.requires_grad and self.is_leaf, self._held.grad
        self.__dict__.update(other.__dict__)
        if leaf and not other.requires_grad:  # a parameter that an optimizer writes to
            self._held = self._held.detach().requires_grad_()
            self._held.grad = grad if grad is None or grad.shape == self._held.shape else None
        return self

    def add_(self, other: Any, *, alpha: Any = 1) -> Self:
        if isinstance(other, SparseTensor) and np.array_equal(self._places, other._places):
            self._held.add_(other._held, alpha=alpha)
            return self
        result: Any = self.add(other, alpha=alpha)
        return self._become(self.in_own_type("add_", result))

    def sub_(self, other: Any, *, alpha: Any = 1) -> Self:
        return self.add_(other, alpha=-alpha)

    __iadd__, __isub__ = add_, sub_

    def copy_(self, src: Tensor, non_blocking: bool = False) -> Self:
        """Take on the places and values of ``src``, in the own type."""
        if not isinstance(src, SparseTensor):
            raise ShapeError(
                "copy_() between dense and sparse Tensors is not implemented! Found self type = "
                f"{self.layout} and src type = {src.layout}"
            )
        if src._size != self._size:
            raise ShapeError(f"copy_: shape {list(src._size)} into {list(self._size)}")
        given: Any = src.to(self.dtype)
        return self._become(given.clone())

    def zero_(self) -> Self:
        """Take all places away."""
        return self._become(made(self._places[:, :0], self._held.detach()[:0], self._size, True))

    def resize_as_sparse_(self, other: SparseTensor) -> Self:
        """Take on the shape of ``other``."""
        return self.sparse_resize_(other._size, other.sparse_dim(), other.dense_dim())

    def sparse_resize_(self, size: Any, sparse_dim: int, dense_dim: int) -> Self:
        """Take on a shape that has every place."""
        size = tuple(int(n) for n in size)
        if len(size) != sparse_dim + dense_dim:
            raise ShapeError(
                f"number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}),"
                f" but got {len(size)}"
            )
        if self._nnz() and (sparse_dim, dense_dim) != (self.sparse_dim(), self.dense_dim()):
            raise ShapeError(
                "sparse_resize_: changing the number of sparse or dense dimensions on a non-empty "
                "sparse tensor is not supported"
            )
        if self._nnz() and any(n < m for n, m in zip(size, self._size, strict=True)):
            raise ShapeError(
                "sparse_resize_: shrinking the size of dimensions on a non-empty sparse tensor is "
                "not supported"
            )
        return self._resized(size, sparse_dim)

    def sparse_resize_and_clear_(self, size: Any, sparse_dim: int, dense_dim: int) -> Self:
        """Take on a shape, without any place."""
        self.zero_()
        return self.sparse_resize_(size, sparse_dim, dense_dim)

    def _resized(self, size: tuple[int, ...], sparse_dim: int) -> Self:
        if not self._nnz():
            values = self._held.detach().new_zeros((0, *size[sparse_dim:]))
            return self._become(made(np.zeros((sparse_dim, 0), np.int64), values, size, True))
        self._size = size
        return self


def made(places: np.ndarray, values: Tensor, size: tuple[int, ...], unique: bool) -> SparseTensor:
    """``values`` at ``places``, which fit. ``unique``: each is named once, in order."""
    out = _new(SparseTensor)
    out._places, out._held, out._unique = places, values, unique
    out._size = tuple(size)
    return out


def _rebuilt(at: Tensor, values: Tensor, size: tuple, unique: bool, grad: bool) -> SparseTensor:
    """One that was pickled."""
    out = made(at.array, values, size, unique)
    return out.requires_grad_() if grad else out


def flat(places: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Places (sparse dimensions, count) as numbers of rows."""
    if len(places) == 1:
        return places[0]
    if not places.size:
        return np.zeros(places.shape[1], np.int64)
    return np.ravel_multi_index(tuple(places), size[: len(places)]).astype(np.int64)


def unflat(rows: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The inverse of ``flat``."""
    if len(sizes) == 1:
        return rows[None]
    at = np.unravel_index(rows, sizes) if rows.size else [rows] * len(sizes)
    return np.stack([np.asarray(a, np.int64) for a in at]) if sizes else rows[None][:0]


def joined(values: list[Tensor]) -> Tensor:
    """The values of several, one after the other."""
    return cat(*values, dim=0, sizes=tuple(v.shape[0] for v in values))


def meetings(keys: np.ndarray, wanted: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of a place in ``wanted`` and one in ``keys`` where equal numbers stand (below
    ``n``), in order of the first. Where there are few, ``n`` costs no memory."""
    order = np.argsort(keys, kind="stable")
    if n <= 8 * (len(keys) + len(wanted)):
        ends = np.cumsum(np.bincount(keys, minlength=n))
        counts = np.diff(ends, prepend=0)[wanted]
        starts = ends[wanted] - counts
    else:
        ordered = keys[order]
        starts = np.searchsorted(ordered, wanted, "left")
        counts = np.searchsorted(ordered, wanted, "right") - starts
    which = np.repeat(np.arange(len(wanted)), counts)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, order[starts[which] + nth]
