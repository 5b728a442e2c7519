"""Pieces put back, pieces apart, and places in a number that is known before."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.tensor import Tensor
from ....errors import ConfigError, ShapeError
from ..args import tensor as as_input
from ..creation.create import full
from ..gathering import nonzero
from ..views.aliases import _apart, as_strided, split_with_sizes
from ..views.join import cat
from ..views.memory_formats import stride as stride_of
from ..views.split import narrow


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """``nonzero`` as ``size`` rows: the first ones, or all and rows of ``fill_value``."""
    if size < 0:
        raise ConfigError(
            f"nonzero_static: 'size' must be an non-negative integer; size={size} given"
        )
    found = nonzero(as_input(input, "nonzero_static"))
    missing = size - found.shape[0]
    if missing <= 0:
        return narrow(found, 0, 0, size)
    rest = full((missing, found.shape[1]), fill_value, dtype=found.dtype, device=found.device)
    return cat([found, rest], 0)


def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """``split_with_sizes`` whose pieces may be written to; each must then not be used together
    with the rest."""
    return tuple(_apart(t) for t in split_with_sizes(input, split_sizes, dim))


def slice_inverse(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """Of a view ``input``, which is the slice of ``dim`` of something like ``src``, that whole."""
    at = dim if dim >= 0 else dim + src.ndim
    if not 0 <= at < src.ndim:
        raise ShapeError(f"slice_inverse: dim={dim} given for a shape of {list(src.shape)}")
    first = 0 if start is None else max(start + src.shape[at] if start < 0 else start, 0)
    offset = input.storage_offset() - first * stride_of(src, at)
    return as_strided(input, tuple(src.shape), stride_of(src), offset)


__all__ = ["nonzero_static", "slice_inverse", "unsafe_split_with_sizes"]
