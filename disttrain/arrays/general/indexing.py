"""Gathering and scattering by dimension numbers: what is asked of operands, and its words."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor
from ...errors import OperandError, ShapeError
from ...ops import api as ops
from . import places
from .checks import Index, kind_of, same_types, shape_of
from .shapes import full


class GatherDimensionNumbers(NamedTuple):
    """Which dimensions of a gather are which."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which dimensions of a scatter are which."""

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


class GatherScatterMode(enum.Enum):
    """What becomes of slices beyond the ends."""

    CLIP = 0
    FILL_OR_DROP = 1
    PROMISE_IN_BOUNDS = 2
    ONE_HOT = 3

    @staticmethod
    def from_any(given: Any) -> GatherScatterMode:
        """The mode of this name."""
        if isinstance(given, GatherScatterMode):
            return given
        names = {"clip": 0, "fill": 1, "drop": 1, "promise_in_bounds": 2, None: 1}
        if given not in names:
            raise ShapeError(f'Unknown gather mode "{given}"')
        return GatherScatterMode(names[given])


def gather(
    operand: Tensor, start_indices: Index, dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Any, *, unique_indices: bool = False, indices_are_sorted: bool = False,
    mode: Any = None, fill_value: Any = None,
) -> Tensor:  # fmt: skip
    """The slices of ``operand`` that the rows of ``start_indices`` name."""
    a, at = operand, start_indices
    numbers, sizes = places.Numbers(*map(tuple, dimension_numbers)), shape_of(slice_sizes)
    if kind_of(at).kind not in "iu":
        raise ShapeError("indices must have an integer type")
    if len(sizes) != a.ndim or any(
        k > n or k < 0 for k, n in zip(sizes, tuple(a.shape), strict=True)
    ):
        raise OperandError(
            f"Gather op has invalid slice_sizes {sizes} for operand shape {tuple(a.shape)}"
        )
    if len(numbers.offset) != a.ndim - len(numbers.collapsed) - len(numbers.batch):
        raise OperandError(
            "Gather op must have as many offset_dims as dimensions of the operand are left"
        )
    fill = mode is not None and GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP
    if fill_value is None:
        fill_value = float("nan") if kind_of(a).kind in "fcV" else _out_of_bounds(kind_of(a))
    out = places.gather(a, at, numbers, sizes, "fill" if fill else "clip", fill_value)
    return out


def _out_of_bounds(kind: np.dtype) -> Any:
    if kind.kind == "b":
        return True
    info = np.iinfo(kind)
    return int(info.min if kind.kind == "i" else info.max)


def _scatterer(name: str, how: str, sign: int = 1) -> Callable:
    def run(
        operand: Tensor, scatter_indices: Index, updates: Tensor,
        dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
        unique_indices: bool = False, mode: Any = None,
    ) -> Tensor:  # fmt: skip
        a, at = operand, scatter_indices
        u = updates
        same_types(name, (a, u))
        numbers = places.Numbers(*map(tuple, dimension_numbers))
        clip = GatherScatterMode.from_any(mode) is GatherScatterMode.CLIP
        values = u if sign > 0 else -u
        out = places.scatter(a, at, values, numbers, how, "clip" if clip else "drop")
        return out

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = __name__, f"XLA's {name}."
    return run


scatter = _scatterer("scatter", "set")
scatter_add, scatter_sub = _scatterer("scatter_add", "sum"), _scatterer("scatter_sub", "sum", -1)
scatter_mul = _scatterer("scatter_mul", "prod")
scatter_max, scatter_min = _scatterer("scatter_max", "amax"), _scatterer("scatter_min", "amin")


def scatter_apply(
    operand: Tensor, scatter_indices: Index, func: Callable,
    dimension_numbers: ScatterDimensionNumbers, *, update_shape: Any = (),
    indices_are_sorted: bool = False, unique_indices: bool = False,
    mode: Any = None,
) -> Tensor:  # fmt: skip
    """``operand`` with ``func`` of what is there at these places."""
    a = operand
    ones = full(update_shape, ops.ones(()), np.int32)
    count = scatter_add(
        full(tuple(a.shape), ops.zeros(()), np.int32),
        scatter_indices,
        ones,
        dimension_numbers,
        mode=mode,
    )
    found = func(a)
    return ops.where(count > 0, found, a)


def index_take(src: Tensor, idxs: Sequence[Any], axes: Sequence[int]) -> Tensor:
    """The slices at ``idxs`` along ``axes``."""
    a = src
    rows = ops.stack([i.long() for i in idxs], -1)
    sizes = [1 if d in axes else n for d, n in enumerate(tuple(a.shape))]
    numbers = GatherDimensionNumbers(
        tuple(range(1, a.ndim - len(axes) + 1)), tuple(axes), tuple(axes)
    )
    return gather(a, rows, numbers, sizes, mode="fill")
