"""Matrices whose rows (CSR) or columns (CSC) are compressed: where each begins, and the other
number of every place."""

from __future__ import annotations

from typing import Any, NoReturn, Self

import numpy as np

from ....core.tensor import Tensor, beside, wrap
from ....core.types.layout import layout, sparse_coo, sparse_csc, sparse_csr
from ....errors import LayoutError, ShapeError
from ...primitives import gathering as prim
from .coo import SparseTensor, made
from .structured import Structured

_new = object.__new__
_BY_ROWS = ("sparse_csr", "sparse_bsr")


class CompressedTensor(Structured):
    """``starts`` (rows + 1), ``others`` (count) and values (count, dense dimensions ...)."""

    layout: layout = sparse_csr
    _starts: np.ndarray
    _others: np.ndarray
    _expanded: np.ndarray | None = None
    derived = ("_expanded",)

    @property
    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        return self.layout == "sparse_csr"

    # --- places and values ------------------------------------------------------------------
    def _places_shape(self) -> tuple[int, ...]:
        return self._size[:2]

    def places(self) -> tuple[np.ndarray, ...]:
        return self._starts, self._others

    def rows_and_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of the matrix."""
        if self._expanded is None:
            counts = np.diff(self._starts)
            self._expanded = np.repeat(np.arange(len(counts)), counts)
        others = self._others.astype(np.int64, copy=False)
        pair = self._expanded, others
        return pair if self.layout == "sparse_csr" else (others, self._expanded)

    def flat(self) -> np.ndarray:
        rows, columns = self.rows_and_columns()
        return rows * self._size[1] + columns

    def values(self) -> Tensor:
        """The values (count, ...), in the graph."""
        return self._held

    def _part(self, name: str, by_rows: bool, array: np.ndarray) -> Tensor:
        if (self.layout in _BY_ROWS) != by_rows:
            line = "row" if by_rows else "column"
            raise ShapeError(
                f"{name} expected sparse {line} compressed tensor layout but got {named(self)}"
            )
        return beside(self._held, array)

    def crow_indices(self) -> Tensor:
        """Where each row begins (rows + 1)."""
        return self._part("crow_indices", True, self._starts)

    def col_indices(self) -> Tensor:
        """The column of every value."""
        return self._part("col_indices", True, self._others)

    def ccol_indices(self) -> Tensor:
        """Where each column begins (columns + 1)."""
        return self._part("ccol_indices", False, self._starts)

    def row_indices(self) -> Tensor:
        """The row of every value."""
        return self._part("row_indices", False, self._others)

    def _not_coo(self, what: str) -> NoReturn:
        raise ShapeError(f"{what} expected sparse coordinate tensor layout but got {named(self)}")

    def indices(self) -> Tensor:
        self._not_coo("indices")

    _indices = indices

    def coalesce(self) -> Any:
        self._not_coo("coalesce")

    def is_coalesced(self) -> bool:
        self._not_coo("is_coalesced")

    def _shown(self) -> list[tuple[str, Tensor]]:
        names = ("crow", "col") if self.layout in _BY_ROWS else ("ccol", "row")
        arrays = self._starts, self._others
        return [(f"{n}_indices", wrap(a)) for n, a in zip(names, arrays, strict=True)]

    def __reduce_ex__(self, protocol: object) -> tuple:
        arrays = wrap(self._starts), wrap(self._others)
        return _rebuilt, (str.__str__(self.layout), *arrays, self._held, self._size)

    # --- other layouts ----------------------------------------------------------------------
    def to_sparse(
        self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
        dense_dim: int | None = None,
    ) -> Any:  # fmt: skip
        return converted(self, sparse_coo if layout is None else layout)

    def to_sparse_coo(self) -> SparseTensor:
        """Places by both numbers."""
        out: SparseTensor = converted(self, sparse_coo)
        return out

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """Rows compressed."""
        return converted(self, sparse_csr)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """Columns compressed."""
        return converted(self, sparse_csc)

    def _converted(self, wanted: Any, blocksize: Any = None) -> Any:
        return converted(self, wanted)

    def like(self, coo: SparseTensor) -> Any:
        """``coo`` in this layout."""
        return converted(coo, self.layout)

    def as_coordinates(self) -> SparseTensor:
        """The same by both numbers of each place."""
        return self.to_sparse_coo()

    def turned(self) -> Self:
        """The transpose, over the same values: of compressed rows, compressed columns."""
        out = self.with_values(self._held)
        out.layout = sparse_csc if self.layout == "sparse_csr" else sparse_csr
        first, second, *rest = self._size
        out._size = (second, first, *rest)
        return out

    def copy_(self, src: Tensor, non_blocking: bool = False) -> Self:
        """Take on the values of ``src``, which has the same places."""
        if not isinstance(src, CompressedTensor) or src._nnz() != self._nnz():
            raise ShapeError("copy_: only a tensor of the same layout and number of values fits")
        self._starts, self._others, self._expanded = src._starts, src._others, src._expanded
        self._held.copy_(src._held)
        return self

    def zero_(self) -> Self:
        """Set every value to 0."""
        self._held.zero_()
        return self


def named(t: Tensor) -> str:
    """The layout of a tensor as PyTorch's messages say it."""
    return "".join(w.capitalize() for w in str.__str__(t.layout).split("_"))


