"""Public functions that rearrange: reshape, transpose, join, split, repeat. Torch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from ....backends.fused.copies import has_view
from ....context import SLOW, thread
from ....core.annotations import Dims, DTypeLike
from ....core.fast import viewed
from ....core.tensor import Size, Tensor, layout
from ....core.types import dtypes
from ....core.types.casting import computes_in
from ....errors import ConfigError, DeviceError, DimError, DTypeError, ShapeError
from ...primitives import aliases, views
from ...primitives import elementwise as el
from .. import args as check
from .memory_formats import contiguous, stride

ndarray = np.ndarray
_LARGE = 4096  # elements from which a copy costs more than to ask whether it is needed


def _seen(input: Tensor, sizes: tuple) -> Tensor | None:
    """The same memory in another shape, where nothing needs a check, a copy or the gate."""
    mode = thread.mode
    if mode == SLOW:
        return None
    for n in sizes:
        if n.__class__ is not int:
            return None
    x = input.array
    if x.__class__ is not ndarray:
        return None
    if x.size > _LARGE and not (x.flags.c_contiguous or has_view(x, sizes)):
        return None  # (numpy would copy it to find that out)
    try:
        array = x.reshape(sizes)
    except ValueError:
        return None
    base = array.base
    if base is x or (base is not None and base is x.base):
        return viewed(views.reshape, input, array, {"shape": sizes}, mode)
    return None


def reshape(input: Tensor, *sizes: Dims, shape: Dims | None = None) -> Tensor:
    """The same elements in another shape; one size may be -1. Shares memory where possible."""
    if shape is not None:
        sizes = (shape,)
    out = _seen(input, sizes)
    return _reshape("reshape", input, check.size(sizes, "reshape")) if out is None else out


def _reshape(where: str, input: Tensor, sizes: tuple) -> Tensor:
    out = _seen(input, sizes)
    if out is not None:
        return out
    try:
        return views.reshape(input, shape=sizes)
    except ValueError:
        _check_reshape(where, input, sizes)
        raise


def _check_reshape(where: str, input: Tensor, sizes: tuple) -> None:
    total = input.shape.numel()
    known = math.prod(n for n in sizes if n != -1)
    holes = sizes.count(-1)
    fits = known == total if not holes else (known > 0 and total % known == 0)
    if holes == 1 and not known:
        raise ShapeError(
            f"{where}: cannot reshape tensor of {total} elements into shape {list(sizes)} because "
            "the unspecified dimension size -1 can be any value and is ambiguous"
        )
    if holes > 1 or not fits or any(n < -1 for n in sizes):
        raise ShapeError(
            f"{where}: shape {list(input.shape)} has {total} elements and cannot become "
            f"{list(sizes)}; the sizes must multiply to {total}, with at most one -1"
        )


def view(
    input: Tensor, *shape: Dims, size: Dims | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """As ``reshape``, but always sharing memory; a dtype reinterprets the bytes."""
    if size is not None or dtype is not None:
        shape = (dtype if size is None else size,)  # type: ignore[assignment]
    out = _seen(input, shape)
    if out is not None:
        return out
    if len(shape) == 1 and not isinstance(shape[0], (int, np.integer, Sequence, Tensor)):
        return _view_dtype(input, shape[0])
    sizes = check.size(shape, "view")
    out = _reshape("view", input, sizes)
    if out._st is None and out.__class__ is Tensor and not input.is_meta and input.shape.numel():
        raise ShapeError(
            f"view: a tensor of shape {list(input.shape)} and strides {stride(input)} cannot be "
            f"seen as {list(sizes)} without a copy; use reshape, or .contiguous() first"
        )
    return out


def _view_dtype(input: Tensor, dtype: DTypeLike | None) -> Tensor:
    from_kind = input.dtype
    kind = dtypes.as_dtype(dtype)
    if kind is from_kind:
        return input.detach()  # as all reinterpretations, no part of the graph
    out = input.detach()
    out.array = layout(input).view(kind.np)
    return out


def view_as(input: Tensor, other: Tensor) -> Tensor:
    return view(input, tuple(other.shape))


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    return reshape(input, tuple(other.shape))


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Join dimensions ``start_dim`` to ``end_dim`` into one."""
    shape = input.meta()[0]
    n = len(shape)
    if n == 0:
        check.one_dim(start_dim, n, "flatten")
        check.one_dim(end_dim, n, "flatten")
        return _reshape("flatten", input, (1,))
    if end_dim == -1 and 0 <= start_dim < n - 1:
        out = _seen(input, (*shape[:start_dim], -1))
        if out is not None:
            return out
    first = check.one_dim(start_dim, n, "flatten")
    last = check.one_dim(end_dim, n, "flatten")
    if first == last:
        return input
    if first > last:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    joined = (math.prod(shape[first : last + 1]),)
    return _reshape("flatten", input, shape[:first] + joined + shape[last + 1 :])


