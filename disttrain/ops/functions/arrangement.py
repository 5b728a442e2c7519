"""Tensors side by side and in combination; triangles, powers and numbers as tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.annotations import DeviceLike, DTypeLike, Number, Scalar
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import DTypeError, ShapeError
from ..primitives import elementwise as el
from ..promotion import result_type
from .args import size as as_size
from .args import tensor as as_input
from .creation.create import arange, complex, empty, full, parts_of_one_type
from .creation.data import tensor
from .elementwise import sub
from .gathering import index_select
from .reduce import cumprod
from .views.aliases import as_strided, atleast_2d, atleast_3d
from .views.join import cat, sequence, stack, vstack
from .views.shapes import meshgrid, permute, reshape, unsqueeze


# --- side by side ------------------------------------------------------------------------------
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors as columns: those with fewer than two dimensions are one column."""
    tensors = tuple(sequence("column_stack", tensors))
    if not tensors:
        raise ShapeError("column_stack: expects a non-empty TensorList")
    return cat([reshape(t, (t.numel(), 1)) if t.ndim < 2 else t for t in tensors], 1)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors along the third dimension, which those with fewer get."""
    tensors = tuple(sequence("dstack", tensors))
    if not tensors:
        raise ShapeError("dstack: expects a non-empty TensorList")
    return cat([atleast_3d(t) for t in tensors], 2)


def row_stack(tensors: Sequence[Tensor]) -> Tensor:
    """``vstack``."""
    return vstack(tensors)


def block_diag(*tensors: Tensor) -> Tensor:
    """The matrices (or rows, or numbers) along the diagonal of a new one; zeros elsewhere."""
    if not tensors:
        return empty(1, 0)
    kind, rows = result_type(*tensors), []
    for i, t in enumerate(tensors):
        if t.ndim > 2:
            raise ShapeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                f"{i} has {t.ndim} dimensions"
            )
        rows.append(atleast_2d(t).to(kind))
    width, left, out = sum(t.shape[1] for t in rows), 0, []
    for t in rows:
        before = t.new_zeros((t.shape[0], left))
        left += t.shape[1]
        out.append(cat([before, t, t.new_zeros((t.shape[0], width - left))], 1))
    return cat(out, 0)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All tuples of one element of each vector, as rows, the last changing fastest."""
    for t in tensors:
        if as_input(t, "cartesian_prod").ndim != 1:
            raise ShapeError(f"cartesian_prod: Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(t, (-1,)) for t in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of ``r`` elements of a vector, as rows, in the order of the vector."""
    if as_input(input, "combinations").ndim != 1:
        raise ShapeError(f"combinations: Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise ShapeError(f"combinations: Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(input.shape[0]), r)), np.int64).reshape(-1, r)
    picked = tensor(rows.reshape(-1), device=input.device)
    return reshape(index_select(input, 0, picked), tuple(rows.shape))


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """The powers of a vector's elements as rows, from the highest (``increasing``: from 0)."""
    if as_input(x, "vander").ndim != 1:
        raise ShapeError(f"vander: x must be a one-dimensional tensor, not {list(x.shape)}")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise ShapeError(f"vander: N must be non-negative, but got {n}")
    kind = x.dtype
    if not (kind.is_floating_point or kind.is_complex):
        x = x.to(dtypes.int64)
    ones = x.new_ones((x.shape[0], 1))
    if n < 2:
        return ones[:, :n]
    powers = cumprod(unsqueeze(x, 1).expand(-1, n - 1), 1)
    out = cat([ones, powers], 1)
    return out if increasing else out.flip(1)


# --- triangles and places ----------------------------------------------------------------------
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike = dtypes.int64,
    device: DeviceLike | None = None, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The rows and columns of the elements on and below a diagonal, as a [2, count] tensor."""
    return _triangle(
        "tril_indices", np.tri(*_extent(row, col), k=offset, dtype=bool), dtype, device
    )


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike = dtypes.int64,
    device: DeviceLike | None = None, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The rows and columns of the elements on and above a diagonal, as a [2, count] tensor."""
    below = np.tri(*_extent(row, col), k=offset - 1, dtype=bool)
    return _triangle("triu_indices", ~below, dtype, device)


def _extent(row: int, col: int) -> tuple[int, int]:
    if row < 0 or col < 0:
        name, given = ("row", row) if row < 0 else ("col", col)
        raise ShapeError(f"tril_indices, triu_indices: {name} must be non-negative, got {given}")
    return row, col


