"""A rank's end of the job's shared segment: memory, flags, and waiting for flags.

One ``Hub`` per rank and segment; the transports of all its groups share it. A flag is one aligned
64-bit word that a single rank writes and that only grows:

    epoch (12 bits) | operation (32 bits) | chunk (20 bits)

so "has the peer come this far" is one comparison, and words left by an earlier epoch are small.

Memory order: a rank writes data, then the flag; a peer reads the flag, then the data. x86 keeps
stores in order and loads in order (TSO), and every access goes through a C function that the
compiler cannot look into, so nothing else is needed. ARM would need a release barrier before the
flag's store and an acquire barrier after its load; ``connect`` refuses machines that are not x86.

Knows segments and words; no operations, no arrays.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from .. import context
from ..errors import PeerFailed
from .arena import Arena
from .bootstrap import Watch
from .deadlock import Detective

CHUNK_BITS, SEQ_BITS = 20, 32

Edge = tuple[int, int, int]  # awaited rank, index of a word, value that the word must reach


class Need(Protocol):
    """Something to wait for. Calling it says whether it is there."""

    def __call__(self) -> bool: ...

    def what(self) -> str:
        """The wait described for people."""
        ...

    def edges(self) -> list[Edge]:
        """The flags that are still missing; empty when that cannot be said."""
        ...


class Flags:
    """A ``Need``: every word of ``idxs`` (written by the rank at the same place of ``ranks``)
    has reached ``value``."""

    __slots__ = ("_text", "idxs", "ranks", "value", "words")

    def __init__(
        self,
        words: memoryview,
        idxs: Sequence[int],
        ranks: Sequence[int],
        value: int,
        text: Callable[[list[int]], str],
    ) -> None:
        self.words, self.idxs, self.ranks, self.value = words, idxs, ranks, value
        self._text = text

    def __call__(self) -> bool:
        words, value = self.words, self.value
        for i in self.idxs:  # noqa: SIM110  (all() with a generator takes four times as long)
            if words[i] < value:
                return False
        return True

    def what(self) -> str:
        return self._text([rank for rank, _, _ in self.edges()])

    def edges(self) -> list[Edge]:
        return [
            (rank, i, self.value)
            for rank, i in zip(self.ranks, self.idxs, strict=True)
            if self.words[i] < self.value
        ]


class Hub:
    """What all transports of one rank on one segment share.

    ``words`` and ``bytes`` view the whole segment as 64-bit words and as bytes; ``arena`` is this
    rank's own memory; ``pending`` holds whatever has operations in flight (objects with an
    ``advance()`` that never blocks).
    """

    def __init__(self, segment: Any, rank: int, size: int, epoch: int, reserved: int) -> None:
        """``reserved``: bytes at the start of each arena which the allocator leaves alone."""
        self.segment, self.rank, self.size, self.epoch = segment, rank, size, epoch
        self.buffer = segment.buffer
        self.words = memoryview(self.buffer).cast("Q")
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        start, nbytes = segment.arena(rank)
        self.arena = Arena(self.buffer, start + reserved, nbytes - reserved)
        self.address = self.bytes.__array_interface__["data"][0]
        self.base = (epoch & 0xFFF) << (SEQ_BITS + CHUNK_BITS)
        self.pending: list[Any] = []
        self.entered = 0  # collectives of all groups, for the black box
        self.lock = threading.RLock()
        self.detective = Detective(self.words, self.buffer, segment, rank, size)
        self._needs: list[Need] = []  # what this rank's threads wait for now
        self._watch: Watch | None = None
        self._rank_context = context.current()
        self._rank_context.waiter.interrupts.append(self.check)
        if size > len(os.sched_getaffinity(0)):
            # A rank that spins keeps the processor from the one it waits for: 4 ranks on 2 cores
            # reduce 4 KB in 220 us with 200 spins, in 40 us when they yield at once.
            self._rank_context.waiter.spins = 0

    def offset_of(self, array: np.ndarray) -> int:
        """Where ``array`` lies in the segment if it lies in this rank's own arena, else 0."""
        offset = array.__array_interface__["data"][0] - self.address
        if self.arena.start <= offset and offset + array.nbytes <= self.arena.end:
            return offset
        return 0

    def progress(self) -> None:
        """Let everything in flight go on as far as it can."""
        if self.lock.acquire(False):
            try:
                for owner in tuple(self.pending):
                    owner.advance()
            finally:
                self.lock.release()

    def wait(self, need: Need, timeout: float | None) -> None:
        """Block until ``need()``; meanwhile operations in flight go on."""
        pending = self.pending

        def ready() -> bool:
            if need():
                return True
            if pending:
                self.progress()
                return need()
            return False

        if ready():
            return
        self._needs.append(need)
        try:
            context.wait_until(ready, need.what, timeout)
        finally:
            self._needs.remove(need)
            self.detective.relax()

    def check(self) -> None:
        """Called while this rank waits: raises when a peer failed or nobody can go on."""
        if self._watch is not None:
            self._watch()
        failure = self.segment.failure()
        need = self._needs[-1] if self._needs else None
        if failure is not None and failure.rank != self.rank:
            self._end_wait(need, failure)
        elif len(self._needs) == 1:
            self.detective.look(self._needs[0])
        else:  # several threads wait: one of them may free the other
            self.detective.relax()

    def _end_wait(self, need: Need | None, failure: Any) -> None:
        """A rank has failed. What it died of may be an error that this rank must raise itself:
        a mismatch, whose headers are all there, or a deadlock."""
        if need is None:
            raise PeerFailed(failure.rank, failure.cause, failure.traceback)
        self.progress()
        if not need():
            self.detective.join(failure.rank, need)
            raise PeerFailed(failure.rank, failure.cause, failure.traceback, need.what())

    def watch_processes(self) -> None:
        """No launcher does it: notice the death of peers, whose pids are in their slots."""
        self._watch = Watch(self.segment, self.rank, self.size, self.detective.has_left)

    def close(self, left: bool) -> None:
        """Stop watching. ``left``: for good, so that who waits for this rank need not.

        The memory stays mapped as long as arrays view it.
        """
        interrupts = self._rank_context.waiter.interrupts
        if self.check in interrupts:
            interrupts.remove(self.check)
        if left:
            self.detective.leave()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
