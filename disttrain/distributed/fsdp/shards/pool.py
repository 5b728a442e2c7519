"""Memory for full gradients, which the units below one root take turns to use.

Every buffer is as large as the largest unit's gradients, so that one serves for all of them; a
second one exists while the unit before is still being reduced. Where they are large that reduction
is waited for instead. Knows arrays only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends.device.memory import Memory
from ....comm.group.group import ProcessGroup
from ....context import REPEATABLE_SLOT, thread

BIG = 1 << 20  # bytes from which memory counts for more than waiting


class Pool:
    """Buffers of one capacity, and what they are as arrays of some size and type."""

    def __init__(self) -> None:
        self.capacity = 0
        self.settle: Callable[[], None] | None = None  # waits for the reduction that is under way
        self._free: dict[Memory, list[Any]] = {}
        self._views: dict[tuple, Any] = {}  # by (buffer, size, type): one object each
        self._owner: dict[int, tuple[Memory, Any]] = {}  # the buffer of a view, by its id

    def reserve(self, nbytes: int) -> None:
        """Buffers must hold as much; those that do not are given up."""
        if nbytes > self.capacity:
            self.capacity = nbytes
            self._free.clear()
            self._views.clear()

    def take(self, memory: Memory, group: ProcessGroup, numel: int, kind: np.dtype) -> Any:
        """A raw array with any values in it, where ``group`` moves it best."""
        self.reserve(numel * kind.itemsize)
        free = self._free.setdefault(memory, [])
        if not free and self.capacity >= BIG and self.settle is not None:
            self.settle()
        raw = free.pop() if free else _new(memory, group, self.capacity)
        key = (id(raw), numel, kind)
        flat = self._views.get(key)
        if flat is None:
            flat = self._views[key] = raw[: numel * kind.itemsize].view(kind)
        self._owner[id(flat)] = memory, raw
        return flat

    def give(self, flat: object) -> None:
        """Take back what ``take`` gave."""
        memory, raw = self._owner.pop(id(flat))
        if raw.nbytes >= self.capacity:
            self._free.setdefault(memory, []).append(raw)


def _new(memory: Memory, group: ProcessGroup, nbytes: int) -> Any:
    """A buffer. What lies between the parts that are written is sent, too: as zeros by a rank that
    is to give the same bytes in every run; others do not touch pages for it."""
    raw = memory.flat(group, nbytes, np.uint8)
    if REPEATABLE_SLOT in thread.rank.slots and isinstance(raw, np.ndarray):
        raw.fill(0)
    return raw
