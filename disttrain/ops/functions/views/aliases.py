"""Public functions that see the same memory in another way, and their copying twins. Torch's names.

``f_scatter(input, src, ...)`` is a copy of ``input`` with ``src`` where the view ``f`` would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....backends.device.array import DeviceArray
from ....core.annotations import Dims
from ....core.tensor import Tensor, layout
from ....core.types.casting import computes_in
from ....errors import DimError, DTypeError, ShapeError
from ...primitives import aliases as prim
from ...primitives import elementwise as el
from ...primitives import views
from ...primitives.write import view_write
from ..args import one_dim
from ..args import size as as_size
from ..args import tensor as as_input
from . import shapes as shape
from . import split as pieces
from .memory_formats import stride


# --- complex numbers and their parts -----------------------------------------------------------
def real(input: Tensor) -> Tensor:
    """The real part, as a view; a real tensor itself."""
    return prim.real(input) if input.dtype.is_complex else input


def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex tensor, as a view."""
    if not input.dtype.is_complex:
        raise DTypeError(
            f"imag: a tensor of {input.dtype!r} given; imag is only implemented for tensors with "
            "complex dtypes"
        )
    return prim.imag(input)


def view_as_real(input: Tensor) -> Tensor:
    """A complex (...) as its parts (..., 2), a view."""
    if not input.dtype.is_complex:
        raise DTypeError(f"view_as_real: {input.dtype!r} given; a complex tensor is needed")
    return prim.view_as_real(input)


@computes_in("own")
def view_as_complex(input: Tensor) -> Tensor:
    """Parts (..., 2) as complex numbers (...), a view: pairs must be neighbours in memory."""
    if not input.dtype.is_floating_point or input.ndim == 0 or input.shape[-1] != 2:
        raise ShapeError(
            f"view_as_complex: {input.dtype!r} of shape {list(input.shape)} given; needed "
            "floating-point numbers (..., 2)"
        )
    steps = (2,) * input.ndim if input.is_meta else stride(input)
    if input.shape.numel() and (steps[-1] != 1 or any(s % 2 for s in steps[:-1])):
        raise ShapeError(
            f"view_as_complex: strides {list(steps)} given; the last must be 1 and the others "
            "even; use .contiguous() first"
        )
    return prim.view_as_complex(input)


def view_as_real_copy(input: Tensor) -> Tensor:
    """As ``view_as_real``, in memory of its own."""
    return el.copy(view_as_real(input))


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions swapped, conjugated where complex."""
    if input.ndim == 1:
        raise ShapeError(
            f"adjoint: only supported on matrices or batches of matrices; shape "
            f"{list(input.shape)} given"
        )
    return el.H(shape.transpose(input, -2, -1) if input.ndim else input)


def matrix_transpose(input: Tensor) -> Tensor:
    """``Tensor.mT``: the last two dimensions swapped."""
    if input.ndim == 1:
        raise ShapeError(
            f"mT: only supported on matrices or batches of matrices; shape {list(input.shape)} "
            "given"
        )
    return shape.transpose(input, -2, -1) if input.ndim else input


def hermitian(input: Tensor) -> Tensor:
    """``Tensor.H``: the adjoint of a matrix."""
    if input.ndim not in (0, 2):
        raise ShapeError(
            f"H: only supported on matrices (2-D tensors); shape {list(input.shape)} given; use mH "
            "for batches of matrices"
        )
    return adjoint(input)


def resolve_conj(input: Tensor) -> Tensor:
    """``input`` itself: conjugation is never put off here."""
    return input


def is_conj(input: Tensor) -> bool:
    """False: conjugation is never put off here."""
    return False


def is_neg(input: Tensor) -> bool:
    """False: negation is never put off here."""
    return False


def resolve_neg(input: Tensor) -> Tensor:
    """``input`` itself: negation is never put off here."""
    return input


def positive(input: Tensor) -> Tensor:
    """``+input``: ``input`` itself, which must not be boolean."""
    if input.meta()[1].kind == "b":
        raise DTypeError("positive: the `+` operator, on a bool tensor is not supported")
    return input


def detach(input: Tensor) -> Tensor:
    """The same memory, no part of the graph."""
    return input.detach()


# --- windows, strides, memory ------------------------------------------------------------------
def windows(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """``Tensor.unfold``: windows of ``size`` every ``step`` along ``dimension``, as a new last
    dimension; a view."""
    d = one_dim(dimension, input.ndim, "unfold")
    have = input.shape[d] if input.ndim else 1
    if size < 0:
        raise ShapeError(f"unfold: size is {size} but must be >= 0")
    if size > have:
        raise ShapeError(
            f"unfold: maximum size for tensor at dimension {d} is {have} but size is {size}"
        )
    if step <= 0:
        raise ShapeError(f"unfold: step is {step} but must be > 0")
    return prim.unfold(input, dim=d, size=int(size), step=int(step))


def check_strided(where: str, sizes: tuple, strides: tuple, offset: int, total: int) -> None:
    if len(sizes) != len(strides):
        raise ShapeError(
            f"{where}: mismatch in length of strides and shape: {list(strides)} and {list(sizes)}"
        )
    if any(n < 0 for n in (*sizes, *strides, offset)):
        raise ShapeError(f"{where}: sizes, strides and the offset cannot be negative")
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if 0 not in sizes and last >= total:
        raise ShapeError(
            f"{where}: sizes {list(sizes)}, strides {list(strides)} and offset {offset} need "
            f"{last + 1} elements; the storage has {total}"
        )


def _strided(where: str, input: Tensor, sizes: object, strides: object, offset: int | None) -> dict:
    if input.array.__class__ not in (np.ndarray, DeviceArray):
        raise ShapeError(
            f"{where}: a tensor of shape {list(input.shape)} without data (on the meta device), or "
            "whose data lies on several ranks, has no strides to view; slice it, or take a "
            "DTensor's full_tensor() first"
        )
    lies = prim.layout_of(layout(input))
    sizes, strides = as_size((sizes,), where), as_size((strides,), where)
    offset = lies.first if offset is None else int(offset)
    check_strided(where, sizes, strides, offset, lies.total)
    return {"size": sizes, "stride": strides, "offset": offset, "layout": lies}


def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view of the storage of ``input`` with these sizes, strides and first element."""
    return prim.as_strided(input, **_strided("as_strided", input, size, stride, storage_offset))