def _triangle(where: str, held: np.ndarray, dtype: DTypeLike, device: Any) -> Tensor:
    kind = dtypes.as_dtype(dtype)
    if kind not in (dtypes.int32, dtypes.int64):
        raise DTypeError(
            f'{where}: "{where}" not implemented for {kind!r}; int32 or int64 is needed'
        )
    return tensor(np.stack(np.nonzero(held)), dtype=kind, device=device)


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """The coordinates, in a tensor of ``shape``, of places in it when it is flattened."""
    kind = as_input(indices, "unravel_index", "indices").dtype
    if kind.is_floating_point or kind.is_complex or kind is dtypes.bool:
        raise DTypeError(f"unravel_index: expected 'indices' to be integer, but got {kind!r}")
    if not isinstance(shape, (int, np.integer, Sequence)):
        raise TypeError(
            "unravel_index: expected 'shape' to be int or sequence of ints, but got "
            f"{type(shape).__name__}"
        )
    if not isinstance(shape, (int, np.integer)) and any(isinstance(n, float) for n in shape):
        raise TypeError(
            f"unravel_index: expected 'shape' sequence to only contain ints, but got {shape}"
        )
    sizes = as_size((shape,), "unravel_index")
    if any(n < 0 for n in sizes):
        raise ShapeError(f"unravel_index: 'shape' cannot have negative values, but got {sizes}")
    out: list[Tensor] = []
    for n in reversed(sizes):
        out.insert(0, indices % n)
        indices = indices // n
    return tuple(out)


# --- numbers -----------------------------------------------------------------------------------
@computes_in("own")
def polar(abs: Tensor, angle: Tensor) -> Tensor:  # noqa: A002
    """The complex numbers of these sizes and angles (in radians)."""
    parts_of_one_type("polar", as_input(abs, "polar", "abs"), as_input(angle, "polar", "angle"))
    return complex(abs * el.cos(angle), abs * el.sin(angle))


def rsub(input: Tensor, other: Tensor | Scalar, *, alpha: Number = 1) -> Tensor:
    """``other - alpha * input``."""
    return sub(other, input, alpha=alpha)


def scalar_tensor(
    s: Scalar, *, dtype: DTypeLike | None = None, layout: object = None,
    device: DeviceLike | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A number as a tensor without dimensions, of the default type unless ``dtype`` says else."""
    kind = dtypes.get_default_dtype() if dtype is None else dtype
    return full((), s, dtype=kind, device=device, requires_grad=requires_grad)


def inclusive_range(
    start: float, end: float, step: float = 1, *,
    dtype: DTypeLike | None = None, layout: object = None, device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from ``start`` to ``end``, which is one of them; ``arange`` leaves it out. (Torch's
    name is ``range``, which would hide Python's from whoever takes all names.)"""
    if step == 0 or (end - start) * step < 0:
        raise ShapeError(
            "range: step must be nonzero, and upper bound and lower bound consistent with its "
            f"sign; start={start}, end={end}, step={step} given"
        )
    count = int((end - start) / step) + 1
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    wide = dtypes.float64 if kind.is_floating_point else kind
    out = (arange(count, dtype=wide, device=device) * step + start).to(kind)
    return out.requires_grad_() if requires_grad else out


# --- memory ------------------------------------------------------------------------------------
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: DTypeLike | None = None,
    layout: object = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of any values with this shape and these strides (in elements)."""
    sizes, strides = tuple(size), tuple(stride)
    if len(sizes) != len(strides):
        raise ShapeError(
            f"empty_strided: dimensionality of sizes ({len(sizes)}) must match dimensionality of "
            f"strides ({len(strides)})"
        )
    last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    held = empty(0 if 0 in sizes else last + 1, dtype=dtype, device=device)
    out = as_strided(held, sizes, strides).detach()
    return out.requires_grad_() if requires_grad else out


def empty_permuted(
    size: Sequence[int], physical_layout: Sequence[int], *, dtype: DTypeLike | None = None,
    layout: object = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of any values whose dimensions lie in memory in the order ``physical_layout``."""
    sizes, order = tuple(size), tuple(physical_layout)
    if sorted(order) != [*map(int, np.arange(len(sizes)))]:
        raise ShapeError(
            f"empty_permuted: physical_layout={list(order)} is no permutation of the dimensions "
            f"of {list(sizes)}"
        )
    held = empty(tuple(sizes[d] for d in order), dtype=dtype, device=device)
    out = permute(held, *(order.index(d) for d in np.arange(len(sizes)))).detach()
    return out.requires_grad_() if requires_grad else out


__all__ = [
    "block_diag",
    "cartesian_prod",
    "column_stack",
    "combinations",
    "dstack",
    "empty_permuted",
    "empty_strided",
    "polar",
    "row_stack",
    "rsub",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "unravel_index",
    "vander",
]
