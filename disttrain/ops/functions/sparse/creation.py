"""Sparse tensors from places and values, and of dense ones. Torch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends.device.array import DeviceArray
from ....core.annotations import DeviceLike, DTypeLike
from ....core.tensor import Tensor, wrap
from ....core.types import dtypes
from ....core.types.device import CPU, located, usable
from ....core.types.layout import layout as Layout  # noqa: N812
from ....core.types.layout import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from ....errors import DTypeError, LayoutError, ShapeError
from ...primitives import elementwise as el
from ...primitives import gathering as prim
from ...primitives import views
from ...primitives.reduce import any_
from . import checks
from .blocks import BLOCKS, ROWS, in_blocks, of_coordinates, parts
from .compressed import CompressedTensor, converted
from .coo import SparseTensor, flat, made, meetings
from .structured import Structured

_COMPRESSED = {str.__str__(k): k for k in (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)}


def sparse_coo_tensor(
    indices: Any = None,
    values: object = None,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A tensor with ``values`` (count, ...) at ``indices`` (sparse dimensions, count), zeros
    elsewhere. ``size`` None: as large as the indices need; given alone: zeros. Differentiable by
    ``values``; with ``requires_grad`` a leaf. ``is_coalesced``: each place is named once, in
    order."""
    if indices is None or values is None:
        if size is None or indices is not values:
            raise ShapeError(
                "sparse_coo_tensor: needed are indices and values, or a size alone, which gives "
                "zeros"
            )
        zeros = no_places(tuple(int(n) for n in size), dtype, device)
        return zeros.requires_grad_() if requires_grad else zeros
    places = _numbers(indices, "sparse_coo_tensor").astype(np.int64)
    if places.ndim != 2:
        raise ShapeError(
            "sparse_coo_tensor: indices must be sparse_dim x nnz, but got: indices of shape "
            f"{list(places.shape)}"
        )
    held = _held(values, dtype, device, requires_grad)
    counts = tuple(held.shape)
    if size is None:
        size = (*(places.max(1) + 1 if places.size else [0] * len(places)), *counts[1:])
    size = tuple(int(n) for n in size)
    checks.coordinates(places, counts, size)
    if is_coalesced and checks.wanted(check_invariants):
        rows = flat(places, size)
        if (rows[1:] <= rows[:-1]).any():
            raise ShapeError(
                "sparse_coo_tensor: cannot set is_coalesced to true if indices correspond to an "
                "uncoalesced COO tensor"
            )
    out = made(places, held, size, bool(is_coalesced))
    return out.requires_grad_() if requires_grad else out


def _held(values: Any, dtype: Any, device: Any, leaf: bool) -> Tensor:
    """Values as a sparse tensor keeps them: in the graph of those given, or as a leaf."""
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype == np.float64 and not isinstance(values, np.ndarray):  # as tensor() has it
            array = array.astype(dtypes.get_default_dtype().np)
        values = wrap(array)
    if isinstance(values, Structured):
        raise LayoutError(f"values of layout {values.layout!r} given; needed is a strided tensor")
    traced = "array" not in values.__dict__
    if leaf or not (values.requires_grad or traced):
        values = values.detach()
    out = Tensor.to(values, device, dtype) if device is not None or dtype is not None else values
    if leaf:
        return out.requires_grad_()
    return out.view_as(out) if out.requires_grad and out.is_leaf else out


def _numbers(given: Any, where: str) -> np.ndarray:
    """Numbers of places, on the host."""
    host = _hosted(given.detach()) if isinstance(given, Tensor) else np.asarray(given)
    if host.size and host.dtype.kind not in "iu" and isinstance(given, Tensor):
        raise DTypeError(f"{where}: indices must be an int64 tensor, {given.dtype!r} given")
    return host


def _hosted(t: Tensor) -> np.ndarray:
    return t.array.to_host() if isinstance(t.array, DeviceArray) else t.array


