"""An allocator over one stretch of shared memory: first fit, coalescing, freed by the last view.

``allocate`` hands out arrays that give their memory back when nothing refers to them any more.
``take`` and ``give`` are the bare form for memory whose life the caller knows. Knows no ranks.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

import numpy as np

from ....errors import CommError

ALIGN = 64
PAGE = 4096
BIG = 64 << 10  # from here on blocks are whole pages
KEEP_BYTES = 256 << 20  # freed memory kept for reuse before pages go back to the system


class Arena:
    """The memory ``[start, start + nbytes)`` of ``buffer``; offsets count from the buffer's start.

    Fresh pages cost ten times what warm ones do, so freed blocks stay resident up to
    ``KEEP_BYTES``, then the pages of each block that is freed go back to the system.
    """

    def __init__(self, buffer: mmap.mmap, start: int, nbytes: int) -> None:
        self.start, self.end = start, start + nbytes
        self._buffer, self._view = buffer, memoryview(buffer)
        self._free: list[tuple[int, int]] = [(start, nbytes)]  # sorted (offset, size)
        self._used: dict[int, int] = {}
        self._top = start  # pages from here on were never handed out
        self._kept = 0
        self._lock = threading.Lock()
        self._dropped: deque[int] = deque()  # filled by finalizers, which must not take the lock
        self._pid = os.getpid()
        self._lent: list[tuple[int, Callable[[], bool]]] = []
        # Control blocks of groups that are over. Their flags only ever grow, so that who still
        # looks at an old group sees that it is over: they serve for nothing but other groups.
        self.spare_blocks: list[int] = []

    def allocate(self, nbytes: int) -> np.ndarray:
        """A 1-D uint8 array of ``nbytes``, not initialized; freed when its last view is gone."""
        offset = self.take(nbytes)
        array = np.frombuffer(self._view[offset : offset + nbytes], np.uint8)
        weakref.finalize(array, self._drop, offset).atexit = False
        return array

    def take(self, nbytes: int) -> int:
        """The offset of a free block of at least ``nbytes``; ``CommError`` when there is none."""
        size = _rounded(nbytes)
        if self._lent:
            self._take_back()
        with self._lock:
            while self._dropped:
                self._release(self._dropped.popleft())
            for i, (offset, have) in enumerate(self._free):
                if have >= size:
                    if have == size:
                        del self._free[i]
                    else:
                        self._free[i] = (offset + size, have - size)
                    self._used[offset] = size
                    warm = max(0, min(offset + size, self._top) - offset)
                    self._kept = max(0, self._kept - warm)
                    self._top = max(self._top, offset + size)
                    return offset
        raise CommError(
            f"shared memory: {nbytes} bytes were asked for and no free block of this rank's arena "
            f"({self.end - self.start} bytes, {sum(self._used.values())} in use) is that large. "
            "Free buffers, or make the segment with a larger arena_bytes=."
        )

    def give(self, offset: int) -> None:
        """Free the block at ``offset``, which ``take`` gave."""
        with self._lock:
            self._release(offset)

    def lend(self, offset: int, is_free: Callable[[], bool]) -> None:
        """The block at ``offset``, which ``take`` gave, is freed once ``is_free()``: others use it
        too, and say so in their own time."""
        self._lent.append((offset, is_free))

    def _take_back(self) -> None:
        with self._lock:
            for entry in [e for e in self._lent if e[1]()]:
                self._lent.remove(entry)
                self._release(entry[0])

    def used_bytes(self) -> int:
        """Bytes handed out and not yet freed."""
        self._take_back()
        with self._lock:
            while self._dropped:
                self._release(self._dropped.popleft())
            return sum(self._used.values())

    def _drop(self, offset: int) -> None:
        """A finalizer: may run inside any allocation, so it only notes the block.

        In a process forked from this one it does nothing: the memory is the parent's.
        """
        if os.getpid() == self._pid:
            self._dropped.append(offset)

    def _release(self, offset: int) -> None:
        size = self._used.pop(offset)
        if self._kept + size > KEEP_BYTES and size >= BIG:
            first, last = -(-offset // PAGE) * PAGE, (offset + size) // PAGE * PAGE
            self._buffer.madvise(mmap.MADV_REMOVE, first, last - first)
        else:
            self._kept += size
        i = bisect_left(self._free, (offset, 0))
        if i < len(self._free) and offset + size == self._free[i][0]:
            size += self._free.pop(i)[1]
        if i > 0 and sum(self._free[i - 1]) == offset:
            before, length = self._free.pop(i - 1)
            offset, size = before, length + size
        insort(self._free, (offset, size))


def _rounded(nbytes: int) -> int:
    unit = PAGE if nbytes >= BIG else ALIGN
    return max(unit, -(-nbytes // unit) * unit)
