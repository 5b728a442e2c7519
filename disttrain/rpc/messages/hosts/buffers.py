"""Memory for large arrays that come from other hosts, used again when nobody looks any more.

The kernel gives fresh memory page by page, each cleared before it is written to: that takes as long
as receiving does. Workers often receive what has the same size again and again; so memory that has
come back is kept, up to a limit, for an array of that size. The kernel may take it meanwhile
(``MADV_FREE``), so what is kept and not used costs nobody else anything.

Knows bytes only.
"""

from __future__ import annotations

import mmap
import threading
import weakref

import numpy as np

LEAST = 4 << 20  # smaller arrays get the memory that numpy gives
MOST = 512 << 20  # bytes that are kept
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class ReceiveBuffers:
    """``take`` from any thread; arrays may end on any thread, at any moment."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.RLock()  # an array may end while a thread is in here
        self._kept: list[mmap.mmap] = []  # the oldest first

    def take(self, nbytes: int) -> np.ndarray:
        """``nbytes`` bytes (uint8) that belong to nobody else, whatever they hold. Raises
        ``MemoryError``."""
        if nbytes < LEAST:
            return np.empty(nbytes, np.uint8)
        room = self._find(nbytes) or _map(nbytes)
        found = np.frombuffer(room, np.uint8, nbytes)  # views of it refer to it, so it ends last
        weakref.finalize(found, self._give_back, room).atexit = False
        return found

    def _find(self, nbytes: int) -> mmap.mmap | None:
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            for at in reversed(range(len(self._kept))):
                if len(self._kept[at]) == pages:
                    return self._kept.pop(at)
        return None

    def _give_back(self, room: mmap.mmap) -> None:
        if len(room) > self._most:
            return
        room.madvise(mmap.MADV_FREE)
        with self._lock:
            self._kept.append(room)
            while self.kept_bytes() > self._most:
                del self._kept[0]

    def kept_bytes(self) -> int:
        """Bytes that wait for the next array."""
        with self._lock:
            return sum(map(len, self._kept))

    def close(self) -> None:
        """Keep nothing, from now on. Arrays that are out keep their memory."""
        with self._lock:
            self._most = 0
            self._kept.clear()


def _map(nbytes: int) -> mmap.mmap:
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        room = mmap.mmap(-1, size, flags=_PRIVATE)
    except (OSError, OverflowError, ValueError):
        raise MemoryError(f"{nbytes} bytes") from None
    try:
        room.madvise(mmap.MADV_HUGEPAGE)  # fewer steps, each larger
    except OSError:  # this kernel has none
        pass
    return room
