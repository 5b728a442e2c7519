"""Large parts of messages in shared memory: lent by the sender, given back when nobody looks.

Every endpoint has one arena, a sealed memfd whose descriptor peers get when they connect. A part is
copied into a block of it, and the receiver's array is that block: one copy in all. The word at the
block's beginning says whose it is; the receiver clears it when its last view is gone, so giving
back takes no message and no lock. A block whose borrower has died is taken back. Blocks of a
borrower that lives, however it behaves, are never used for something else.

    block: word u64 (LENT, TAKEN, FREE) | padding up to 64 bytes | the data

Knows memory and bytes; no sockets, no messages.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any, Protocol

import numpy as np

from ....comm.transports.shm.arena import ALIGN, Arena
from ....comm.transports.shm.fences import words_of
from ....errors import CommError
from .frames import STREAMED, Garbage

ARENA_BYTES = 64 << 30  # addresses; pages exist once they are touched
LEAST_ARENA_BYTES = 64 << 20
TWO_THREADS_BYTES = 8 << 20
LOOKS = 8  # blocks that are looked at, whether they have come back, for every new one

_FREE, _LENT, _TAKEN = 0, 1, 2
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_NORESERVE", 0x4000)


class Borrower(Protocol):
    """Somebody to whom blocks are lent. ``gone``: its process has ended."""

    @property
    def gone(self) -> bool: ...


class Lender:
    """The arena of one endpoint. ``fd`` is -1 where there is no room for one: all is streamed."""

    def __init__(self, nbytes: int = ARENA_BYTES) -> None:
        self._lock = threading.Lock()
        self._lent: deque[tuple[int, Borrower]] = deque()
        self._two = len(os.sched_getaffinity(0)) > 1
        self.fd, self._buffer = _make(nbytes)
        self._arena: Arena | None = None
        if self._buffer is not None:
            self._arena = Arena(self._buffer, 0, len(self._buffer))
            self._bytes = np.frombuffer(self._buffer, np.uint8)
            self._words = _words(self._bytes)

    def lend(self, part: np.ndarray, to: Borrower) -> int:
        """Copy ``part`` (uint8) into a block: its offset, or ``STREAMED`` where none is free."""
        with self._lock:
            block = self._take(part.nbytes + ALIGN)
            if block is None:
                return STREAMED
            self._words[block // 8] = _LENT
            self._lent.append((block, to))
            target = self._bytes[block + ALIGN : block + ALIGN + part.nbytes]
        try:
            _copy(target, part, self._two)
        except BaseException:
            self.recall(block + ALIGN)
            raise
        return block + ALIGN

    def recall(self, at: int) -> None:
        """The part at ``at`` has reached nobody."""
        with self._lock:
            if self._arena is not None:
                self._words[(at - ALIGN) // 8] = _FREE

    def _take(self, nbytes: int) -> int | None:
        arena = self._arena
        if arena is None:
            return None
        self._collect(LOOKS)
        try:
            return arena.take(nbytes)
        except CommError:
            self._collect(len(self._lent))
        try:
            return arena.take(nbytes)
        except CommError:
            return None

    def _collect(self, most: int) -> None:
        """Take back blocks that were given back; the newest first, which are warm."""
        lent, words, arena = self._lent, self._words, self._arena
        assert arena is not None
        for _ in range(min(most, len(lent))):
            block, to = lent.pop()
            if words[block // 8] == _FREE or to.gone:
                arena.give(block)
            else:
                lent.appendleft((block, to))

    def lent_bytes(self) -> int:
        """Bytes that peers still have."""
        with self._lock:
            if self._arena is None:
                return 0
            self._collect(len(self._lent))
            return self._arena.used_bytes()

    def close(self) -> None:
        """Let go of the memory; what peers have of it stays theirs."""
        with self._lock:
            if self._arena is None:
                return
            self._arena = None
            del self._bytes, self._words
            self._lent.clear()
            self._buffer = None
            os.close(self.fd)
            self.fd = -1


def _words(memory: np.ndarray) -> Any:
    return words_of(memory.data, memory.__array_interface__["data"][0])


def _copy(target: np.ndarray, part: np.ndarray, two: bool) -> None:
    """Copy bytes; large ones on two threads, since one alone does not use what memory can do."""
    half = part.nbytes // 2
    if not two or part.nbytes < TWO_THREADS_BYTES:
        np.copyto(target, part)
        return
    helper = threading.Thread(target=np.copyto, args=(target[half:], part[half:]), daemon=True)
    try:
        helper.start()
    except RuntimeError:  # there are too many threads already
        np.copyto(target, part)
        return
    try:
        np.copyto(target[:half], part[:half])
    finally:
        helper.join()


def _make(nbytes: int) -> tuple[int, mmap.mmap | None]:
    """A sealed memfd and its mapping, smaller where the address space is limited."""
    while nbytes >= LEAST_ARENA_BYTES:
        fd = os.memfd_create("disttrain-rpc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
            buffer = mmap.mmap(fd, nbytes, flags=_FLAGS)
            buffer.madvise(mmap.MADV_DONTDUMP)
            return fd, buffer
        except (OSError, OverflowError, ValueError):
            os.close(fd)
            nbytes >>= 2
    return -1, None


class Memory:
    """The arena of a peer, as this process sees it."""

    def __init__(self, fd: int) -> None:
        """``fd`` is the caller's. Raises ``Garbage`` where a peer could take the memory away, and
        ``OSError`` where it cannot be mapped."""
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError:
            seals = 0
        if seals & _SEALS != _SEALS:
            raise Garbage("a descriptor that is no sealed memory")
        self.nbytes = os.fstat(fd).st_size
        buffer = mmap.mmap(fd, self.nbytes, flags=_FLAGS)
        buffer.madvise(mmap.MADV_DONTDUMP)
        self._words = _words(np.frombuffer(buffer, np.uint8))
        self._bytes = memoryview(buffer)
        self._pid = os.getpid()

    def find(self, at: int, nbytes: int) -> np.ndarray:
        """The block whose data is at ``at``, as bytes; given back when its last view is gone."""
        word = (at - ALIGN) // 8
        if at % ALIGN or at < ALIGN or at + nbytes > self.nbytes or self._words[word] != _LENT:
            raise Garbage(f"a part of {nbytes} bytes at {at}, which was not lent")
        self._words[word] = _TAKEN
        found = np.frombuffer(self._bytes[at : at + nbytes], np.uint8)
        weakref.finalize(found, self._give_back, word).atexit = False
        return found

    def _give_back(self, word: int) -> None:
        if os.getpid() == self._pid:  # a forked child only shares what its parent has
            self._words[word] = _FREE
