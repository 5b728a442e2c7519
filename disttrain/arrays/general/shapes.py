"""Arrays made and rearranged, as XLA's vocabulary has it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import OperandError, ShapeError
from ...ops import api as ops
from . import margins
from .checks import Index, axis_of, cast, kind_of, same_types, shape_of


def iota(dtype: Any, size: int) -> Tensor:
    """0 to ``size - 1``."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Tensor:
    """The places along ``dimension``, in an array of this shape."""
    sizes, kind = shape_of(shape), np.dtype(dtype)
    row = ops.arange(sizes[dimension])
    row = row.reshape([-1 if d == dimension else 1 for d in range(len(sizes))])
    return row.expand(sizes).to(dtypes.of(kind))


def full(shape: Any, fill_value: Tensor, dtype: Any = None, *, sharding: Any = None) -> Tensor:
    """An array of one value."""
    value = fill_value
    if tuple(value.shape):
        raise OperandError(
            "lax.full must be called with scalar fill_value; got fill_value.shape "
            f"{tuple(value.shape)}."
        )
    kind = kind_of(value) if dtype is None else np.dtype(dtype)
    filled = cast(value, kind).expand(shape_of(shape))
    return filled


def full_like(
    x: Tensor, fill_value: Index, dtype: Any = None, shape: Any = None, sharding: Any = None
) -> Tensor:
    """An array such as ``x`` of one value."""
    sizes = tuple(x.shape) if shape is None else shape
    return full(sizes, fill_value, kind_of(x) if dtype is None else dtype)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Tensor:
    """An array of zeros."""
    return full(shape, ops.zeros(()), dtype)