def no_places(
    size: tuple[int, ...], dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> SparseTensor:
    """Zeros of this shape, as a sparse tensor."""
    places = np.zeros((len(size), 0), np.int64)
    return made(places, _nothing(dtype, device), size, True)


def _nothing(dtype: Any, device: Any) -> Tensor:
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    there = None if device is None or usable(device) is CPU else located(usable(device))
    numbers = np.zeros(0, kind.np)
    return wrap(numbers if there is None else there.take(numbers))


def zeros_of_layout(
    layout: str, size: tuple[int, ...], dtype: Any = None, device: Any = None
) -> Tensor:
    """Zeros without any place, in one of the sparse layouts."""
    zeros = no_places(size, dtype, device)
    return converted(zeros, layout)


def no_blocks(like: Any, dtype: DTypeLike | None, device: DeviceLike | None) -> CompressedTensor:
    """Zeros of the layout, the shape and the blocks of ``like``, without any block."""
    starts, others = like.places()
    held = like._values().narrow(like._batch, 0, 0).clone()
    held = Tensor.to(held, device, None if dtype is None else dtypes.as_dtype(dtype))
    return parts(like.layout, np.zeros_like(starts), others[..., :0], held, like._size, like._block)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | str | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> CompressedTensor:
    """A matrix in the layout sparse_csr, sparse_csc, sparse_bsr or sparse_bsc: where each row
    (column) of numbers or of blocks begins, the column (row) of each, the values (count, ...) or
    (count, rows of a block, columns of a block, ...); or a batch of such, with dimensions of the
    batch in front of all. Differentiable by ``values``."""
    if layout not in _COMPRESSED:
        raise ShapeError(
            f"sparse_compressed_tensor: layout {layout!r} given; needed is sparse_csr, sparse_csc, "
            "sparse_bsr or sparse_bsc"
        )
    where = _COMPRESSED[str.__str__(layout)]
    name = str.__str__(where)
    starts, others = (_numbers(x, f"{name}_tensor") for x in (compressed_indices, plain_indices))
    held = _held(values, dtype, device, requires_grad)
    block = checks.parts(name, starts, others, tuple(held.shape))
    batch, inner = starts.ndim - 1, 2 if name in BLOCKS else 0
    if size is None:
        lines, across = starts.shape[-1] - 1, int(others.max()) + 1 if others.size else 0
        pair = (lines, across) if name in ROWS else (across, lines)
        high, wide = (n * b for n, b in zip(pair, block, strict=True))
        size = (*starts.shape[:-1], high, wide, *held.shape[batch + 1 + inner :])
    size = tuple(int(n) for n in size)
    checks.lines(name, starts, others, tuple(held.shape), size, block)
    if checks.wanted(check_invariants):
        grid = tuple(n // b for n, b in zip(size[batch : batch + 2], block, strict=True))
        for at in np.ndindex(starts.shape[:-1]):
            checks.numbers(name, starts[at], others[at], grid)
    out = parts(where, starts, others, held, size, block)
    return out.requires_grad_() if requires_grad else out


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> CompressedTensor:
    """A matrix whose rows are compressed: see ``sparse_compressed_tensor``."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, dtype=dtype, layout=sparse_csr, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> CompressedTensor:
    """A matrix whose columns are compressed: see ``sparse_compressed_tensor``."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, dtype=dtype, layout=sparse_csc, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_bsr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> CompressedTensor:
    """Blocks of a matrix, their rows compressed: see ``sparse_compressed_tensor``."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, dtype=dtype, layout=sparse_bsr, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


def sparse_bsc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> CompressedTensor:
    """Blocks of a matrix, their columns compressed: see ``sparse_compressed_tensor``."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, dtype=dtype, layout=sparse_bsc, device=device,
        requires_grad=requires_grad, check_invariants=check_invariants,
    )  # fmt: skip


# --- dense tensors as sparse ones --------------------------------------------------------------
def to_sparse(
    input: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: Layout | str | None = None,
    blocksize: Sequence[int] | int | None = None,
    dense_dim: int | None = None,
) -> Any:
    """The places of ``input`` that are not zero; of its first ``sparse_dim`` dimensions (None: of
    all), with the rest as dense values; or in another ``layout``. Differentiable."""
    if layout in _COMPRESSED and sparse_dim is None:
        return in_blocks(input, layout, blocksize, dense_dim or 0)
    if blocksize is not None:
        raise ShapeError(
            f"to_sparse: conversion to {layout or 'sparse_coo'} with blocksize argument given is "
            "not supported"
        )
    count = input.ndim - (dense_dim or 0) if sparse_dim is None else sparse_dim
    if not 0 < count <= input.ndim:
        raise ShapeError(
            f"to_sparse: sparse_dim={sparse_dim} of a tensor with {input.ndim} dimensions"
        )
    places = np.stack(np.nonzero(_filled(input.detach(), count))).astype(np.int64)
    coo = _at(input, places)
    return coo if layout is None else converted(coo, layout)


def _at(dense: Tensor, places: np.ndarray) -> SparseTensor:
    """The values of ``dense`` at ``places``, which are in order, each once."""
    size = tuple(dense.shape)
    count = len(places)
    shape = (math.prod(size[:count]), *size[count:])
    out = made(places, dense, size, True)
    rows = views.reshape(dense, shape=shape)
    out._held = prim.take(rows, out.index(flat(places, size)), dim=0, skip=None)
    return out


def _filled(dense: Tensor, count: int) -> np.ndarray:
    """Where, in its first ``count`` dimensions, ``dense`` is not zero."""
    size = dense.shape  # of a device, only the marks come to the host
    rows = views.reshape(el.ne(dense, 0), shape=(*size[:count], math.prod(size[count:])))
    return _hosted(any_(rows, dims=(count,), keepdim=False))


def to_dense(
    input: Tensor, dtype: DTypeLike | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """``input`` itself, which is dense (in type ``dtype``); a sparse tensor as a dense one."""
    return input if dtype is None else Tensor.to(input, dtypes.as_dtype(dtype))


def to_sparse_coo(input: Tensor) -> SparseTensor:
    """The places that are not zero, as coordinates."""
    return to_sparse(input)


def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> CompressedTensor:
    """The places that are not zero, rows compressed."""
    return to_sparse(input, layout=sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(input: Tensor, dense_dim: int | None = None) -> CompressedTensor:
    """The places that are not zero, columns compressed."""
    return to_sparse(input, layout=sparse_csc, dense_dim=dense_dim)


def to_sparse_bsr(
    input: Tensor, blocksize: Sequence[int] | int, dense_dim: int | None = None
) -> CompressedTensor:
    """The blocks that are not zero (of a sparse one: that have a place), their rows compressed."""
    return _blocked(input, sparse_bsr, blocksize, dense_dim)


def to_sparse_bsc(
    input: Tensor, blocksize: Sequence[int] | int, dense_dim: int | None = None
) -> CompressedTensor:
    """The blocks that are not zero (of a sparse one: that have a place), columns compressed."""
    return _blocked(input, sparse_bsc, blocksize, dense_dim)


def _blocked(input: Any, wanted: Layout, blocksize: Any, dense_dim: int | None) -> CompressedTensor:
    if isinstance(input, int):
        raise TypeError("blocksize must be two numbers")
    if isinstance(input, CompressedTensor):
        if type(input) is not CompressedTensor:
            found: CompressedTensor = input._converted(wanted, blocksize)
            return found
        input = input.as_coordinates()
    if isinstance(input, SparseTensor):
        return of_coordinates(input.coalesce(), wanted, blocksize)
    return in_blocks(input, wanted, blocksize, dense_dim or 0)


def sparse_mask(input: Tensor, mask: Any) -> Any:
    """``input`` at the places of the sparse tensor ``mask``. Differentiable."""
    if not isinstance(mask, Structured):
        raise LayoutError(
            "sparse_mask: Could not run 'aten::sparse_mask': the mask is to be a sparse tensor, "
            f"one of layout {mask.layout!r} was given"
        )
    if tuple(input.shape) != tuple(mask.shape):
        raise ShapeError(
            f"sparse_mask: operands have incompatible sizes; self has size {list(input.shape)} but "
            f"mask has size {list(mask.shape)}"
        )
    if isinstance(input, Structured):
        return _masked(converted(input, "sparse_coo").coalesce(), mask)
    rest = tuple(input.shape[mask.sparse_dim() :])
    rows = views.reshape(input, shape=(math.prod(mask._places_shape()), *rest))
    return mask.with_values(prim.take(rows, mask.index(mask.flat()), dim=0, skip=None))


def _masked(input: SparseTensor, mask: Any) -> Any:
    """The same of a sparse ``input``, whose dense form may be too large."""
    if input.sparse_dim() != mask.sparse_dim():
        input = to_sparse(input.to_dense(), mask.sparse_dim())
    n = math.prod(mask._places_shape())
    which, found = meetings(input.flat(), mask.flat(), n)
    values = prim.take(input._held, mask.index(found), dim=0, skip=None)
    shape = (mask._nnz(), *values.shape[1:])
    return mask.with_values(prim.spread(values, mask.index(which), dim=0, shape=shape, skip=None))


# --- what strided tensors say when they are asked for places ------------------------------------
def _expects(what: str, kind: str) -> Any:
    def refuse(self: Tensor) -> Tensor:
        raise ShapeError(f"{what} expected sparse {kind}tensor layout but got Strided")

    refuse.__name__ = refuse.__qualname__ = what
    refuse.__doc__ = f"Of a sparse {kind}tensor; a strided one has none."
    return refuse


def _nnz(self: Tensor) -> int:
    """Of a sparse tensor, how many places it has; a strided one has none."""
    raise LayoutError("Could not run 'aten::_nnz' with arguments from the 'CPU' backend")


def is_coalesced(self: Tensor) -> bool:
    """Of a sparse tensor, whether every place is known to be named once."""
    raise ShapeError("is_coalesced expected sparse coordinate tensor layout but got Strided")


def sparse_dim(self: Tensor) -> int:
    """How many dimensions are given by places: none."""
    return 0


def dense_dim(self: Tensor) -> int:
    """How many dimensions are dense: all."""
    return self.ndim


def _has_no(what: str) -> Any:
    def refuse(self: Tensor, *args: Any) -> Tensor:
        raise LayoutError(
            f"Could not run 'aten::{what}' with arguments from the 'CPU' backend: it is for sparse "
            "tensors"
        )

    refuse.__name__ = refuse.__qualname__ = what
    refuse.__doc__ = "Of a sparse tensor alone: its shape, and how many dimensions are sparse."
    return refuse


METHODS = {
    **{
        name: _has_no(name)
        for name in ("resize_as_sparse_", "sparse_resize_", "sparse_resize_and_clear_")
    },
    "values": _expects("values", ""),
    "_nnz": _nnz,
    "sparse_dim": sparse_dim,
    "dense_dim": dense_dim,
    "sparse_mask": sparse_mask,
    "to_sparse_coo": to_sparse_coo,
    "to_sparse_csr": to_sparse_csr,
    "to_sparse_csc": to_sparse_csc,
    "to_sparse_bsr": to_sparse_bsr,
    "to_sparse_bsc": to_sparse_bsc,
    "is_coalesced": is_coalesced,
    **{
        name: _expects(name, "coordinate ")
        for name in ("indices", "_indices", "_values", "coalesce")
    },
    **{name: _expects(name, "row compressed ") for name in ("crow_indices", "col_indices")},
    **{name: _expects(name, "column compressed ") for name in ("ccol_indices", "row_indices")},
}

__all__ = [
    "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor",
    "sparse_csc_tensor", "sparse_csr_tensor", "to_dense", "to_sparse",
]  # fmt: skip
