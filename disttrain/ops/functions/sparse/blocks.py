"""Matrices of which whole blocks are kept (BSR: rows of blocks are compressed, BSC: columns), and
batches of compressed matrices, each with as many values as the others.

What is not done block by block is composed by way of coordinates, one for every number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn, Self

import numpy as np

from ....core.tensor import Tensor, beside
from ....core.types.layout import layout, sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from ....errors import LayoutError, ShapeError
from ...primitives import gathering as prim
from ...primitives.views import getitem, permute, reshape
from .compressed import CompressedTensor, compressed, named
from .coo import SparseTensor, made, unflat

_new = object.__new__
_LAYOUTS = {str.__str__(k): k for k in (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)}
_TURNED = {"sparse_csr": sparse_csc, "sparse_csc": sparse_csr, "sparse_bsr": sparse_bsc,
           "sparse_bsc": sparse_bsr}  # fmt: skip
ROWS = ("sparse_csr", "sparse_bsr")
BLOCKS = ("sparse_bsr", "sparse_bsc")


class BlockTensor(CompressedTensor):
    """``starts`` (batch ..., lines + 1), ``others`` (batch ..., count) and values (batch ...,
    count, block's rows and columns, dense dimensions ...). ``_block``: (1, 1) in layouts whose
    values are numbers."""

    _block: tuple[int, int]

    @property
    def _batch(self) -> int:
        return self._starts.ndim - 1

    @property
    def _inner(self) -> int:
        """How many dimensions of the values are a block's."""
        return 2 if self.layout in BLOCKS else 0

    # --- places and values ------------------------------------------------------------------
    def _places_shape(self) -> tuple[int, ...]:
        return self._size[: self._batch + 2]

    def dense_dim(self) -> int:
        return self._held.ndim - self._batch - 1 - self._inner

    def sparse_dim(self) -> int:
        return 2

    def _nnz(self) -> int:
        return self._others.shape[-1]

    def with_values(self, values: Tensor) -> Self:
        out = _new(self._plain_class())
        out.__dict__.update(self.__dict__)
        rest = tuple(values.shape[self._batch + 1 + self._inner :])
        out._held, out._size = values, self._places_shape() + rest
        return out

    def rows_and_columns(self) -> NoReturn:
        raise LayoutError(f"this operation is not defined for {named(self)}; use to_sparse() first")

    def _batches(self) -> tuple[int, np.ndarray, np.ndarray]:
        """How many matrices there are, and the parts of each."""
        count = math.prod(self._size[: self._batch])
        return (
            count, self._starts.reshape(count, self._starts.shape[-1]),
            self._others.reshape(count, self._nnz()).astype(np.int64, copy=False),
        )  # fmt: skip

    def _blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The matrix, the row and the column of every block."""
        count, starts, others = self._batches()
        lines = np.arange(starts.shape[1] - 1)
        main = np.concatenate([np.repeat(lines, np.diff(s)) for s in starts] or [lines[:0]])
        other, which = others.reshape(-1), np.repeat(np.arange(count), self._nnz())
        pair = (main, other) if self.layout in ROWS else (other, main)
        return which, *pair

    def as_coordinates(self) -> SparseTensor:
        """Every number of every block with its coordinates, block by block."""
        which, rows, columns = self._blocks()
        (high, wide), count = self._block, len(rows)
        i, j = np.divmod(np.arange(high * wide), wide)
        lead, which = self._size[: self._batch], np.repeat(which, high * wide)
        places = [
            *(unflat(which, lead) if lead else ()),
            (rows[:, None] * high + i).reshape(-1), (columns[:, None] * wide + j).reshape(-1),
        ]  # fmt: skip
        rest = tuple(self._held.shape[self._batch + 1 + self._inner :])
        values = reshape(self._held, shape=(count * high * wide, *rest))
        at = np.stack(places).astype(np.int64, copy=False)
        return made(at, values, self._size, False)

    def flat(self) -> np.ndarray:
        return self.as_coordinates().flat()

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        return self.as_coordinates().to_dense(dtype, masked_grad=masked_grad)

    # --- other layouts ----------------------------------------------------------------------
    def to_sparse(
        self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
        dense_dim: int | None = None,
    ) -> Any:  # fmt: skip
        return self._converted("sparse_coo" if layout is None else layout, blocksize)

    def _converted(self, wanted: Any, blocksize: Any = None) -> Any:
        given = blocksize or self._block
        asked = (given, given) if isinstance(given, int) else tuple(given)
        if wanted == self.layout and asked == self._block:
            return self
        if wanted == "sparse_coo":
            out = self.as_coordinates()
            return out if self.layout in ROWS and not self._batch else out.coalesce()
        if (wanted in BLOCKS) != (self.layout in BLOCKS) or asked != self._block:
            raise ShapeError(
                f"to_{wanted!s}: conversion from {named(self)} with blocks of {self._block} to "
                f"blocks of {asked} is not supported; use to_dense() first"
            )
        block = self._block if self.layout in BLOCKS else None
        if not self._batch:
            return of_coordinates(self.as_coordinates(), wanted, block)
        return in_blocks(self.to_dense(), wanted, block, self.dense_dim(), self)

    def like(self, coo: SparseTensor) -> Any:
        """``coo`` in this layout, and in blocks of this size."""
        block = self._block if self.layout in BLOCKS else None
        if not self._batch:
            return of_coordinates(coo, self.layout, block)
        return in_blocks(coo.to_dense(), self.layout, block, coo.dense_dim())

    def to_sparse_coo(self) -> SparseTensor:
        out: SparseTensor = self._converted("sparse_coo")
        return out

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        return self._converted(sparse_csr)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        return self._converted(sparse_csc)

    def turned(self) -> Self:
        """Each matrix transposed, over the same values: of rows, columns."""
        at, held = self._batch + 1, self._held
        if self._inner:
            dims = list(range(held.ndim))
            dims[at], dims[at + 1] = at + 1, at
            held = permute(held, dims=tuple(dims))
        out = _new(self._plain_class())
        out.__dict__.update(self.__dict__)
        out._held, out._block = held, self._block[::-1]
        out.layout = _TURNED[str.__str__(self.layout)]
        *lead, first, second = self._places_shape()
        out._size = (*lead, second, first, *self._size[self._batch + 2 :])
        return out

    def chosen(self, index: tuple[int, ...]) -> CompressedTensor:
        """The matrices number ``index`` of the first dimensions of the batch."""
        at = tuple(int(i) for i in index)
        sizes = self._size[len(at) :]
        held = getitem(self._held, index=at)
        return parts(self.layout, self._starts[at], self._others[at], held, sizes, self._block)

    def __reduce_ex__(self, protocol: object) -> tuple:
        arrays = (part for _, part in self._shown())
        return _rebuilt, (str.__str__(self.layout), *arrays, self._held, self._size, self._block)


def parts(
    where: layout, starts: np.ndarray, others: np.ndarray, values: Tensor, size: tuple[int, ...],
    block: tuple[int, int],
) -> CompressedTensor:  # fmt: skip
    """One of these parts, which fit."""
    if starts.ndim == 1 and where not in BLOCKS:
        return compressed(where, starts, others, values, size)
    out = _new(BlockTensor)
    out.layout, out._starts, out._others, out._held = where, starts, others, values
    out._size, out._block = tuple(size), block
    return out


def _rebuilt(
    name: str, starts: Tensor, others: Tensor, values: Tensor, size: tuple, block: tuple
) -> CompressedTensor:
    """One that was pickled."""
    return parts(_LAYOUTS[name], starts.array, others.array, values, size, block)


# --- of dense ones and of others ---------------------------------------------------------------
def block_of(
    where: str, wanted: str, given: Sequence[int] | int | None, size: tuple
) -> tuple[int, int]:  # fmt: skip
    """The block of a layout, which is given for layouts of blocks alone and divides ``size``."""
    if (wanted in BLOCKS) != (given is not None):
        raise ShapeError(
            f"{where}: conversion to {wanted} with blocksize={given} is not supported: layouts of "
            "blocks need one, and others have none"
        )
    if given is None:
        return 1, 1
    block = (given, given) if isinstance(given, int) else tuple(int(n) for n in given)
    if len(block) != 2 or min(block) < 1:
        raise ShapeError(f"{where}: blocksize must be two positive numbers; {list(block)} given")
    if any(n % b for n, b in zip(size, block, strict=True)):
        raise ShapeError(
            f"{where}: tensor sparse size {tuple(size)} must be divisible by given blocksize "
            f"{block}"
        )
    return block[0], block[1]


def in_blocks(
    dense: Tensor, wanted: str, blocksize: Sequence[int] | int | None, dense_dim: int = 0,
    mask: BlockTensor | None = None,
) -> CompressedTensor:  # fmt: skip
    """A dense tensor (batch ..., rows, columns, dense dimensions ...) in a compressed layout: its
    blocks that are not zero (or where ``mask`` has values). Differentiable."""
    size, name = tuple(dense.shape), str.__str__(_LAYOUTS[str.__str__(wanted)])
    lead = len(size) - 2 - dense_dim
    if lead < 0 or dense_dim < 0:
        raise ShapeError(
            f"to_{name}: a tensor of {len(size)} dimensions with dense_dim={dense_dim} given; two "
            "more are needed"
        )
    high, wide = block = block_of(f"to_{name}", name, blocksize, size[lead : lead + 2])
    count, grid = math.prod(size[:lead]), (size[lead] // high, size[lead + 1] // wide)
    starts, others, chosen = _found(_filled(dense, mask, count, grid, block), name in ROWS)
    rest = size[lead + 2 :]
    cells = reshape(dense, shape=(count, grid[0], high, grid[1], wide, *rest))
    inner = tuple(range(5, cells.ndim))
    cells = permute(cells, dims=(0, 1, 3, 2, 4, *inner))
    shape = (high, wide, *rest) if name in BLOCKS else rest
    cells = reshape(cells, shape=(count * grid[0] * grid[1], *shape))
    values = prim.take(cells, beside(cells, chosen), dim=0, skip=None)
    batch = size[:lead]
    values = reshape(values, shape=(*batch, others.shape[1], *shape))
    starts, others = starts.reshape(*batch, -1), others.reshape(*batch, others.shape[1])
    return parts(_LAYOUTS[name], starts, others, values, size, block)


def _filled(
    dense: Tensor, mask: BlockTensor | None, count: int, grid: tuple[int, int], block: tuple
) -> np.ndarray:
    """Which blocks (matrix, row, column) have values."""
    if mask is not None:
        out = np.zeros((count, *grid), bool)
        out[mask._blocks()] = True
        return out
    marks: Any = dense.detach().ne(0).cpu().array
    cells = marks.reshape(count, grid[0], block[0], grid[1], block[1], -1)
    return np.asarray(cells.any((2, 4, 5)))


def _found(filled: np.ndarray, by_rows: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where lines begin, the other number of each block, and its number in the grid."""
    count, rows, columns = filled.shape
    lines = filled if by_rows else filled.transpose(0, 2, 1)
    counts = lines.sum(2)
    totals = counts.sum(1)
    if count and (totals != totals[0]).any():
        raise ShapeError("Expect the same number of specified elements per batch.")
    which, main, other = np.nonzero(lines)
    starts = np.zeros((count, lines.shape[1] + 1), np.int64)
    np.cumsum(counts, 1, out=starts[:, 1:])
    row, column = (main, other) if by_rows else (other, main)
    each = int(totals[0]) if count else 0
    return starts, other.reshape(count, each), (which * rows + row) * columns + column


def of_coordinates(
    coo: SparseTensor, wanted: str, blocksize: Sequence[int] | int | None
) -> CompressedTensor:
    """A matrix of coordinates in blocks: those in which a place lies."""
    name = str.__str__(_LAYOUTS[str.__str__(wanted)])
    if coo.sparse_dim() != 2:
        raise ShapeError(
            f"to_{name}: expected a tensor with 2 sparse dimensions, but got {coo.sparse_dim()}"
        )
    high, wide = block = block_of(f"to_{name}", name, blocksize, coo._size[:2])
    rows, columns = coo.rows_and_columns()
    pair = (rows // high, columns // wide)
    main, other = pair if name in ROWS else pair[::-1]
    lines, across = coo._size[0] // high, coo._size[1] // wide
    lines, across = (lines, across) if name in ROWS else (across, lines)
    kept, which = np.unique(main * across + other, return_inverse=True)
    starts = np.zeros(lines + 1, np.int64)
    np.cumsum(np.bincount(kept // max(across, 1), minlength=lines), out=starts[1:])
    at = which.reshape(-1) * (high * wide) + rows % high * wide + columns % wide
    rest, held = tuple(coo._held.shape[1:]), coo._held
    shape = (len(kept) * high * wide, *rest)
    index = beside(held, at.astype(np.int64, copy=False))
    values = prim.spread(held, index, dim=0, shape=shape, skip=None)
    if name in BLOCKS:
        values = reshape(values, shape=(len(kept), high, wide, *rest))
    return parts(_LAYOUTS[name], starts, kept % max(across, 1), values, coo._size, block)
