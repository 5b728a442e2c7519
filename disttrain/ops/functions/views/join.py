"""Public functions that join and repeat: cat, stack, tile. Torch's names."""

from __future__ import annotations

from collections.abc import Sequence

from ....core import Algebra
from ....core.annotations import Dims
from ....core.tensor import Tensor
from ....errors import ShapeError
from ...primitives import elementwise as el
from ...primitives import views
from ...promotion import result_type
from .. import args as check
from .shapes import reshape, unsqueeze


@check.numpy_names
def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Join tensors along an existing dimension."""
    if out is not None:
        return Algebra.into(out, cat, (tensors, dim))
    tensors = tuple(tensors)
    if not tensors:
        raise ShapeError("cat: no tensors given; at least one is needed")
    for i, t in enumerate(tensors):
        check.tensor(t, "cat", f"element {i}")
    # An empty vector joins anything, as programs that grow a tensor from nothing expect.
    full = [t for t in tensors if not (t.ndim == 1 and t.shape[0] == 0)] or [tensors[0]]
    d = check.one_dim(dim, full[0].ndim, "cat")
    _check_cat(full, d)
    kind = full[0].meta()[1]
    if any(t.meta()[1] != kind for t in tensors):
        kind = result_type(*tensors).np
        full = [t if t.meta()[1] == kind else el.cast(t, dtype=kind) for t in full]
    return views.cat(*full, dim=d, sizes=tuple(t.meta()[0][d] for t in full))


concat = concatenate = cat


def _check_cat(tensors: Sequence[Tensor], d: int) -> None:
    first = tensors[0].meta()[0]
    if not first:
        raise ShapeError("cat: 0-d tensors cannot be joined; use stack")
    for i, t in enumerate(tensors):
        shape = t.meta()[0]
        if len(shape) != len(first) or shape[:d] + shape[d + 1 :] != first[:d] + first[d + 1 :]:
            raise ShapeError(
                f"cat: Sizes of tensors must match except in dimension {d}, but tensor {i} has "
                f"shape {list(shape)}, tensor 0 has {list(first)}"
            )


@check.numpy_names
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Join tensors of one shape along a new dimension."""
    if out is not None:
        return Algebra.into(out, stack, (tensors, dim))
    tensors = tuple(tensors)
    if not tensors:
        raise ShapeError("stack: no tensors given; at least one is needed")
    for i, t in enumerate(tensors):
        check.tensor(t, "stack", f"element {i}")
    shape = tensors[0].meta()[0]
    for i, t in enumerate(tensors):
        if t.meta()[0] != shape:
            raise ShapeError(
                f"stack: tensor {i} has shape {list(t.shape)}, tensor 0 has {list(shape)}; all "
                "must be equal"
            )
    d = check.one_dim(dim, len(shape) + 1, "stack")
    return cat([unsqueeze(t, d) for t in tensors], d)


def sequence(where: str, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """``tensors``, which are not one."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{where}(): argument 'tensors' must be tuple of Tensors, not Tensor")
    return tensors


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    tensors = sequence("vstack", tensors)
    return cat([reshape(t, (1, -1)) if t.ndim < 2 else t for t in tensors], 0)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    parts = [reshape(t, (1,)) if t.ndim == 0 else t for t in sequence("hstack", tensors)]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


def repeat(input: Tensor, *sizes: Dims, repeats: Dims | None = None) -> Tensor:
    """Copies side by side: ``sizes`` copies along each dimension."""
    times = check.size(sizes, "repeat", repeats)
    shape = tuple(input.shape)
    lead = len(times) - len(shape)
    if lead < 0:
        raise ShapeError(f"repeat: {list(times)} has fewer numbers than the shape {list(shape)}")
    shape = (1,) * lead + shape
    out = views.reshape(input, shape=tuple(x for n in shape for x in (1, n)))
    out = views.expand(
        out, shape=tuple(x for n, r in zip(shape, times, strict=True) for x in (r, n))
    )
    final = tuple(n * r for n, r in zip(shape, times, strict=True))
    out = views.reshape(out, shape=final)
    # What repeats dimensions of size 1 alone is a view until here.
    alike = all(n == 1 or r == 1 for n, r in zip(shape, times, strict=True))
    return el.copy(out) if alike else out


def tile(input: Tensor, *times: Dims, dims: Dims | None = None) -> Tensor:
    """Copies side by side: as ``repeat``, but missing numbers are those in front."""
    sizes = check.size(times, "tile", dims)
    return repeat(input, (1,) * (input.ndim - len(sizes)) + sizes)


__all__ = [
    "cat",
    "concat",
    "concatenate",
    "hstack",
    "repeat",
    "stack",
    "tile",
    "vstack",
]
