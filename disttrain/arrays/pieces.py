"""Parts of tensors, put together and taken apart, with what does not go together told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import DimError, ShapeError
from ..ops import api as ops
from ..partial_shape import PartialShape
from . import slots
from .shapes import pad as padded


def sizes_of(shape: Any) -> list[int]:
    """A shape, or its one size, as numbers."""
    return [shape] if isinstance(shape, int) else [int(n) for n in shape]


def _said(sizes: Sequence[int]) -> str:
    return "[" + ",".join(map(str, sizes)) + "]"


def reshape(x: Tensor, shape: Any) -> Tensor:
    """``x`` in another shape, one of whose sizes may be -1."""
    sizes = sizes_of(shape)
    count, free = math.prod(n for n in sizes if n != -1), -1 in sizes
    if (count and x.numel() % count) if free else count != x.numel():
        word = "requires a multiple of" if free else "has"
        raise ShapeError(f"Input to reshape is a tensor with {x.numel()} values, but the requested "
                         f"shape {word} {count}")  # fmt: skip
    return x.reshape(sizes)


def ensured(x: Any, shape: Any) -> Any:
    """``x``, which must have the shape; None: any size, or (for all of it) any shape."""
    wanted, own = PartialShape(shape), PartialShape(tuple(x.shape))
    if not wanted.is_compatible_with(own):
        raise ShapeError(f"Shape of tensor {own} is not compatible with expected shape {wanted}.")
    return x


def transpose(x: Tensor, order: Sequence[int] | None = None, conjugate: bool = False) -> Tensor:
    """The dimensions in another order; None: the other way round."""
    dims = list(range(x.ndim))[::-1] if order is None else [int(d) for d in order]
    if len(dims) != x.ndim:
        raise ShapeError(f"transpose expects a vector of size {x.ndim}. But input(1) is a vector "
                         f"of size {len(dims)}")  # fmt: skip
    return ops.permute(ops.conj(x) if conjugate else x, dims)


def expand_dims(x: Tensor, axis: int) -> Tensor:
    """A dimension of one element more."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise DimError(f"Tried to expand dim index {axis} for tensor with {x.ndim} dimensions.")
    return x.unsqueeze(axis)


def squeeze(x: Tensor, axis: Any = None) -> Tensor:
    """Without dimensions of one element: those of ``axis``, which must be such; None: all."""
    if axis is None or axis == []:
        return x.squeeze()
    dims = [d % max(x.ndim, 1) for d in (axis if isinstance(axis, (list, tuple)) else [axis])]
    for d in dims:
        if x.shape[d] != 1:
            raise ShapeError(
                f"Can not squeeze dim[{d}], expected a dimension of 1, got {x.shape[d]}"
            )
    return x.reshape([n for d, n in enumerate(x.shape) if d not in dims])


def concat(values: Sequence[Tensor], axis: int) -> Tensor:
    """One after the other along ``axis``."""
    first = values[0].shape
    for i, t in enumerate(values[1:], 1):
        both = f"shape[0] = {_said(first)} vs. shape[{i}] = {_said(t.shape)}"
        if len(t.shape) != len(first):
            raise ShapeError(f"ConcatOp : Ranks of all input tensors should match: {both}")
        for d, (a, b) in enumerate(zip(first, t.shape, strict=True)):
            if a != b and d != axis % len(first):
                raise ShapeError(f"ConcatOp : Dimension {d} in both shapes must be equal: {both}")
    return ops.cat(list(values), dim=axis)


