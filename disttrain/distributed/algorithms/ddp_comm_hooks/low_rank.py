"""What PowerSGD computes with: matrices of low rank, and which gradients are worth them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....core import no_grad


@dataclass(frozen=True)
class Family:
    """Gradients, by their places in the bucket, that are approximated together: ``len(places)``
    matrices of ``rows`` x ``cols``, of rank ``rank``."""

    places: tuple[int, ...]
    rows: int
    cols: int
    rank: int


@dataclass(frozen=True)
class Approximation:
    """What becomes of a bucket: ``families`` are compressed, ``plain`` gradients are not.

    ``before`` and ``after``: the numbers of elements that travel without and with compression.
    """

    families: tuple[Family, ...]
    plain: tuple[int, ...]
    before: int
    after: int


def plan(
    shapes: Sequence[tuple[int, ...]], rank: int, min_rate: float, batched: bool
) -> Approximation:
    """Which gradients are compressed: seen as matrices of shape[0] rows, those that shrink to less
    than one ``min_rate``-th. ``batched``: matrices of one shape are computed with together."""
    by_shape: dict[tuple[int, int], list[int]] = {}
    plain, before, after = [], 0, 0
    for i, shape in enumerate(shapes):
        rows = shape[0] if shape else 1
        cols = 1
        for n in shape[1:]:
            cols *= n
        small = (rows + cols) * min(rows, cols, rank)
        before += rows * cols
        if small * min_rate < rows * cols:
            by_shape.setdefault((rows, cols), []).append(i)
            after += small
        else:
            plain.append(i)
            after += rows * cols
    families = [
        Family(places, n, m, min(n, m, rank))
        for (n, m), members in by_shape.items()
        for places in ([tuple(members)] if batched else [(i,) for i in members])
    ]
    return Approximation(tuple(families), tuple(plain), before, after)


def orthogonalize(matrices: Any, epsilon: float = 0) -> None:
    """Make the columns of each matrix of (batch, rows, cols) orthonormal, in place, by the
    modified Gram-Schmidt process; beyond two columns twice, which keeps them orthogonal to
    rounding ("twice is enough": Giraud, Langou, 2002).

    ``epsilon`` is added to lengths. A column of zeros stays one.
    """
    cols = matrices.shape[2]
    with no_grad():
        for _ in range(1 if cols <= 2 else 2):
            for i in range(cols):
                col = matrices[:, :, i : i + 1]
                length = (col * col).sum(1, keepdim=True).sqrt()
                length = length + epsilon if epsilon else length + (length == 0).to(length.dtype)
                col.div_(length)
                if i + 1 < cols:
                    rest = matrices[:, :, i + 1 :]
                    rest.sub_((col * rest).sum(1, keepdim=True) * col)
