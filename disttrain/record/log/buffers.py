"""Memory for copies that wait to be written, used again: memory that is new costs the kernel more
than the copy does. Knows no frames."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

SHORT = 1 << 16  # bytes: shorter ones are small change for the allocator
_MOST = 128 << 20  # bytes that are kept for later


class Buffers:
    """Copies of arrays, and the memory of those that are done with."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = defaultdict(list)
        self._kept = 0  # bytes of these
        self._lock = threading.Lock()

    def copies(self, arrays: Sequence[Any]) -> list[bytes | bytearray]:
        """A copy of the bytes of each, in the order of its elements."""
        return [self._copy(a) for a in arrays if a.size]

    def _copy(self, array: Any) -> bytes | bytearray:
        if array.nbytes < SHORT:
            return bytes(array.tobytes())
        found = self._taken(array.nbytes)
        np.frombuffer(found, array.dtype).reshape(array.shape)[...] = array
        return found

    def _taken(self, nbytes: int) -> bytearray:
        with self._lock:
            same = self._free[nbytes]
            if same:
                self._kept -= nbytes
                return same.pop()
        return bytearray(nbytes)

    def give_back(self, parts: Sequence[Any]) -> None:
        """Nobody reads these copies any more."""
        with self._lock:
            for part in parts:
                if isinstance(part, bytearray) and self._kept + len(part) <= _MOST:
                    self._free[len(part)].append(part)
                    self._kept += len(part)


__all__ = ["SHORT", "Buffers"]
