"""What ranks tell each other beside the gradients: a few bytes at the end of the last bucket.

Each rank writes its row as small integers, one byte an element, and zeros for the others; so the
sum that the collective makes anyway is every rank's row, exactly, in any element type (256 values
are exact even in bfloat16). Behind the rows, where wanted, one element per parameter counts the
ranks that have used it.

On a device nobody waits for what the others say: there a row is one element, whether gradients are
missing, and it is read when it has come to the host, at a later step. Knows arrays; no group.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....backends.device.memory import Fetched, Memory

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

    def count(self, idle: Sequence[int]) -> None:
        """Before the reduction: this rank has used all parameters but ``idle``."""
        self.used.fill(1)
        self.used[idle] = 0

    def counted(self) -> Any:
        """After it: how many ranks have used each parameter."""
        return self.used


class DeviceRows(Rows):
    """The same on a device."""

    def __init__(self, tail: Any, rank: int, size: int, memory: Memory) -> None:
        self.all, self.rank, self.size, self.memory = tail, rank, size, memory
        self.rows, self.used = tail[:size], tail[size:]
        self.mine = tail[rank : rank + 1]
        self.coming: list[Fetched] = []

    def at(self, tail: object) -> DeviceRows:
        found = DeviceRows(tail, self.rank, self.size, self.memory)
        found.coming = self.coming
        return found

    def write(self, row: Row) -> None:
        self.all.fill(0)
        if row.flags & MISSING:
            self.mine.fill(1)

    def read(self) -> list[Row]:
        self.coming.append(self.memory.fetch(self.rows))
        return []

    def arrived(self) -> list[int]:
        """The ranks that have told, in steps before this one, that they miss gradients."""
        missing: set[int] = set()
        while self.coming and self.coming[0].ready():
            told = self.coming.pop(0).value().astype(np.float32)
            missing |= set(np.flatnonzero(told).tolist())
        return sorted(missing)

    def count(self, idle: Sequence[int]) -> None:
        used = self.memory.pinned(self.used.shape, self.used.dtype)
        used[...] = 1
        used[idle] = 0
        self.memory.copy_to(self.used, used)

    def counted(self) -> Any:
        return self.memory.numbers(self.used)


def rows_in(tail: Any, rank: int, size: int, memory: Memory) -> Rows:
    """What ranks tell in ``tail``, which lies in ``memory``."""
    if memory.on_host:
        return Rows(tail, rank, size)
    return DeviceRows(tail, rank, size, memory)


def extra(size: int, num_params: int, memory: Memory) -> int:
    """How many elements the last bucket has behind its gradients."""
    return size * (ROW if memory.on_host else 1) + num_params
