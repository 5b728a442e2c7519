"""Parts of arrays, and arrays with parts replaced, as XLA's vocabulary has it."""

from __future__ import annotations

import operator
from typing import Any

from ...core.tensor import Tensor
from ...errors import OperandError, ShapeError
from ...ops import api as ops
from . import dynamic
from .checks import axis_of, kind_of, same_types, shape_of
from .shapes import expand_dims, squeeze

slice_type = slice


def slice(  # noqa: A001
    operand: Tensor, start_indices: Any, limit_indices: Any, strides: Any = None
) -> Tensor:
    """The part from ``start_indices`` to before ``limit_indices``."""
    a = operand
    start, limit = shape_of(start_indices), shape_of(limit_indices)
    steps = (1,) * a.ndim if strides is None else shape_of(strides)
    for name, given in (("start_indices", start), ("limit_indices", limit)):
        if len(given) != a.ndim:
            raise OperandError(
                f"slice {name} must have length equal to the number of dimensions of the operand, "
                f"got {name} {given} for operand shape {tuple(a.shape)}."
            )
    if any(m > n for m, n in zip(limit, tuple(a.shape), strict=True)):
        raise OperandError(
            f"slice limit_indices must be less than or equal to operand shape, got limit_indices "
            f"{limit} for operand shape {tuple(a.shape)}."
        )
    if any(s < 0 for s in start):
        raise OperandError(
            f"slice start_indices must be greater than or equal to zero, got start_indices of "
            f"{start}."
        )
    if any(m < s for s, m in zip(start, limit, strict=True)):
        raise OperandError(
            "slice limit_indices must be greater than or equal to start_indices, got start_indices "
            f"{start} and limit_indices {limit}."
        )
    at = tuple(slice_type(*row) for row in zip(start, limit, steps, strict=True))
    return a[at] if at else a


def slice_in_dim(
    operand: Tensor,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Tensor:
    """A part along one dimension."""
    a = operand
    d = axis_of(axis, a.ndim)
    lo, hi, _ = slice_type(start_index, limit_index).indices(tuple(a.shape)[d])
    at = (slice_type(None),) * d + (slice_type(lo, max(lo, hi), stride),)
    return a[at]


def index_in_dim(operand: Tensor, index: int, axis: int = 0, keepdims: bool = True) -> Tensor:
    """One slice along a dimension."""
    a = operand
    d = axis_of(axis, a.ndim)
    i = operator.index(index)
    if not -tuple(a.shape)[d] <= i < tuple(a.shape)[d]:
        raise IndexError(f"index {i} is out of bounds for axis {d} with size {tuple(a.shape)[d]}")
    part = a.select(d, i % tuple(a.shape)[d])
    return part.unsqueeze(d) if keepdims else part


def _starts(name: str, a: Tensor, start: Any) -> Tensor:
    if isinstance(start, Tensor):
        return start.long()
    given = [s if isinstance(s, Tensor) else ops.tensor(s) for s in start]
    if len(given) != a.ndim:
        raise ShapeError(
            f"{name}: expected {a.ndim} start indices for an operand of shape {tuple(a.shape)}, "
            f"got {len(given)}"
        )
    for g in given:
        if kind_of(g).kind not in "iu":
            raise OperandError(
                f"index arguments to {name} must be integers of the same type, got: "
                f"{', '.join(kind_of(x).name for x in given)}"
            )
    if not given:
        return ops.zeros(0).long()
    return _from_end(ops.cat([g.long().reshape(1) for g in given]), tuple(a.shape))


def _from_end(start: Tensor, shape: tuple[int, ...]) -> Tensor:
    sizes = ops.tensor(list(shape)).long()
    return ops.where(start < 0, start + sizes, start)


def dynamic_slice(
    operand: Tensor, start_indices: Any, slice_sizes: Any, *, allow_negative_indices: Any = True
) -> Tensor:
    """A part of fixed sizes from where arrays say; it is moved inside."""
    a, sizes = operand, shape_of(slice_sizes)
    if len(sizes) != a.ndim or any(
        k > n or k < 0 for k, n in zip(sizes, tuple(a.shape), strict=True)
    ):
        raise OperandError(
            f"slice slice_sizes must be less than or equal to operand shape, got slice_sizes "
            f"{sizes} for operand shape {tuple(a.shape)}."
        )
    start = _starts("dynamic_slice", a, start_indices)
    return dynamic.dynamic_slice(a, start, sizes)


def dynamic_update_slice(
    operand: Tensor, update: Tensor, start_indices: Any, *, allow_negative_indices: Any = True
) -> Tensor:
    """``operand`` with ``update`` in it from where arrays say."""
    a, u = operand, update
    same_types("dynamic_update_slice", (a, u))
    if a.ndim != u.ndim:
        raise OperandError(
            f"dynamic_update_slice update must have the same rank as operand, got update shape "
            f"{tuple(u.shape)} for operand shape {tuple(a.shape)}."
        )
    if any(k > n for k, n in zip(tuple(u.shape), tuple(a.shape), strict=True)):
        raise OperandError(
            f"dynamic_update_slice update shape must be smaller than operand shape, got update "
            f"shape {tuple(u.shape)} for operand shape {tuple(a.shape)}."
        )
    start = _starts("dynamic_update_slice", a, start_indices)
    return dynamic.dynamic_update_slice(a, u, start)


def dynamic_slice_in_dim(
    operand: Tensor, start_index: Any, slice_size: int, axis: int = 0, *,
    allow_negative_indices: bool = True,
) -> Tensor:  # fmt: skip
    """``dynamic_slice`` along one dimension."""
    a = operand
    d = axis_of(axis, a.ndim)
    sizes = [slice_size if i == d else n for i, n in enumerate(tuple(a.shape))]
    return dynamic_slice(a, [start_index if i == d else 0 for i in range(a.ndim)], sizes)


def dynamic_index_in_dim(
    operand: Tensor, index: Any, axis: int = 0, keepdims: bool = True, *,
    allow_negative_indices: bool = True,
) -> Tensor:  # fmt: skip
    """One slice along a dimension, which one an array says."""
    out = dynamic_slice_in_dim(operand, index, 1, axis)
    return out if keepdims else squeeze(out, [axis])


def dynamic_update_slice_in_dim(
    operand: Tensor,
    update: Tensor,
    start_index: Any,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tensor:
    """``dynamic_update_slice`` along one dimension."""
    a = operand
    d = axis_of(axis, a.ndim)
    return dynamic_update_slice(a, update, [start_index if i == d else 0 for i in range(a.ndim)])


def dynamic_update_index_in_dim(
    operand: Tensor, update: Tensor, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Tensor:
    """``operand`` with one slice replaced."""
    a, u = operand, update
    d = axis_of(axis, a.ndim)
    if u.ndim != a.ndim:
        u = expand_dims(u, (d,))
    return dynamic_update_slice_in_dim(a, u, index, d)