def stack(values: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Beside each other along a new dimension."""
    for i, t in enumerate(values):
        if t.shape != values[0].shape:
            raise ShapeError(
                "Shapes of all inputs must match: values[0].shape = "
                f"{_said(values[0].shape)} != values[{i}].shape = {_said(t.shape)}"
            )
    return ops.stack(list(values), dim=axis)


def reverse(x: Tensor, axis: Any) -> Tensor:
    """The other way round along one dimension, or several."""
    return ops.flip(x, axis if isinstance(axis, (list, tuple)) else [axis])


def broadcast_to(x: Tensor, shape: Any) -> Tensor:
    """``x`` repeated to ``shape``, as a copy."""
    return x.expand(sizes_of(shape)).clone()


def alike(x: Tensor, value: int, kind: Any = None) -> Tensor:
    """The one number everywhere, in the shape (and, for None, of the type) of ``x``."""
    return ops.full_like(x.detach(), value, dtype=kind)


def shape(x: Any, kind: Any = None) -> Tensor:
    """The sizes, as a tensor."""
    return ops.tensor(list(x.shape), dtype=kind)


def size(x: Any, kind: Any = None) -> Tensor:
    """How many elements, as a tensor."""
    return ops.tensor(math.prod(x.shape), dtype=kind)


def unstack(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along ``axis``."""
    return tuple(part.clone() for part in x.unbind(axis))


def split(x: Tensor, parts: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """So many equal parts, or parts of these sizes, of which one may be -1."""
    size = x.shape[axis]
    if isinstance(parts, int):
        if size % parts:
            raise ShapeError(
                "Number of ways to split should evenly divide the split dimension, but got "
                f"split_dim {axis} (size = {size}) and num_split {parts}"
            )
        return tuple(ops.chunk(x, parts, axis))
    sizes = [int(n) for n in parts]
    if -1 in sizes:
        sizes[sizes.index(-1)] = size - sum(n for n in sizes if n != -1)
    return tuple(ops.split(x, sizes, axis))


def tile(x: Tensor, multiples: Sequence[int]) -> Tensor:
    """``x`` so often along each dimension."""
    if len(multiples) != x.ndim:
        raise ShapeError("Expected multiples argument to be a vector of length "
                         f"{x.ndim} but got length {len(multiples)}")  # fmt: skip
    return ops.tile(x, tuple(multiples))


def repeat(x: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element so often."""
    counts = repeats if isinstance(repeats, int) else ops.tensor(repeats)
    return ops.repeat_interleave(x, counts, dim=axis)


def pad(x: Tensor, margins: Any, mode: str = "constant", value: float = 0) -> Tensor:
    """Margins (before, after) of each dimension: a "constant", or what "reflect" and "symmetric"
    say."""
    if mode.lower() == "constant":
        return ops.pad(x, [int(n) for pair in reversed(margins) for n in pair], value=value)
    return padded(x, margins, mode.lower())


def slice_at(x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
    """``size`` elements from ``begin`` on along each dimension; -1: all that follow."""
    ends = [n if s == -1 else b + s for b, s, n in zip(begin, size, x.shape, strict=True)]
    if any(e > n or b < 0 for b, e, n in zip(begin, ends, x.shape, strict=True)):
        raise ShapeError(f"Expected begin and size in [0, {list(x.shape)}], but got begin "
                         f"{list(begin)} and size {list(size)}")  # fmt: skip
    for d, (b, e) in enumerate(zip(begin, ends, strict=True)):
        x = x.narrow(d, b, e - b)
    return x


def arange(first: Tensor, last: Tensor, step: Tensor) -> Tensor:
    """Numbers of the type of ``first`` to before ``last``."""
    start, stop, by = first.item(), last.item(), step.item()
    if by == 0:
        raise ValueError("Requires delta != 0")
    if (stop - start) * by < 0:
        less, word = ("<", ">") if by > 0 else (">", "<")
        raise ValueError(f"Requires start {less}= limit when delta {word} 0: {start}/{stop}")
    return ops.arange(start, stop, by, dtype=first.dtype)


_NARROW = (dtypes.int32, dtypes.int64, dtypes.bfloat16, dtypes.float16, dtypes.float32,
           dtypes.float64)  # fmt: skip


def range_of(
    start: Tensor, stop: Tensor | None = None, step: Tensor | None = None, kind: Any = None
) -> Tensor:
    """Numbers from ``start`` to before ``stop`` (None: from 0 to before ``start``), in the type
    ``kind``, or else the widest of those that are given."""
    first, last = (start, stop) if stop is not None else (start.new_zeros(()), start)
    parts = [first, last, ops.ones((), dtype=dtypes.int32) if step is None else step]
    order = lambda t: _NARROW.index(t.dtype) if t.dtype in _NARROW else 0  # noqa: E731
    kind = kind or max(parts, key=order).dtype
    return arange(*[p.to(kind) for p in parts])


def linspace(start: Tensor, stop: Tensor, count: int, axis: int = 0) -> Tensor:
    """``count`` numbers from ``start`` to ``stop``, both among them, along a new dimension."""
    steps = ops.arange(count, dtype=start.dtype).reshape(-1, *[1] * start.ndim)
    found = start + (stop - start) * steps / max(count - 1, 1)
    if count > 1:
        found = ops.cat([found[:-1], stop.unsqueeze(0).expand(1, *found.shape[1:])])
    return found.movedim(0, axis)


def filled_up(x: Any, shape: Sequence[int]) -> Tensor:
    """``x`` in a shape of as many elements, or its one number everywhere."""
    count, wanted = math.prod(x.shape), math.prod(shape)
    if count != wanted and len(x.shape):
        raise TypeError(f"unsupported shape. Tensor has {count} elements, but got `shape` "
                        f"{tuple(shape)} with {wanted} elements")  # fmt: skip
    found: Tensor = x.reshape(shape) if count == wanted else x.expand(shape).clone()
    return found


def filled(shape: Any, value: Any) -> Any:
    """The one number, or the one text, everywhere."""
    if value.ndim:
        raise ShapeError(f"value must be a scalar, received value with shape {list(value.shape)}")
    if isinstance(value, np.ndarray):
        return np.full(sizes_of(shape), value.item(), object)
    return value.expand(sizes_of(shape)).clone()


def meshgrid(*lines: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid, as copies."""
    return tuple(g.clone() for g in ops.meshgrid(*lines, indexing=indexing))


def eyes(rows: int, columns: int | None, batch: Any, kind: Any) -> Tensor:
    """Ones on the diagonals of a batch of matrices."""
    found = ops.eye(rows, rows if columns is None else columns, dtype=kind)
    return found.expand(*sizes_of(batch or []), *found.shape).clone()


def take(x: Any, indices: Tensor, axis: int | None = None, batch_dims: int = 0) -> Any:
    """The slices of a tensor, or of an array of texts, at ``indices`` along ``axis``, which must be
    there."""
    dim = batch_dims if axis is None else axis % x.ndim
    within(indices, x.shape[dim])
    if isinstance(x, np.ndarray):
        return np.asarray(x[(np.s_[:],) * dim + (indices.numpy(),)], object)
    return slots.take_rows(x, indices, dim, batch_dims)


def within(indices: Tensor, count: int) -> None:
    """Raise where one of ``indices`` is no row of ``count``."""
    flat = indices.detach().reshape(-1).tolist()
    for i, place in enumerate(flat):
        if not 0 <= place < count:
            at = ",".join(str(n) for n in np.unravel_index(i, tuple(indices.shape)))
            word = f"indices[{at}]" if at else "indices"
            raise DimError(f"{word} = {place} is not in [0, {count})")


def where(condition: Tensor, x: Tensor | None = None, y: Tensor | None = None) -> Tensor:
    """``x`` where the condition holds and ``y`` elsewhere; of None, the places where it holds."""
    return ops.argwhere(condition) if x is None or y is None else ops.where(condition, x, y)


def boolean_mask(x: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """The slices from ``axis`` on where ``mask`` holds."""
    return x.movedim(axis, 0)[mask].movedim(0, axis) if axis else x[mask]


def one_hot(
    indices: Tensor, depth: int, on: Tensor | None = None, off: Tensor | None = None,
    axis: int | None = None, kind: Any = None,
) -> Tensor:  # fmt: skip
    """``on`` (1) at the place of each index along a new dimension, ``off`` (0) elsewhere, in the
    type ``kind`` (None: that of ``on``)."""
    at = indices.ndim if axis is None or axis == -1 else axis
    line = ops.arange(depth, dtype=indices.dtype)
    line = line.reshape([depth if d == at else 1 for d in range(indices.ndim + 1)])
    there = ops.ones(()) if on is None else on
    elsewhere = ops.zeros_like(there) if off is None else off
    kind = kind or there.dtype
    return ops.where(indices.unsqueeze(at) == line, there.to(kind), elsewhere.to(kind))


def sequence_mask(lengths: Tensor, most: int | None = None, kind: Any = None) -> Tensor:
    """Whether a place is before the end of each sequence."""
    count = int(lengths.max()) if most is None else most
    return (ops.arange(count, dtype=lengths.dtype) < lengths.unsqueeze(-1)).to(kind)


def read(x: Any, keys: Sequence[Any]) -> Any:
    """``x[keys]`` with slices of any step, as a copy; also of arrays of bytes."""
    keys = list(keys)
    count = sum(k is not None and k is not Ellipsis for k in keys)
    if count > len(x.shape):
        raise DimError(f"Index out of range using input dim {len(x.shape)}; input has only "
                       f"{len(x.shape)} dims")  # fmt: skip
    if Ellipsis in [k for k in keys if not isinstance(k, slice)]:
        place = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (len(x.shape) - count)
    if isinstance(x, np.ndarray):
        return np.asarray(x[tuple(keys)], object)
    dim = 0
    found: list[Any] = []
    for k in keys:
        if k is not None:
            size = x.shape[dim]
            if isinstance(k, slice) and k.step is not None and k.step < 0:
                x, k = x.index_select(dim, ops.arange(*k.indices(size))), slice(None)
            elif not isinstance(k, slice) and not -size <= k < size:
                raise DimError(f"slice index {k} of dimension {dim} out of bounds.")
            dim += 1
        found.append(k)
    return x[tuple(found)].clone() if x.ndim else x.clone()


class At(int):
    """The place of a tensor that holds a subscript."""


def planned(keys: Sequence[Any], tensor: Callable[[Any], Any]) -> tuple[list, list]:
    """Subscripts for ``read_at``, and the tensors among their numbers: what ``tensor(number)``
    gives for those that are none of Python's, or raises."""
    held: list[Any] = []

    def known(k: Any) -> Any:
        if k is None or (isinstance(k, (int, np.integer)) and not isinstance(k, bool)):
            return k if k is None else int(k)
        held.append(tensor(k))
        return At(len(held) - 1)

    return [_each(k, known) if k is not Ellipsis else k for k in keys], held


def _each(k: Any, known: Callable[[Any], Any]) -> Any:
    return slice(*map(known, (k.start, k.stop, k.step))) if isinstance(k, slice) else known(k)


def read_at(x: Any, plan: Sequence[Any], at: Sequence[Tensor]) -> Any:
    """``read`` by a plan of subscripts, with the tensors that hold some of them."""
    known = lambda k: int(at[k].item()) if isinstance(k, At) else k  # noqa: E731
    return read(x, [_each(k, known) for k in plan])