def ravel(input: Tensor) -> Tensor:
    """All elements as one dimension, next to each other in memory: a copy where they are not."""
    return _reshape("ravel", contiguous(input), (-1,))


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split dimension ``dim`` into ``sizes`` (one may be -1)."""
    d = check.one_dim(dim, input.ndim, "unflatten")
    shape = tuple(input.shape)
    return reshape(input, (*shape[:d], *_fill_hole(sizes, shape[d]), *shape[d + 1 :]))


def _fill_hole(sizes: Sequence[int], total: int) -> tuple:
    known = math.prod(n for n in sizes if n != -1)
    return tuple(total // max(known, 1) if n == -1 else n for n in sizes)


def permute(input: Tensor, *places: Dims, dims: Dims | None = None) -> Tensor:
    """Reorder the dimensions."""
    order: tuple = places if len(places) > 1 else check.size(places, "permute", dims)
    mode = thread.mode
    if mode != SLOW:
        x = input.array
        if x.__class__ is ndarray:
            try:
                array = x.transpose(order)
                negative = min(order) < 0
            except (ValueError, TypeError):
                negative = True
            if not negative:
                return viewed(views.permute, input, array, {"dims": order}, mode)
    order = check.size(places, "permute", dims)
    if len(order) != input.ndim:
        raise DimError(
            f"permute: {list(order)} given for a tensor with {input.ndim} dimensions; name each "
            "dimension once"
        )
    order = tuple(check.one_dim(d, input.ndim, "permute") for d in order)
    if len(set(order)) != len(order):
        raise DimError(f"permute: {list(order)} names a dimension twice")
    return views.permute(input, dims=order)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swap two dimensions."""
    mode = thread.mode
    if mode != SLOW:
        x = input.array
        order = list(range(x.ndim))
        try:
            order[dim0], order[dim1] = order[dim1], order[dim0]
        except (IndexError, TypeError):
            pass
        else:
            if x.__class__ is ndarray:
                how = {"dims": tuple(order)}
                return viewed(views.permute, input, x.transpose(order), how, mode)
    n = input.ndim
    a, b = check.one_dim(dim0, n, "transpose"), check.one_dim(dim1, n, "transpose")
    order = list(range(n))
    if n:
        order[a], order[b] = b, a
    return views.permute(input, dims=tuple(order))


swapaxes = swapdims = transpose


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix (a vector stays)."""
    mode = thread.mode
    if mode != SLOW:
        x = input.array
        if x.__class__ is ndarray and x.ndim == 2:
            return viewed(views.permute, input, x.T, _SWAP, mode)
    n = input.ndim
    if n > 2:
        raise ShapeError(
            f"t: shape {list(input.shape)} given; at most 2 dimensions are allowed; use "
            "transpose(dim0, dim1) or .mT"
        )
    return views.permute(input, dims=(1, 0) if n == 2 else (0,) * n)


_SWAP = {"dims": (1, 0)}


def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Move dimensions to other places, the rest keeping their order."""
    n = input.ndim
    pairs = [(d,) if isinstance(d, (int, np.integer)) else d for d in (source, destination)]
    if None in pairs or len(pairs[0]) != len(pairs[1]):
        raise DimError(
            f"movedim: source={source} and destination={destination} given; needed as many of one "
            "as of the other"
        )
    if not pairs[0]:
        return views.permute(input, dims=tuple(range(n)))
    src = check.dims(source, n, "movedim")
    dst = check.dims(destination, n, "movedim")
    rest = iter([d for d in range(n) if d not in src])
    place = dict(zip(dst, src, strict=True))
    return views.permute(
        input, dims=tuple(place[i] if i in place else next(rest) for i in range(n))
    )


