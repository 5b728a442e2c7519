"""Public functions that take parts of a tensor, as views: narrow, select, split. Torch's names."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ....core.annotations import Dims
from ....core.fast import pieces
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import DimError, DTypeError, ShapeError
from ....symbolic import as_int
from ...primitives import views
from .. import args as check


def _sized(
    where: str, input: Tensor, dim: int, error: type[ShapeError | DimError] = ShapeError
) -> tuple[int, int]:
    """The dimension to cut, and its size."""
    shape = input.meta()[0]
    d = check.one_dim(dim, len(shape), where)
    if not shape:
        raise error(f"{where}: a tensor without dimensions given; at least one is needed")
    return d, shape[d]


def _slice(input: Tensor, d: int, start: int, stop: int, step: int = 1) -> Tensor:
    return views.getitem(input, index=(slice(None),) * d + (slice(start, stop, step),))


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``length`` elements from ``start`` on along ``dim``."""
    d, n = _sized("narrow", input, dim)
    start = as_int(start)
    start = start + n if start < 0 else start
    if not (0 <= start and 0 <= length and start + length <= n):
        raise DimError(
            f"narrow: elements {start} to {start + length} of dimension {dim} wanted; it has {n}"
        )
    return _slice(input, d, start, start + length)


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Element ``index`` along ``dim``, which disappears."""
    d, n = _sized("select", input, dim, DimError)
    if not -n <= index < n:
        raise DimError(f"select: index {index} is out of range for dimension {dim} of size {n}")
    return views.getitem(input, index=(slice(None),) * d + (int(index),))


def split(tensor: Tensor, split_size_or_sections: Dims, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of one size (the last may be smaller), or of the sizes given."""
    d, n = _sized("split", tensor, dim)
    if isinstance(split_size_or_sections, (int, np.integer)):
        size = as_int(split_size_or_sections)
        if size < 0 or (not size and n):
            raise ShapeError(f"split: size {size} given; a positive number is needed")
        count = int(-(-n // size)) if n else 0
        sizes = [size] * (count - 1) + [n - size * (count - 1)] if count else [0]
    else:
        sizes = [as_int(s) for s in split_size_or_sections]
        if sum(sizes) != n or any(s < 0 for s in sizes):
            raise ShapeError(
                f"split: sizes {sizes} sum to {sum(sizes)}; dimension {dim} has {n} elements"
            )
    return pieces(views.split, tensor, {"dim": d, "sizes": tuple(sizes)})


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` pieces of equal size (the last may be smaller)."""
    if chunks <= 0:
        raise ShapeError(f"chunk: {chunks} chunks wanted; at least one is needed")
    _, n = _sized("chunk", input, dim)
    if not n:
        return split(input, [0] * chunks, dim)
    return split(input, max(-(-n // chunks), 1), dim)


def tensor_split(
    input: Tensor, indices_or_sections: Dims | Tensor, dim: int = 0
) -> tuple[Tensor, ...]:
    """As numpy's ``array_split``."""
    d, n = _sized("tensor_split", input, dim)
    if isinstance(indices_or_sections, Tensor) and indices_or_sections.ndim == 0:
        indices_or_sections = as_int(indices_or_sections.item())
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise ShapeError(
                f"tensor_split: {indices_or_sections} sections wanted; at least one is needed"
            )
        q, r = divmod(n, indices_or_sections)
        sizes = [q + 1] * r + [q] * (indices_or_sections - r)
        ends = np.cumsum([0, *sizes]).tolist()
    else:
        given = indices_or_sections
        if isinstance(given, Tensor) and given.dtype is not dtypes.int64:
            raise DTypeError(f"tensor_split: indices of {given.dtype!r} given; needed int64")
        ends = [0, *[min(int(i), n) for i in indices_or_sections], n]
    return tuple(_slice(input, d, a, b) for a, b in pairwise(ends))


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All elements along ``dim``, as views."""
    d, _ = _sized("unbind", input, dim, DimError)
    return pieces(views.unbind, input, {"dim": d})


__all__ = [
    "chunk",
    "narrow",
    "select",
    "split",
    "tensor_split",
    "unbind",
]