# --- rearranged ----------------------------------------------------------------------------------
def _given(name: str, x: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    a = x
    return make(a)


def reshape(operand: Tensor, new_sizes: Any, dimensions: Any = None, *, out_sharding: Any = None
            ) -> Tensor:  # fmt: skip
    """``operand`` in another shape."""
    a, sizes = operand, shape_of(new_sizes)
    if int(np.prod(sizes)) != int(np.prod(tuple(a.shape))):
        raise OperandError(
            f"reshape total size must be unchanged, got new_sizes {sizes} (total size "
            f"{int(np.prod(sizes))}) for shape {tuple(a.shape)} (total size {a.numel()})"
        )
    value = a if dimensions is None else a.permute(*dimensions)
    return value.reshape(sizes)


def broadcast(operand: Tensor, sizes: Any, *, out_sharding: Any = None) -> Tensor:
    """``operand`` with new dimensions in front."""
    a = operand
    return a.expand((*shape_of(sizes), *tuple(a.shape)))


def broadcast_in_dim(
    operand: Tensor, shape: Any, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Tensor:
    """``operand``, whose dimensions become those that are named, in this shape."""
    a, sizes, dims = operand, shape_of(shape), [*broadcast_dimensions]
    if len(dims) != a.ndim:
        raise OperandError(
            "broadcast_in_dim broadcast_dimensions must have length equal to operand ndim; got "
            f"broadcast_dimensions {tuple(dims)} for operand ndim {a.ndim}."
        )
    if any(not 0 <= d < len(sizes) for d in dims):
        raise OperandError(
            "broadcast_in_dim broadcast_dimensions must be a subset of output dimensions, got "
            f"{tuple(dims)} for operand ndim {a.ndim} and shape {sizes}."
        )
    if any(n not in (1, sizes[d]) for n, d in zip(tuple(a.shape), dims, strict=True)):
        raise OperandError(
            "broadcast_in_dim operand dimension sizes must either be 1, or be equal to their "
            f"corresponding dimensions in the target broadcast shape; got operand of shape "
            f"{tuple(a.shape)}, target broadcast shape {sizes}, broadcast_dimensions {tuple(dims)} "
        )
    order = sorted(range(a.ndim), key=dims.__getitem__)
    laid = [1] * len(sizes)
    for n, d in zip(tuple(a.shape), dims, strict=True):
        laid[d] = n
    value = a.permute(*order) if order else a
    return value.reshape(laid).expand(sizes)


def broadcast_to_rank(x: Tensor, rank: int) -> Tensor:
    """``x`` with dimensions of 1 in front."""
    return _given(
        "broadcast_to_rank", x, lambda t: t.reshape((1,) * (rank - t.ndim) + tuple(t.shape))
    )


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that these are broadcast to."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        text = ", ".join(str(tuple(s)) for s in shapes)
        raise ShapeError(f"Incompatible shapes for broadcasting: shapes=[{text}]") from None


def expand_dims(array: Tensor, dimensions: Sequence[int]) -> Tensor:
    """``array`` with dimensions of 1 at these places."""
    a = array
    places_ = {axis_of(d, a.ndim + len(dimensions)) for d in dimensions}
    if len(places_) != len(dimensions):
        raise ShapeError(f"repeated axis in lax.expand_dims: {dimensions}")
    rest = iter(tuple(a.shape))
    sizes = [1 if d in places_ else next(rest) for d in range(a.ndim + len(dimensions))]
    return a.reshape(sizes)


def squeeze(array: Tensor, dimensions: Sequence[int]) -> Tensor:
    """``array`` without these dimensions of 1."""
    a = array
    dims = sorted(axis_of(d, a.ndim) for d in dimensions)
    if any(tuple(a.shape)[d] != 1 for d in dims):
        raise ShapeError(
            f"cannot select an axis to squeeze out which has size not equal to one, got "
            f"shape={tuple(a.shape)} and dimensions={tuple(dims)}"
        )
    return a.reshape([n for d, n in enumerate(tuple(a.shape)) if d not in dims])


def collapse(operand: Tensor, start_dimension: int, stop_dimension: int | None = None) -> Tensor:
    """``operand`` with dimensions from one to before another as one."""
    a = operand
    lo, hi, _ = slice(start_dimension, stop_dimension).indices(a.ndim)
    if hi < lo:
        raise ShapeError(
            f"Invalid dimension range passed to collapse: {tuple(a.shape)}[{lo}:{hi}]"
        )  # fmt: skip
    merged = int(np.prod(tuple(a.shape)[lo:hi]))
    return a.reshape((*tuple(a.shape)[:lo], merged, *tuple(a.shape)[hi:]))


def transpose(operand: Tensor, permutation: Sequence[int]) -> Tensor:
    """``operand`` with its dimensions in another order."""
    a, order = operand, tuple(operator.index(d) for d in permutation)
    if sorted(order) != list(range(a.ndim)):
        raise OperandError(
            f"transpose permutation isn't a permutation of operand dimensions, got permutation "
            f"{order} for operand shape {tuple(a.shape)}."
        )
    return a.permute(*order) if order else a


def rev(operand: Tensor, dimensions: Sequence[int]) -> Tensor:
    """``operand`` backwards along these dimensions."""
    return _given("rev", operand, lambda t: ops.flip(t, tuple(dimensions)) if dimensions else t)


def tile(operand: Tensor, reps: Sequence[int]) -> Tensor:
    """Copies side by side."""
    return _given("tile", operand, lambda t: ops.tile(t, tuple(reps)))


def concatenate(operands: Sequence[Tensor], dimension: int) -> Tensor:
    """Arrays one behind the other."""
    arrays = list(operands)
    if not arrays:
        raise ShapeError("concatenate requires a non-empty sequences of arrays")
    if len({a.ndim for a in arrays}) > 1:
        raise OperandError(
            f"Cannot concatenate arrays with different numbers of dimensions: got "
            f"{', '.join(str(tuple(a.shape)) for a in arrays)}."
        )
    if not 0 <= dimension < arrays[0].ndim:
        raise OperandError(
            f"concatenate dimension out of bounds: dimension {dimension} for shapes "
            f"{', '.join(str(tuple(a.shape)) for a in arrays)}."
        )
    if len({tuple(a.shape)[:dimension] + tuple(a.shape)[dimension + 1 :] for a in arrays}) > 1:
        raise OperandError(
            "Cannot concatenate arrays with shapes that differ in dimensions other than the one "
            f"being concatenated: concatenating along dimension {dimension} for shapes "
            f"{', '.join(str(tuple(a.shape)) for a in arrays)}."
        )
    same_types("concatenate", arrays)
    return ops.cat(arrays, dimension)


def stack(operands: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Arrays along a new dimension."""
    arrays = list(operands)
    same_types("stack", arrays)
    return ops.stack(arrays, axis)


def unstack(x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dimension."""
    a = x
    return tuple(ops.unbind(a, axis))


def split(operand: Tensor, sizes: Sequence[int], axis: int = 0) -> list[Tensor]:
    """Parts of these sizes."""
    a = operand
    if sum(sizes) != tuple(a.shape)[axis]:
        raise ShapeError(
            f"Sum of sizes {sum(sizes)} must be equal to dimension {axis} of the operand shape "
            f"{list(a.shape)}."
        )
    return list(ops.split(a, list(sizes), axis))


def pad(
    operand: Tensor, padding_value: Tensor, padding_config: Sequence[tuple[int, int, int]]
) -> Tensor:
    """``operand`` with margins (negative too) and gaps: (low, high, interior) per dimension."""
    a, value = operand, padding_value
    config = [
        (operator.index(a), operator.index(b), operator.index(c)) for a, b, c in padding_config
    ]
    same_types("pad", (a, value))
    if tuple(value.shape):
        raise OperandError(f"padding_value must be a scalar; got shape {tuple(value.shape)}")
    if len(config) != a.ndim:
        raise ShapeError(
            "length of padding_config must equal the number of axes of operand, got padding_config "
            f"{config} for operand shape {tuple(a.shape)}"
        )
    if any(gap < 0 for _, _, gap in config):
        raise ShapeError(
            f"interior padding in padding_config must be nonnegative, got padding_config {config}"
        )
    shape = margins.padded_shape(tuple(a.shape), config)
    if any(n < 0 for n in shape):
        raise ShapeError(
            f"Dimension size after padding is not at least 0, got result shape {shape}, for "
            f"padding_config {config} and operand shape {tuple(a.shape)}"
        )
    return margins.pad(a, value, config)
