"""Memory that all ranks of a group see, written and read in turns.

Every rank writes its own part and *opens*; when all have, every rank may read everything, and
nobody writes. A rank that has read what it wants *closes*; who wants to write again waits until all
have closed as often as it has, since they opened. The counts are words in front of the memory, one
cache line per rank, and only grow. Knows words and bytes.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...calls.header import name_ranks
from .arena import PAGE
from .hub import Flags

LINE = 64  # bytes per rank in front of the memory
_OPENED, _CLOSED, _LET_GO = 0, 8, 16
TURN = 1 << 24  # closed counts begin anew in every turn, so that one that broke off ends with it


class Shared:
    """``nbytes`` of memory of a group, seen from member ``me``."""

    def __init__(
        self, hub: Any, offset: int, nbytes: int, ranks: Sequence[int], me: int, name: str
    ) -> None:
        """``offset``: where it begins in the segment; ``ranks``: world ranks of the members."""
        self._hub, self._ranks, self._me, self._name = hub, list(ranks), me, name
        self._at = [offset + i * LINE for i in range(len(self._ranks))]
        self._opened = self._closed = 0
        start = self._start = offset + head_bytes(len(self._ranks))
        self.bytes = np.frombuffer(memoryview(hub.buffer)[start : start + nbytes], np.uint8)
        word = (self._at[me] + _LET_GO) // 8
        weakref.finalize(self.bytes, _let_go, hub.words, word, os.getpid()).atexit = False

    def open(self) -> None:
        """This rank's part is written; returns when all ranks' parts are."""
        self.announce()
        self.wait_open()

    def announce(self) -> None:
        """This rank's part is written."""
        self._opened += 1
        self._closed = self._opened * TURN
        words, at = self._hub.words, self._at[self._me]
        words[(at + _CLOSED) // 8] = self._closed
        words[(at + _OPENED) // 8] = self._opened

    def wait_open(self) -> None:
        """Until every rank's part is written."""
        self._wait(_OPENED, self._opened, "to have its part of the weights ready")

    def close(self, give_back: bool = False) -> None:
        """This rank reads nothing any more. With ``give_back`` nobody needs the contents again, and
        the last rank to close gives the pages to the system: none can write before it has."""
        self._closed += 1
        if give_back and self._is_last():
            first = -(-self._start // PAGE) * PAGE
            last = (self._start + self.bytes.nbytes) // PAGE * PAGE
            if last > first:
                self._hub.buffer.madvise(mmap.MADV_REMOVE, first, last - first)
        self._hub.words[(self._at[self._me] + _CLOSED) // 8] = self._closed

    def wait_closed(self) -> None:
        """Until every rank has closed as often as this one: it may write."""
        self._wait(_CLOSED, self._closed, "to be done with the weights")

    def _is_last(self) -> bool:
        words, closed = self._hub.words, self._closed
        others = [at for i, at in enumerate(self._at) if i != self._me]
        return all(words[(at + _CLOSED) // 8] >= closed for at in others)

    def _wait(self, field: int, value: int, what: str) -> None:
        words = self._hub.words
        for at in self._at:
            if words[(at + field) // 8] < value:
                break
        else:
            return

        def text(missing: list[int]) -> str:
            return f"{name_ranks(missing)} {what} (shared memory of group {self._name})"

        idxs = [(at + field) // 8 for i, at in enumerate(self._at) if i != self._me]
        ranks = [r for i, r in enumerate(self._ranks) if i != self._me]
        self._hub.wait(Flags(words, idxs, ranks, value, text, past_is_fine=True), None)


def head_bytes(size: int) -> int:
    """Bytes in front of the memory of a group of ``size``."""
    return size * LINE


def lend(hub: Any, nbytes: int, size: int) -> int:
    """Make room in this rank's arena for a group of ``size``, which frees itself when all members
    have let go of it; its offset."""
    arena, words = hub.arena, hub.words
    offset = arena.take(head_bytes(size) + nbytes)
    hub.bytes[offset : offset + head_bytes(size)] = 0
    idxs = [(offset + i * LINE + _LET_GO) // 8 for i in range(size)]
    arena.lend(offset, lambda: all(words[i] for i in idxs))
    return offset


def _let_go(words: memoryview, index: int, pid: int) -> None:
    """The last view is gone. In a forked process the memory is the parent's."""
    if os.getpid() == pid:
        try:
            words[index] = 1
        except ValueError:  # the segment is closed
            return
