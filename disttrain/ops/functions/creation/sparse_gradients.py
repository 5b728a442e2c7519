"""Gradients of tables of which a step touches few rows: sparse tensors that backward adds to.

For every operation such a tensor is the dense one, which is computed when it is first asked for;
no operation but those here gives a sparse result. Sparse tensors that programs make, and compute
with, are others (``functions/sparse``).

On a device the values lie there; the places lie on the host, which knows how many there are.
"""

from __future__ import annotations

import math
from typing import Any, Self, TypeAlias

import numpy as np

from ....backends.device.array import DeviceArray
from ....context import SLOW, thread
from ....core.annotations import Format, Number, Operand
from ....core.tensor import Size, Tensor, wrap
from ....core.types import dtypes
from ....core.types.layout import sparse_coo
from ....core.writes import touched
from ....errors import ShapeError
from ...primitives import elementwise as el
from ...primitives import gathering as prim
from ...primitives import views
from ...primitives.reduce import any_
from ..sparse.coo import SparseTensor, made

_new = object.__new__
Values: TypeAlias = np.ndarray | DeviceArray


class SparseGradient(Tensor):
    """Values (count, dense dimensions ...) at places (sparse dimensions, count); a place that is
    named several times has their sum. Made by backward, and of a sparse tensor that is
    assigned to ``.grad``."""

    is_sparse = True
    layout = sparse_coo
    _places: np.ndarray
    _numbers: Values | None  # None: they are those of the dense array, which may have changed
    _dense: Values | None
    _size: tuple[int, ...]
    _unique: bool
    _list: tuple | None = None  # places and values as they were given, and the version they are of
    _seen = 0  # the version of the dense array that has no values but at the places

    @property
    def array(self) -> Any:
        if self._dense is None:
            if not self._unique:
                self._list = (self._places, self._given(), self._version)
            self._sum()
            places, numbers = self._places, self._numbers
            assert numbers is not None
            if isinstance(numbers, DeviceArray):
                dense = _added(numbers, _flat(places, self._size), self._size, len(places))
            else:
                dense = np.zeros(self._size, numbers.dtype)
                dense[tuple(places)] = numbers
            self._numbers, self._dense, self._seen = None, dense, self._version
        return self._dense

    @property
    def shape(self) -> Size:
        return Size(self._size)

    @property
    def ndim(self) -> int:
        return len(self._size)

    @property
    def dtype(self) -> dtypes.dtype:
        return dtypes.of(self.meta()[1])

    def meta(self) -> tuple[tuple[int, ...], np.dtype]:
        held = self._numbers if self._dense is None else self._dense
        assert held is not None
        return self._size, held.dtype

    def __deepcopy__(self, memo: dict) -> SparseGradient:
        places, numbers, unique = self._parts()
        out = memo[id(self)] = self._again(self._like(places.copy(), numbers.copy(), unique))
        return out

    def _given(self) -> Values:
        """The values at ``_places``."""
        if self._numbers is not None:
            return self._numbers
        assert self._dense is not None
        return _picked(self._dense, self._places)

    def _parts(self) -> tuple[np.ndarray, Values, bool]:
        """Places, their values, and whether each place is named once: as they were given, also
        when the dense array is there, which nobody has written to."""
        if self._list is not None and self._list[2] == self._version:
            return *self._list[:2], False
        self._widen()
        return self._places, self._given(), self._unique

    def _widen(self) -> None:
        """Name all places that the dense array, to which others may have written, has values at."""
        if self._dense is None or self._version == self._seen:
            return
        count, self._seen = self._places.shape[0], self._version
        marks = _filled(wrap(self._dense), count)
        marks[tuple(self._places)] = True
        if marks.sum() > self._places.shape[1]:
            self._places = np.stack(np.nonzero(marks)).astype(np.int64)

    def _hold(self, places: np.ndarray, numbers: Values, unique: bool) -> Self:
        """Be these ones from now on."""
        self._places, self._numbers, self._unique = places, numbers, unique
        self._dense = self._list = None
        touched(self)
        return self

    def listed_before(self) -> list[tuple[np.ndarray, Any]]:
        """Rows of a matrix with their values, as they were before the dense array was asked for
        (to which something was added since); without values where that is not known."""
        if self._list is not None:
            return [(self._list[0][0], self._list[1])]
        return [(self._places[0], None)] if self._places.size else []

    def _summed(self) -> tuple[np.ndarray, Values]:
        """Places that differ, in order, and their values."""
        self._widen()
        places, numbers = self._places, self._given()
        if self._unique:
            return places, numbers
        shape = self._size[: places.shape[0]]
        flat = np.ravel_multi_index(tuple(places), shape) if places.size else places.reshape(-1)
        kept, where = np.unique(flat, return_inverse=True)
        of = kept.size, *numbers.shape[1:]
        if isinstance(numbers, DeviceArray):
            total = _added(numbers, where.reshape(-1), of, 1)
        else:
            total = np.zeros(of, numbers.dtype)
            np.add.at(total, where.reshape(-1), numbers)
        at = np.unravel_index(kept, shape) if kept.size else [kept] * len(shape)
        return np.stack([np.asarray(a, np.int64) for a in at]), total

    def _sum(self) -> None:
        """Name every place once, in order."""
        self._places, self._numbers = self._summed()
        self._unique = True

    def coalesce(self) -> SparseGradient:
        """With every place named once, in order: a copy, or itself where it is so already. (One
        that gradients go to is made so and returned, which changes no number.)"""
        if not self._unique and self.requires_grad:
            self._sum()
        if self.is_coalesced():
            return self
        return _sparse(*self._summed(), self._size, unique=True)

    def is_coalesced(self) -> bool:
        return self._parts()[2]

    def indices(self) -> Tensor:
        """The places (sparse dimensions, count) of a coalesced tensor."""
        self._need_unique("indices")
        return self._indices()

    def values(self) -> Tensor:
        """The values (count, ...) of a coalesced tensor."""
        self._need_unique("values")
        return self._values()

    def _need_unique(self, what: str) -> None:
        if not self.is_coalesced():
            raise ShapeError(
                f"{what}: Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )

    def _indices(self) -> Tensor:
        held = self._numbers if self._dense is None else self._dense
        places = self._parts()[0]
        return wrap(held.beside(places) if isinstance(held, DeviceArray) else places)

    def _values(self) -> Tensor:
        places, numbers, unique = self._parts()
        if self._dense is not None and self._node is None:  # what is written there, is seen here
            self._places, self._numbers, self._unique = places, numbers, unique
            self._dense = self._list = None
        return wrap(numbers)

    def _nnz(self) -> int:
        return self._parts()[0].shape[1]

    def sparse_dim(self) -> int:
        return self._places.shape[0]

    def dense_dim(self) -> int:
        return self.ndim - self._places.shape[0]

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The dense tensor, in memory of its own."""
        return Tensor.clone(self)

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
        dense_dim: int | None = None,
    ) -> Any:  # fmt: skip
        return self if layout in (None, "sparse_coo") else self._made().to_sparse(layout=layout)

    def _made(self) -> SparseTensor:
        """A sparse tensor of its own with these places and values."""
        places, numbers, unique = self._parts()
        return made(places, wrap(numbers).clone(), self._size, unique)

    def clone(self, *, memory_format: Format | None = None) -> Tensor:
        """A copy that is sparse; a dense one where gradients go through it."""
        if self.requires_grad and thread.grad_enabled:
            return Tensor.clone(self)
        places, numbers, unique = self._parts()
        return _sparse(places.copy(), numbers.copy(), self._size, unique)

    def detach(self) -> SparseGradient:
        return self._parted() if self.requires_grad else self

    def _parted(self) -> SparseGradient:
        return self._like(*self._parts())

    def __copy__(self) -> SparseGradient:
        return self._again(self._parted())

    def _again(self, out: SparseGradient) -> SparseGradient:
        """A copy, as a leaf."""
        return out.requires_grad_() if self.requires_grad else out

    def __reduce_ex__(self, protocol: object) -> tuple:
        places, numbers, unique = self._parts()
        return _rebuilt, (wrap(places), wrap(numbers), self._size, unique, self.requires_grad)

    @property
    def data(self) -> SparseGradient:
        """Another one with the same values, without a graph."""
        return self._parted()

    @data.setter
    def data(self, value: Tensor) -> None:
        given = value if isinstance(value, SparseGradient) else of_dense(value, self.sparse_dim())
        self._size = given._size
        self._hold(*given._parts())

    # --- what gives sparse ones, where no gradients go through it -----------------------------
    def _simple(self, *others: Operand) -> bool:
        """Whether an operation on it and ``others`` is neither recorded nor transformed."""
        wanted = (self, *(t for t in others if isinstance(t, Tensor)))
        recorded = thread.grad_enabled and any(t.requires_grad for t in wanted)
        return thread.mode != SLOW and not recorded

    def _scaled(self, name: str, other: Operand) -> tuple | None:
        """Its parts, with the method ``name`` of values applied; None where ``other`` is more than
        a number."""
        one = isinstance(other, Tensor) and not (other.ndim or other.is_sparse)
        if not (one or isinstance(other, (int, float, complex))) or not self._simple(other):
            return None
        places, numbers, unique = self._parts()
        return places, getattr(wrap(numbers), name)(other).array, unique

    def _joined(self, other: Operand, alpha: Number) -> tuple | None:
        """The parts of it and ``alpha`` times another sparse one of its kind; None of others."""
        if not isinstance(other, SparseGradient) or not self._simple(other, alpha):
            return None
        (places, numbers, unique), (more, given, distinct) = self._parts(), other._parts()
        if other._size != self._size or len(more) != len(places) or other.dtype != self.dtype:
            return None
        added = wrap(given) if alpha == 1 else wrap(given) * alpha
        counts = places.shape[1], more.shape[1]
        values = views.cat(wrap(numbers), added, dim=0, sizes=counts).array
        at = np.concatenate([places, more], 1)
        if not (unique and distinct):
            return at, values, False
        return *_sparse(at, values, self._size, False)._summed(), True

    def mul(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        parts = self._scaled("mul", other) if out is None else None
        return Tensor.mul(self, other, out=out) if parts is None else self._like(*parts)

    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
        if rounding_mode is None and (parts := self._scaled("div", other)) is not None:
            return self._like(*parts)
        return Tensor.div(self, other, rounding_mode=rounding_mode)

    def add(self, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        parts = self._joined(other, alpha) if out is None else None
        return self._like(*parts) if parts else Tensor.add(self, other, alpha=alpha, out=out)

    def sub(self, other: Operand, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
        return self.add(other, alpha=-alpha, out=out)

    def neg(self, *, out: Tensor | None = None) -> Tensor:
        return self.mul(-1, out=out)

    def _like(self, places: np.ndarray, numbers: Values, unique: bool) -> SparseGradient:
        return _sparse(places, numbers, self._size, unique)

    __mul__ = __rmul__ = mul
    __truediv__, __add__, __sub__ = div, add, sub
    __neg__ = neg

    def mul_(self, other: Operand) -> Self:
        """Multiply by ``other``, in place; by a number, only the values that are given."""
        return self._rescaled("mul_", other)

    def div_(self, other: Operand, *, rounding_mode: str | None = None) -> Self:
        if rounding_mode is not None:
            return Tensor.div_(self, other, rounding_mode=rounding_mode)
        return self._rescaled("div_", other)

    def _rescaled(self, name: str, other: Operand) -> Self:
        if self._numbers is None or self._scaled(name, other) is None:  # (which has written)
            return getattr(Tensor, name)(self, other)
        touched(self)
        return self

    def add_(self, other: Operand, *, alpha: Number = 1) -> Self:
        parts = self._joined(other, alpha)
        return Tensor.add_(self, other, alpha=alpha) if parts is None else self._hold(*parts)

    def sub_(self, other: Operand, *, alpha: Number = 1) -> Self:
        return self.add_(other, alpha=-alpha)

    def copy_(self, src: Tensor, non_blocking: bool = False) -> Self:
        """Take on the places and values of ``src``."""
        if not (isinstance(src, SparseGradient) and self._simple(src) and src._size == self._size):
            return Tensor.copy_(self, src, non_blocking)
        values: Any = src._values()
        places, _, unique = src._parts()
        return self._hold(places.copy(), values.to(self.dtype, copy=True).array, unique)

    __imul__, __itruediv__, __iadd__, __isub__ = mul_, div_, add_, sub_

    def zero_(self) -> Self:
        """Take all places away."""
        self._numbers, self._dense = self._given()[:0], None
        self._places, self._unique, self._list = self._places[:, :0], True, None
        touched(self)
        return self

    @property
    def device(self) -> Any:
        return wrap(self._numbers if self._dense is None else self._dense).device


def _flat(places: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Places (sparse dimensions, count) as numbers of rows."""
    if not places.size:
        return np.zeros(places.shape[1], np.int64)
    return np.ravel_multi_index(tuple(places), size[: len(places)]).astype(np.int64)


def _added(numbers: DeviceArray, at: np.ndarray, size: tuple[int, ...], dims: int) -> Any:
    """Zeros of ``size`` on a device, with ``numbers`` added at rows ``at`` of its first dimensions,
    in a fixed order."""
    shape = (math.prod(size[:dims]), *size[dims:])
    out = prim.spread(wrap(numbers), wrap(numbers.beside(at)), dim=0, shape=shape, skip=None)
    return views.reshape(out, shape=tuple(size)).array


def _picked(dense: DeviceArray | np.ndarray, places: np.ndarray) -> Any:
    """The values of ``dense`` at ``places``."""
    if not isinstance(dense, DeviceArray):
        return dense[tuple(places)]
    size, dims = dense.shape, len(places)
    rows = views.reshape(wrap(dense), shape=(math.prod(size[:dims]), *size[dims:]))
    return prim.take(rows, wrap(dense.beside(_flat(places, size))), dim=0, skip=None).array


def _sparse(places: np.ndarray, numbers: Values, size: tuple, unique: bool) -> SparseGradient:
    out = _new(SparseGradient)
    out._places, out._numbers, out._dense = places, numbers, None
    out._size, out._unique = tuple(size), unique
    return out


def _rebuilt(at: Tensor, numbers: Tensor, size: tuple, unique: bool, grad: bool) -> SparseGradient:
    """One that was pickled."""
    out = _sparse(at.array, numbers.array, size, unique)
    return out.requires_grad_() if grad else out


def with_places(dense: Tensor, places: np.ndarray) -> SparseGradient:
    """``dense``, of which only ``places`` (in order, each once) are taken to differ from zero: the
    same memory and the same place in the graph."""
    out = _new(SparseGradient)
    out._places, out._numbers, out._dense = places, None, dense.array
    out._size, out._unique = tuple(dense.array.shape), True
    if dense._node is not None:
        out._node = dense._node
    return out


def _filled(dense: Tensor, count: int) -> np.ndarray:
    """Where, in its first ``count`` dimensions, ``dense`` is not zero."""
    filled = el.ne(dense, 0)  # of a device, only the marks come to the host
    size = dense.shape
    rows = views.reshape(filled, shape=(*size[:count], math.prod(size[count:])))
    return _hosted(any_(rows, dims=(count,), keepdim=False))


def _hosted(value: Tensor | list | np.ndarray) -> np.ndarray:
    """Places, on the host."""
    array = _array(value)
    return array.to_host() if isinstance(array, DeviceArray) else array


def _array(value: object) -> Values:
    return value.detach().array if isinstance(value, Tensor) else np.asarray(value)


def at_rows(dense: Any, rows: np.ndarray) -> SparseGradient:
    """A matrix of which only ``rows`` (in order, each once) are taken to differ from zero."""
    places, array = rows[None].astype(np.int64), dense.array
    return _sparse(places, _picked(array, places), array.shape, unique=True)


def of_rows(rows: np.ndarray, values: np.ndarray, size: tuple[int, ...]) -> SparseGradient:
    """A matrix with ``values`` at ``rows``, which may be named several times."""
    return _sparse(rows[None].astype(np.int64), values, size, unique=len(rows) < 2)


def of_dense(dense: Tensor, count: int) -> SparseGradient:
    """The places of ``dense`` that are not zero, of its first ``count`` dimensions."""
    places = np.stack(np.nonzero(_filled(dense.detach(), count))).astype(np.int64)
    return _sparse(places, _picked(dense.detach().array, places), tuple(dense.shape), unique=True)


def of_sparse(given: SparseTensor) -> SparseGradient:
    """The places and values of ``given``, as a gradient that backward may add to."""
    places, values, unique = given._parts()
    return _sparse(places, values, given._size, unique)