def storage_offset(input: Tensor) -> int:
    """Where the first element lies in the storage, in elements."""
    if input.array.__class__ not in (np.ndarray, DeviceArray) or not input.array.size:
        return 0
    return prim.layout_of(layout(input)).first


# --- pieces ------------------------------------------------------------------------------------
def _least(where: str, input: Tensor, ndim: int) -> None:
    if input.ndim < ndim:
        raise ShapeError(
            f"torch.{where} requires a tensor with at least {ndim} dimension"
            f"{'s' if ndim > 1 else ''}, but got a tensor of shape {list(input.shape)}"
        )


def hsplit(input: Tensor, indices_or_sections: Dims | Tensor) -> tuple[Tensor, ...]:
    """``tensor_split`` along the second dimension (the first of a vector), in equal parts."""
    _least("hsplit", input, 1)
    return _equal("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Dims | Tensor) -> tuple[Tensor, ...]:
    """``tensor_split`` along the first dimension, in equal parts."""
    _least("vsplit", input, 2)
    return _equal("vsplit", input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Dims | Tensor) -> tuple[Tensor, ...]:
    """``tensor_split`` along the third dimension, in equal parts."""
    _least("dsplit", input, 3)
    return _equal("dsplit", input, indices_or_sections, 2)


def _equal(where: str, input: Tensor, parts: Any, dim: int) -> tuple:
    if isinstance(parts, (int, np.integer)) and (parts < 1 or input.shape[dim] % parts):
        raise ShapeError(
            f"torch.{where} attempted to split along dimension {dim}, but the size of the "
            f"dimension {input.shape[dim]} is not divisible by the split_size {parts}: parts are "
            "equal"
        )
    return pieces.tensor_split(input, parts, dim)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of these sizes."""
    return pieces.split(input, list(split_sizes), dim)


def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``split`` whose pieces may be written to; each must then not be used together with the
    rest."""
    return tuple(_apart(t) for t in pieces.split(input, split_size, dim))


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``chunk``, as ``unsafe_split``."""
    return tuple(_apart(t) for t in pieces.chunk(input, chunks, dim))


def _apart(view: Tensor) -> Tensor:
    """The same memory and place in the graph, but no view: writes are nobody else's."""
    out = view.alias()
    out._node = view.graph_node()
    return out


def _at_least(ndim: int, tensors: tuple, grow: Callable[..., Any]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
        return tuple(t if t.ndim >= ndim else grow(t) for t in tensors)
    out = tuple(t if t.ndim >= ndim else grow(t) for t in tensors)
    return out[0] if len(out) == 1 else out


def atleast_1d(*tensors: Tensor) -> Any:
    """0-d tensors as vectors of one element."""
    return _at_least(1, tensors, lambda t: shape.reshape(t, (1,)))


def atleast_2d(*tensors: Tensor) -> Any:
    """With dimensions of size 1 in front, up to two."""
    return _at_least(2, tensors, lambda t: shape.reshape(t, (1, t.shape.numel())))


def atleast_3d(*tensors: Tensor) -> Any:
    """With dimensions of size 1 around, up to three: (n) is (1, n, 1), (m, n) is (m, n, 1)."""
    return _at_least(
        3,
        tensors,
        lambda t: shape.unsqueeze(t, 2) if t.ndim == 2 else
        shape.reshape(t, (1, t.shape.numel(), 1)),
    )  # fmt: skip


def sum_to_size(input: Tensor, *sizes: Dims, size: Dims | None = None) -> Tensor:
    """Summed over what broadcasting from ``sizes`` would have repeated."""
    want, have = as_size(sizes, "sum_to_size", size), tuple(input.shape)
    lead = len(have) - len(want)
    if lead < 0 or any(w not in (h, 1) for h, w in zip(have[lead:], want, strict=True)):
        raise ShapeError(f"sum_to_size: size {list(want)} is not expandable to size {list(have)}")
    if want == have:
        return input
    dims = [i for i, h in enumerate(have) if i < lead or (want[i - lead] == 1 and h != 1)]
    return shape.reshape(input.sum(dims) if dims else input, want)


# --- copies ------------------------------------------------------------------------------------
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A copy of ``narrow``."""
    return el.copy(pieces.narrow(input, dim, start, length))


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension as the diagonal of the matrices over ``dim1`` and ``dim2``; else zeros."""
    n = input.ndim + 1
    a, b = one_dim(dim1, n, "diag_embed"), one_dim(dim2, n, "diag_embed")
    if a == b:
        raise DimError(f"diag_embed: dim1={dim1} and dim2={dim2} are the same dimension")
    edge = input.shape[-1] + abs(offset)
    rest = iter(tuple(input.shape)[:-1])
    full = tuple(edge if i in (a, b) else next(rest) for i in range(n))
    return prim.diagonal_embed(input, offset=offset, dim1=a, dim2=b, shape=full)


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the elements of ``input`` on its diagonal."""
    return diag_embed(shape.reshape(input, (-1,)), offset)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by 90 degrees ``k`` times, from the first of ``dims`` towards the second."""
    if len(dims) != 2 or input.ndim < 2:
        raise ShapeError(
            f"rot90: dims={list(dims)} given for shape {list(input.shape)}; needed two dimensions"
        )
    a, b = (one_dim(d, input.ndim, "rot90") for d in dims)
    if a == b:
        raise DimError(f"rot90: dims={list(dims)} names a dimension twice")
    k = k % 4  # (``k`` may be an array, which is not to change)
    if k == 0:
        return el.copy(input)
    if k == 2:
        return shape.flip(input, a, b)
    if k == 1:
        return shape.transpose(shape.flip(input, b), a, b)
    return shape.transpose(shape.flip(input, a), a, b)


def _written(where: str, input: Tensor, src: Tensor, how: tuple[Any, dict]) -> Tensor:
    """A copy of ``input`` with ``src`` in place of the view ``how``."""
    view, params = how
    need = tuple(view(input.detach(), **params).shape)
    if tuple(as_input(src, where, "src").shape) != need:
        raise ShapeError(
            f"{where}: src of shape {list(src.shape)} given; expected src to have a size equal to "
            f"that of the part it replaces, {list(need)}"
        )
    kind = input.meta()[1]
    src = src if src.meta()[1] == kind else el.cast(src, dtype=kind)
    return view_write(input, src, chain=(how,))


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """``input`` with ``src`` as element ``index`` along ``dim``."""
    d = one_dim(dim, input.ndim, "select_scatter")
    n = input.shape[d]
    if not -n <= index < n:
        raise DimError(
            f"select_scatter: index {index} is out of range for dimension {dim} of size {n}"
        )
    how = {"index": (slice(None),) * d + (int(index),)}
    return _written("select_scatter", input, src, (views.getitem, how))


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """``input`` with ``src`` as the slice ``start:end:step`` along ``dim``."""
    d = one_dim(dim, input.ndim, "slice_scatter")
    how = {"index": (slice(None),) * d + (slice(start, end, step),)}
    return _written("slice_scatter", input, src, (views.getitem, how))


def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """``input`` with ``src`` as its diagonal."""
    a = one_dim(dim1, input.ndim, "diagonal_scatter")
    b = one_dim(dim2, input.ndim, "diagonal_scatter")
    how = {"offset": offset, "dim1": a, "dim2": b}
    return _written("diagonal_scatter", input, src, (prim.diagonal, how))


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:  # fmt: skip
    """``input`` with ``src`` where ``as_strided`` points to."""
    how = _strided("as_strided_scatter", input, size, stride, storage_offset)
    return _written("as_strided_scatter", input, src, (prim.as_strided, how))


__all__ = [
    "adjoint",
    "as_strided",
    "as_strided_scatter",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "detach",
    "diag_embed",
    "diagflat",
    "diagonal_scatter",
    "dsplit",
    "hsplit",
    "imag",
    "is_conj",
    "is_neg",
    "narrow_copy",
    "positive",
    "real",
    "resolve_conj",
    "resolve_neg",
    "rot90",
    "select_scatter",
    "slice_scatter",
    "split_with_sizes",
    "sum_to_size",
    "unsafe_chunk",
    "unsafe_split",
    "view_as_complex",
    "view_as_real",
    "view_as_real_copy",
    "vsplit",
]
