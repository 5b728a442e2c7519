"""What ranks tell each other beside the gradients: a few bytes at the end of the last bucket.

Each rank writes its row as small integers, one byte an element, and zeros for the others; so the
sum that the collective makes anyway is every rank's row, exactly, in any element type (256 values
are exact even in bfloat16). Behind the rows, where wanted, one element per parameter counts the
ranks that have used it. Knows arrays; no group.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

MISSING = 1  # parameters of this rank have got no gradient
WEIGHTED = 2  # its gradients are multiplied by a weight
JOINED = 4  # it has no more input

_ROW = struct.Struct("<BxxxIfd")
ROW = _ROW.size


class Row(NamedTuple):
    """What one rank says."""

    flags: int
    digest: int = 0
    waited: float = 0.0  # seconds, in the step before
    weight: float = 0.0


class Rows:
    """The rows of all ranks, and the counts of use, in the last elements of a bucket."""

    def __init__(self, tail: np.ndarray, rank: int, size: int) -> None:
        """``tail``: at least ``size * ROW`` elements; what is more counts use."""
        self.all = tail
        self.rows, self.used = tail[: size * ROW], tail[size * ROW :]
        self.mine = tail[rank * ROW : (rank + 1) * ROW]
        self.rank, self.size = rank, size

    def at(self, tail: np.ndarray) -> Rows:
        """The same in other memory."""
        return Rows(tail, self.rank, self.size)

    def write(self, row: Row) -> None:
        """Before the reduction."""
        self.all.fill(0)
        self.mine[...] = np.frombuffer(_ROW.pack(*row), np.uint8)

    def read(self) -> list[Row]:
        """After it: everybody's."""
        raw = self.rows.real.astype(np.uint8).tobytes()
        return [Row(*row) for row in _ROW.iter_unpack(raw)]


def extra(size: int, num_params: int) -> int:
    """How many elements the last bucket has behind its gradients."""
    return size * ROW + num_params