moveaxis = movedim


def squeeze(input: Tensor, dim: Dims | None = None, *, axis: Dims | None = None) -> Tensor:
    """Drop dimensions of size 1 (all, or those named that have size 1); ``axis`` is numpy's name
    of ``dim``."""
    shape = input.meta()[0]
    if dim is None:
        dim = axis
    drop = () if dim == () else check.dims(dim, len(shape), "squeeze")
    kept = tuple([n for i, n in enumerate(shape) if n != 1 or i not in drop])
    return _reshape("squeeze", input, kept)


def unsqueeze(input: Tensor, dim: int | None = None, *, axis: int | None = None) -> Tensor:
    """Add a dimension of size 1 at ``dim``; ``axis`` is numpy's name of it."""
    mode = thread.mode
    if dim is None:
        dim = cast("int", axis)  # (None is refused below)
    if mode != SLOW and dim.__class__ is int:
        x = input.array
        n = x.ndim
        if x.__class__ is ndarray and -n - 2 < dim <= n:
            sizes = list(x.shape)
            sizes.insert(dim if dim >= 0 else dim + n + 1, 1)
            return viewed(views.reshape, input, x.reshape(sizes), {"shape": tuple(sizes)}, mode)
    shape = input.meta()[0]
    d = check.one_dim(dim, len(shape) + 1, "unsqueeze")
    return _reshape("unsqueeze", input, (*shape[:d], 1, *shape[d:]))


def expand(input: Tensor, *sizes: Dims, size: Dims | None = None) -> Tensor:
    """Repeat dimensions of size 1 without a copy; -1 keeps a size."""
    target = check.size(sizes, "expand", size)
    mode = thread.mode
    if mode != SLOW:
        x = input.array
        if x.__class__ is ndarray and -1 not in target:
            try:
                array = views.expand.forward(x, target)
            except ValueError:
                pass
            else:
                return viewed(views.expand, input, array, {"shape": target}, mode)
    shape = tuple(input.shape)
    lead = len(target) - len(shape)
    if lead < 0:
        raise ShapeError(
            f"expand: {list(target)} has fewer dimensions than the tensor's {list(shape)}"
        )
    full = tuple(shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(target))
    for have, want in zip(shape, full[lead:], strict=True):
        if have not in (want, 1):
            raise ShapeError(
                f"expand: The expanded size of the tensor ({want}) must match the existing size "
                f"({have}): shape {list(shape)} cannot become {list(target)}; only dimensions of "
                "size 1 can grow"
            )
    return views.expand(input, shape=full)


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    return expand(input, tuple(other.shape))


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    return expand(input, size)


def broadcast_shapes(*shapes: Sequence[int]) -> Size:
    """The common shape that all broadcast to."""
    return Size(check.broadcast("broadcast_shapes", *shapes))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return tuple(t if tuple(t.shape) == tuple(shape) else expand(t, shape) for t in tensors)


def flip(input: Tensor, *args: Dims, dims: Dims | None = None) -> Tensor:
    """Reverse the order along ``dims``, numbers or one sequence of them."""
    if not args and dims is None:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    wanted = check.size(args, "flip", (dims,) if isinstance(dims, int) else dims)
    order = tuple(check.one_dim(d, input.ndim, "flip") for d in wanted)
    if len(set(order)) != len(order):
        raise DimError(
            f"flip: dims={list(order)}: a dim appears multiple times in the list of dims"
        )
    return views.flip(input, dims=order if input.ndim else ())


def reverse(input: Tensor) -> Tensor:
    """The last slice along the first dimension first."""
    return flip(input, 0) if input.ndim else input


