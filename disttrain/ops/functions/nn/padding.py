"""Padding by a constant or by what is there, with torch's order of widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....core.constants import constant
from ....core.tensor import Tensor
from ....errors import ShapeError
from ....symbolic import as_int, made
from ...primitives import views
from ..gathering import index_select


def pad_widths(pad: Sequence[int], ndim: int) -> tuple:
    """Torch's flat list (last dimension first) as (before, after) per dimension."""
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise ShapeError(
            f"pad: {list(pad)} given for {ndim} dimensions; needed pairs, at most {ndim} of them"
        )
    pairs = [(as_int(pad[i]), as_int(pad[i + 1])) for i in range(0, len(pad), 2)]
    return ((0, 0),) * (ndim - len(pairs)) + tuple(reversed(pairs))


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """``value`` (0 unless given) around ``input``; ``pad`` pairs start at the last dimension."""
    if mode != "constant":
        raise ShapeError(f"pad: mode={mode!r} given; here only 'constant'; nn.functional has more")
    widths = pad_widths(pad, input.ndim)
    if any(w < 0 for pair in widths for w in pair):
        raise ShapeError(f"pad: {list(pad)} given; widths cannot be negative; use slices to crop")
    return views.pad_constant(input, widths=widths, value=0.0 if value is None else value)


def _check_reflected(mode: str, size: int, widths: tuple) -> None:
    if mode == "reflect" and max(widths) >= size:
        raise ShapeError(
            "pad: Padding size should be less than the corresponding input dimension, but got: "
            f"reflection by {widths} of a dimension of size {size}"
        )


# The place that each place of the padded dimension is taken from.
SOURCES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "reflect": lambda places, size: (size - 1) - np.abs((size - 1) - np.abs(places)),
    "replicate": lambda places, size: np.clip(places, 0, size - 1),
    "circular": lambda places, size: places % size,
}


def sources(mode: str, size: int, low: int, high: int) -> np.ndarray:
    """The places that a dimension is taken from, with ``low`` before and ``high`` behind it."""
    return SOURCES[mode](np.arange(-low, size + high), size)


def extended(input: Tensor, widths: Sequence[int], mode: str) -> Tensor:
    """``input`` with elements of its own around it, as ``mode`` of ``SOURCES`` says."""
    for i in range(len(widths) // 2):
        low, high = widths[2 * i], widths[2 * i + 1]
        if low or high:
            size = input.shape[-1 - i]
            _check_reflected(mode, size, (low, high))
            places = made(sources, mode, size, low, high, shape=(low + size + high,))
            input = index_select(input, input.ndim - 1 - i, constant(input, places))
    return input


__all__ = ["pad"]
