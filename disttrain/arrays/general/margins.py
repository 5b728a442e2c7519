"""Margins of any sign, and gaps between elements: what convolutions and windows stand on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.tensor import Tensor
from ...core.tensor import wrap as tensor
from ...ops import api as ops
from ...ops.primitives.views import embed

Margins = Sequence[tuple[int, int, int]]  # per dimension: before, after, between


def padded_shape(shape: Sequence[int], margins: Margins) -> tuple[int, ...]:
    """The shape of ``pad``'s result."""
    return tuple(
        lo + hi + n + max(n - 1, 0) * gap for n, (lo, hi, gap) in zip(shape, margins, strict=True)
    )


def pad(x: Tensor, value: Tensor, margins: Margins) -> Tensor:
    """``x`` with ``value`` before, after and between its elements; negative margins cut off."""
    wide = [(max(lo, 0), max(hi, 0), gap) for lo, hi, gap in margins]
    shape = padded_shape(x.shape, wide)
    if shape != tuple(x.shape):
        where = tuple(
            slice(lo, lo + max(n - 1, 0) * (gap + 1) + (n > 0), gap + 1)
            for n, (lo, _, gap) in zip(x.shape, wide, strict=True)
        )
        there = np.zeros(shape, bool)
        there[where] = True
        x = ops.where(tensor(there), embed(x, index=where, shape=shape), value)
    if any(lo < 0 or hi < 0 for lo, hi, _ in margins):
        x = x[tuple(
            slice(max(-lo, 0), n - max(-hi, 0))
            for n, (lo, hi, _) in zip(shape, margins, strict=True)
        )]  # fmt: skip
    return x
