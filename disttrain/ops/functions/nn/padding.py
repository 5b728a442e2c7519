"""Padding by a constant, with torch's order of widths."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.tensor import Tensor
from ....errors import ShapeError
from ...primitives import views


def pad_widths(pad: Sequence[int], ndim: int) -> tuple:
    """Torch's flat list (last dimension first) as (before, after) per dimension."""
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise ShapeError(
            f"pad: {list(pad)} given for {ndim} dimensions; needed pairs, at most {ndim} of them"
        )
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
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


__all__ = ["pad"]