def compressed(
    layout: layout, starts: np.ndarray, others: np.ndarray, values: Tensor, size: tuple[int, ...]
) -> CompressedTensor:
    """One of these parts, which fit."""
    out = _new(CompressedTensor)
    out.layout, out._starts, out._others, out._held = layout, starts, others, values
    out._size = tuple(size)
    return out


def _rebuilt(
    layout: str, starts: Tensor, others: Tensor, values: Tensor, size: tuple
) -> CompressedTensor:
    """One that was pickled."""
    return compressed(LAYOUTS[layout], starts.array, others.array, values, size)


LAYOUTS = {"sparse_csr": sparse_csr, "sparse_csc": sparse_csc}


def converted(t: Any, wanted: str) -> Any:
    """``t`` in the layout ``wanted``: sparse_coo, sparse_csr or sparse_csc."""
    if t.layout == wanted:
        return t
    if isinstance(t, CompressedTensor) and type(t) is not CompressedTensor:
        return t._converted(wanted)
    if wanted == "sparse_coo":
        rows, columns = t.rows_and_columns()
        if t.layout == "sparse_csr":
            return made(np.stack([rows, columns]), t._held, t._size, True)
        order = np.lexsort((columns, rows))
        values = prim.take(t._held, t.index(order), dim=0, skip=None)
        return made(np.stack([rows[order], columns[order]]), values, t._size, True)
    if wanted not in LAYOUTS:
        raise LayoutError(f"to_sparse: no conversion from layout {t.layout!r} to {wanted!r}")
    one = t.coalesce() if isinstance(t, SparseTensor) else t
    if one.sparse_dim() != 2:
        raise ShapeError(
            f"to_{str.__str__(wanted)}: expected a tensor with 2 sparse dimensions, but got "
            f"{one.sparse_dim()}"
        )
    return _compress(one, wanted)


def _compress(one: Any, wanted: str) -> CompressedTensor:
    rows, columns = one.rows_and_columns()
    main, other = (rows, columns) if wanted == "sparse_csr" else (columns, rows)
    values, lines = one._held, one._size[0 if wanted == "sparse_csr" else 1]
    if (main[1:] < main[:-1]).any():
        order = np.lexsort((other, main))
        main, other = main[order], other[order]
        values = prim.take(values, one.index(order), dim=0, skip=None)
    starts = np.zeros(lines + 1, np.int64)
    np.cumsum(np.bincount(main, minlength=lines), out=starts[1:])
    return compressed(LAYOUTS[wanted], starts, other, values, one._size)


setattr(SparseTensor, "to_layout", converted)  # noqa: B010  (which stands below)