def fliplr(input: Tensor) -> Tensor:
    if check.tensor(input, "fliplr").ndim < 2:
        raise ShapeError(f"fliplr: Input must be >= 2-d. Shape {list(input.shape)} given")
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    if not check.tensor(input, "flipud").ndim:
        raise ShapeError("flipud: Input must be >= 1-d. Shape [] given")
    return flip(input, 0)


def roll(input: Tensor, shifts: Dims, dims: Dims | None = None) -> Tensor:
    """Shift around the end; the flattened tensor when ``dims`` is None."""
    if not isinstance(shifts, int) and getattr(shifts, "ndim", 1) == 0:  # numpy's numbers, tensors
        shifts = int(cast("int", shifts))
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None:
        if len(shifts) != 1:
            raise ShapeError(f"roll: {len(shifts)} shifts given without dims; one is needed")
        flat = views.roll(views.reshape(input, shape=(-1,)), shifts=shifts, dims=(0,))
        return views.reshape(flat, shape=tuple(input.shape))
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if not input.shape.numel() and len(dims) == len(shifts):
        return el.copy(input)
    if not dims and len(shifts) == 1:
        return roll(input, shifts)
    if len(dims) != len(shifts):
        raise ShapeError(
            f"roll: shifts={shifts} and dims={dims} given; needed one shift for each dimension"
        )
    over = tuple(check.one_dim(d, input.ndim, "roll") for d in dims)
    return views.roll(input, shifts=shifts, dims=over)


def _matrix(where: str, input: Tensor) -> None:
    if input.ndim < 2:
        raise ShapeError(
            f"{where}: shape {list(input.shape)} given; at least 2 dimensions are needed"
        )


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle; zeros above."""
    _matrix("tril", input)
    return views.tri(input, k=diagonal, upper=False)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle; zeros below."""
    _matrix("triu", input)
    return views.tri(input, k=diagonal, upper=True)


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal over two dimensions, as the last dimension."""
    a = check.one_dim(dim1, input.ndim, "diagonal")
    b = check.one_dim(dim2, input.ndim, "diagonal")
    return aliases.diagonal(input, offset=offset, dim1=a, dim2=b)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with this diagonal, or the diagonal of this matrix."""
    if input.ndim == 2:
        return el.copy(aliases.diagonal(input, offset=diagonal, dim1=0, dim2=1))
    if input.ndim != 1:
        raise ShapeError(f"diag: shape {list(input.shape)} given; a vector or a matrix is needed")
    n = input.shape[0] + abs(diagonal)
    return aliases.diagonal_embed(input, offset=diagonal, dim1=0, dim2=1, shape=(n, n))


@computes_in("own")
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise ShapeError(f"trace: shape {list(input.shape)} given; a matrix is needed")
    check.kinds("trace", "iufVc", input)
    return diag(input).sum()


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise ConfigError(f"meshgrid: indexing={indexing!r} given; needed 'ij' or 'xy'")
    for t in tensors:
        if t.ndim > 1:
            raise ShapeError(
                "meshgrid: Expected 0D or 1D tensor in the tensor list but got one of shape "
                f"{list(t.shape)}"
            )
        if t.meta()[1] != tensors[0].meta()[1]:
            raise DTypeError("meshgrid: expects all tensors to have the same dtype")
        if t.device != tensors[0].device:
            raise DeviceError("meshgrid: expects all tensors to have the same device")
    if indexing == "xy" and len(tensors) > 1:
        swapped = meshgrid(tensors[1], tensors[0], *tensors[2:])
        return (swapped[1], swapped[0], *swapped[2:])
    shape = tuple(t.shape.numel() for t in tensors)
    return tuple(
        views.expand(
            views.reshape(t, shape=tuple(n if i == j else 1 for j, n in enumerate(shape))),
            shape=shape,
        )
        for i, t in enumerate(tensors)
    )


__all__ = [
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "diag",
    "diagonal",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "meshgrid",
    "moveaxis",
    "movedim",
    "permute",
    "ravel",
    "reshape",
    "roll",
    "squeeze",
    "swapaxes",
    "swapdims",
    "t",
    "trace",
    "transpose",
    "tril",
    "triu",
    "unflatten",
    "unsqueeze",
]
