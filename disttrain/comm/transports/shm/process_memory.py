"""The memory of other ranks' processes, read where it lies.

Linux copies between two processes of one user (``process_vm_readv``), so an array outside of shared
memory is moved once, as fast as memory, and not into a ring and out of it again. Sandboxes may
forbid it. So arrays are exposed this way only once all members of a group have found, and said
in shared memory, that they can read each other's.

Nothing is ever written this way: a rank that has broken an operation off, because of a deadline or
of another rank's end, has that memory for itself again, and a peer may not know it yet.

    record in a rank's world control block: pid | address and value of a number in its own memory
    | per rank: the start of the default group for which this rank can read that one's memory

Knows addresses and bytes; no operations.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence

import numpy as np

from ....errors import CommError, WaitTimeout
from .deadlock import Edge
from .hub import Hub

RECORD_AT = 0x200  # in a rank's world control block
MAX_RANKS = 400  # for so many there is room
_PID, _ADDRESS, _VALUE, _FIRST = range(4)  # words of a record
_PATIENCE = 5.0  # seconds until a rank that cannot be read any more is known to be dead


def _function(name: str) -> Callable[..., int] | None:
    """Of the C library; called without the interpreter's lock."""
    try:
        found = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    found.restype = ctypes.c_ssize_t
    number, pointer = ctypes.c_ulong, ctypes.c_void_p
    found.argtypes = [ctypes.c_int, pointer, number, pointer, number, number]
    return found


class Reach:
    """Which ranks' memory this rank can read, and which can read its own."""

    def __init__(self, hub: Hub, blocks: Sequence[int]) -> None:
        """``blocks``: the world control block of every rank."""
        self.hub, self._words, self._start = hub, hub.words, hub.start
        self._at = [(block + RECORD_AT) // 8 for block in blocks]
        self._tested: set[int] = {hub.rank}
        self._copy: Callable[..., int] | None = _function("process_vm_readv")
        self._on = self._copy is not None and len(blocks) <= MAX_RANKS
        if self._on:
            self._number = np.frombuffer(os.urandom(8), np.uint64) >> np.uint64(1)
            at = self._at[hub.rank]
            self._words[at + _PID] = os.getpid()
            self._words[at + _ADDRESS] = address_of(self._number)
            self._words[at + _VALUE] = int(self._number[0])

    def is_open(self, ranks: Sequence[int]) -> bool:
        """Whether all of ``ranks`` have said that they can read each other's memory."""
        words, start = self._words, self._start
        rows = [self._at[r] + _FIRST for r in ranks]
        return self._on and all(
            words[row + other] == start
            for row, mine in zip(rows, ranks, strict=True)
            for other in ranks
            if other != mine
        )

    def look(self, ranks: Sequence[int]) -> None:
        """Find out, once, which of ``ranks`` this rank can read, and say so. All have come."""
        if self._on:
            for rank in set(ranks) - self._tested:
                self._tested.add(rank)
                at, seen = self._at[rank], np.zeros(1, np.uint64)
                done = self._read(rank, self._words[at + _ADDRESS], seen)
                if done == 8 and int(seen[0]) == self._words[at + _VALUE]:
                    self._words[self._at[self.hub.rank] + _FIRST + rank] = self._start

    def read(self, rank: int, address: int, into: np.ndarray) -> None:
        """Fill ``into`` from ``address`` of a rank's memory."""
        done = self._read(rank, address, into)
        while done < into.nbytes:  # the system may stop between pages
            more = self._read(rank, address + done, into.view(np.uint8)[done:])
            if more <= 0:
                self._lost(rank)
            done += more

    def _read(self, rank: int, address: int, into: np.ndarray) -> int:
        """Bytes read; negative where it is not possible."""
        nbytes = into.nbytes
        pieces = (ctypes.c_uint64 * 4)(address_of(into), nbytes, address, nbytes)
        at = ctypes.addressof(pieces)
        assert self._copy is not None
        return self._copy(self._words[self._at[rank] + _PID], at, 1, at + 16, 1, 0)

    def _lost(self, rank: int) -> None:
        """Raise, ``PeerFailed`` where the rank has died."""
        code = ctypes.get_errno()
        lost = _Lost(rank, self._at[rank])
        try:
            self.hub.wait(lost, _PATIENCE)
        except WaitTimeout:
            raise CommError(f"{lost.what()}: {os.strerror(code)}") from None


class _Lost:
    """A ``Need`` that is never met: what a rank waits for whose peer's memory is gone."""

    def __init__(self, rank: int, word: int) -> None:
        self._rank, self._word = rank, word

    def __call__(self) -> bool:
        return False

    def what(self) -> str:
        return f"shared memory: the memory of rank {self._rank} can no longer be reached"

    def edges(self) -> list[Edge]:
        return [(self._rank, self._word, 1 << 63)]


class Far:
    """An array in another rank's memory; its slices are such arrays, too."""

    __slots__ = ("_address", "_itemsize", "_rank", "_reach", "size")

    def __init__(self, reach: Reach, rank: int, address: int, size: int, itemsize: int) -> None:
        self._reach, self._rank, self._address = reach, rank, address
        self.size, self._itemsize = size, itemsize

    def __getitem__(self, where: slice) -> Far:
        start, stop, _ = where.indices(self.size)
        address = self._address + start * self._itemsize
        return Far(self._reach, self._rank, address, stop - start, self._itemsize)

    def read(self, into: np.ndarray) -> None:
        self._reach.read(self._rank, self._address, into)


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def put(part: Far | np.ndarray, out: np.ndarray) -> None:
    """Copy an array, or one that is far, into ``out``."""
    if type(part) is Far:
        part.read(out)
    else:
        out[...] = part
