"""A rank's end of the job's shared segment: memory, flags, and waiting for flags.

One ``Hub`` per rank and default group; the transports of all its groups share it. A flag is one
aligned 64-bit word that a single rank writes and that only grows, as long as the memory lives:

    position (44 bits) | chunk (20 bits)

so "has the peer come this far" is one comparison. Positions count operations. A group that uses
flags which others have used before begins at a round number beyond all of theirs
(``next_start``), so that nothing which an earlier group left, and nothing that a peer writes for a
later one, can pass for a flag of this group: the beginning is the group's fencing token.

Memory order: a rank writes data, then the flag; a peer reads the flag, then the data; see
``fences``.

Knows segments and words; no operations, no arrays.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from .... import context
from ....errors import CollectiveMismatch, CommError, GroupRevoked, PeerFailed
from ....liveness import STOPPED
from ...job import progress
from ...job.ending import at_end, never_mind
from ...job.threads import others_may_move
from ...meeting.survivors import as_view, given_up
from .arena import Arena
from .bootstrap import Watch
from .deadlock import DeadlockDetector, Edge, ranks_of
from .fences import words_of
from .oversubscription import Bell, Nap, futex, wait_a_little

HUBS = "comm.hubs"  # the slot of a rank's context where its hubs are
CHUNK_BITS = 20
CELL = 1 << 24  # groups begin at multiples of so many operations
LEAD = 1 << 20  # no peer is that many operations ahead: such a word belongs to a later group
_LEAD_WORD = LEAD << CHUNK_BITS
_ON_ITS_WAY = 0.1  # seconds for what others had done before they gave the group up


class Need(progress.Need, Protocol):
    """As everywhere, and it can say which flags are missing."""

    def edges(self) -> list[Edge]:
        """The flags that are still missing; empty when that cannot be said."""
        ...


def next_start(last_word: int) -> int:
    """Where a group may begin on flags whose largest word so far is ``last_word``.

    A rank that broke an operation off may be some operations from its peers: they still find the
    same beginning, and one that is further from all that they have done than ``LEAD``.
    """
    return ((last_word >> CHUNK_BITS) + CELL // 2) // CELL * CELL + CELL


class Flags:
    """A ``Need``: every word of ``idxs`` (written by the rank at the same place of ``ranks``)
    has reached ``value``.

    A word that is far beyond it belongs to a later group, so its rank has left this one. That is
    as good where the rank only had to be done (``past_is_fine``), and an error elsewhere.
    """

    __slots__ = ("bell", "beyond", "for_all", "idxs", "own", "ranks", "text", "value", "words")

    def __init__(
        self,
        words: memoryview,
        idxs: Sequence[int],
        ranks: Sequence[int],
        value: int,
        text: Callable[[list[int]], str],
        past_is_fine: bool = False,
        own: int = -1,
    ) -> None:
        """``own``: the word that this rank itself writes, while it waits: it hangs on nobody."""
        self.words, self.idxs, self.ranks, self.value = words, idxs, ranks, value
        self.own = own
        self.beyond = 1 << 64 if past_is_fine else value + _LEAD_WORD
        self.text = text
        self.bell: Bell | None = None  # that rings when they are there; ``for_all`` members
        self.for_all = False

    def __call__(self) -> bool:
        words, value, beyond = self.words, self.value, self.beyond
        for i in self.idxs:
            word = words[i]
            if word < value:
                return False
            if word >= beyond:
                self._overtaken(i)
        return True

    def _overtaken(self, idx: int) -> None:
        rank = self.ranks[list(self.idxs).index(idx)]
        raise CommError(
            f"{self.text([rank])}: it has left this group and joined a later one. Every rank of a "
            "group must make the same calls before it leaves."
        )

    def what(self) -> str:
        return self.text([rank for rank, _, _ in self.edges()])

    def edges(self) -> list[Edge]:
        return [
            (rank, i, self.value)
            for rank, i in zip(self.ranks, self.idxs, strict=True)
            if self.words[i] < self.value and i != self.own
        ]


class Hub(progress.Progress[Need]):
    """What all transports of one rank on one segment share.

    ``words`` and ``bytes`` view the whole segment as 64-bit words and as bytes; ``arena`` is this
    rank's own memory. What is in ``pending`` also has a ``head_need()``: what its next step waits
    for.
    """

    def __init__(
        self, segment: Any, rank: int, size: int, epoch: int, reserved: int, last_word: int
    ) -> None:
        """``reserved``: bytes at the start of each arena which the allocator leaves alone.
        ``last_word``: the largest flag of this rank's earlier default groups on the segment.

        What the allocator has given out outlives the groups that it was made for, so it belongs to
        the segment.
        """
        super().__init__()
        self.segment, self.rank, self.size, self.epoch = segment, rank, size, epoch
        self.view = as_view(segment)
        self.ranks_per_core = size / self.view.base.cores
        self.buffer = segment.buffer
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        self.address = self.bytes.__array_interface__["data"][0]
        self.words = words_of(self.buffer, self.address)
        kept, number = self.view.base.kept, self.view.members[rank]
        if number not in kept:
            start, nbytes = segment.arena(rank)
            kept[number] = Arena(self.buffer, start + reserved, nbytes - reserved)
        self.arena: Arena = kept[number]
        self.start = next_start(last_word)
        self.detector = DeadlockDetector(self.words, self.buffer, segment, rank, size, self.start)
        self.detector.under_way = self._under_way
        self._relax = self.detector.relax
        self.open: list[Any] = []  # the transports of all groups that were not left
        self.left = False  # all its groups are over: nothing more will come
        self.futex: Callable[..., int] | None = None  # see ``oversubscription``
        self.reach: Any = None  # the memory of other ranks' processes, see ``process_memory``
        self.disowned = False  # this is a process that the rank has forked
        self.owns_segment = False  # nobody else in this process uses it
        self._watch: Watch | None = None
        self._last_look_at: float | None = None  # when a wait in groups given up ends
        self.watches = False  # this rank itself notices the end of others' processes
        self.given_back: list[Any] = []  # groups that were left, whose memory may still be in use
        self._rank_context = context.current()
        self._rank_context.waiter.interrupts.append(self.check)
        hubs: list[Hub] = self._rank_context.slot(HUBS, list)
        hubs.append(self)
        at_end(self.end_program)
        if self.is_crowded:
            # A rank that spins keeps the processor from the one it waits for: 4 ranks on 2 cores
            # reduce 4 KB in 220 us with 200 spins, in 40 us when they yield at once.
            self._rank_context.waiter.spins = 0

    @property
    def is_crowded(self) -> bool:
        """Whether the ranks are more than the cores that they have. All find the same, wherever
        each one is bound to: who sleeps is woken by those who know that others may sleep."""
        return self.size > self.view.base.cores

    @property
    def spins(self) -> int:
        """How often a rank looks before it waits in earnest. (Simulated ones take turns.)"""
        waiter = self._rank_context.waiter
        return waiter.spins if type(waiter) is context.Waiter else 0

    def let_sleep(self) -> None:
        """Where ranks are more than cores, those that wait for all sleep. (Simulated ones take
        turns, and no kernel watches the words of other hosts.)"""
        if self.is_crowded and type(self._rank_context.waiter) is context.Waiter:
            self.futex = futex()

    def offset_of(self, array: np.ndarray) -> int:
        """Where ``array`` lies in the segment if it lies in this rank's own arena, else 0."""
        return self.offset_at(array.__array_interface__["data"][0], array.nbytes)

    def offset_at(self, address: int, nbytes: int) -> int:
        """The same for ``nbytes`` at an address of this process."""
        offset = address - self.address
        if self.arena.start <= offset and offset + nbytes <= self.arena.end:
            return offset
        return 0

    def _until(self, ready: Callable[[], bool], need: Need, timeout: float | None) -> None:
        if self.left:  # asked now: who leaves later sees that this thread waits
            self._end_left(need)
        bell = None if self.futex is None or self.pending else getattr(need, "bell", None)
        try:
            if bell is None:
                context.wait_until(ready, need.what, timeout)
            elif not wait_a_little(ready):
                context.wait_until(ready, need.what, timeout, Nap(bell, need))
        except CommError as error:  # a peer is in a later group: was this one given up for that?
            if (why := given_up(self.view, self.rank)) and type(error) is CommError:
                raise GroupRevoked(f"{need.what()}: {why}") from None
            raise

    def check(self) -> None:
        """Called while this rank waits: raises when a peer failed or nobody can go on."""
        if self.left:
            return self._end_left(self._needs.get(threading.get_ident(), (None, None))[0])
        watch = self._watch  # another thread may take it away
        if watch is not None:
            watch()
        failure = self.segment.failure()
        need, _ = self._needs.get(threading.get_ident(), (None, None))
        if failure is not None and failure.rank != self.rank:
            self._end_wait(need, failure)
        elif failure is not None and failure.cause.startswith(STOPPED):
            raise CommError(
                f"others went on without this rank ({self.rank}), which could not do its part: "
                f"{failure.cause}"
            )
        elif why := given_up(self.view, self.rank):
            self._end_given_up(need, why)
        elif need is not None:
            self.detector.look(need, self._all_needs)

    def _end_given_up(self, need: Need | None, why: str) -> None:
        """Another rank has given the group up. What it and others did before may be on its way: a
        rank that still waits in a call which the others have ended ends it, too. (To simulated
        ranks nothing is on its way.)"""
        if need is None:
            raise GroupRevoked(why)
        now = context.now()
        if self._last_look_at is None:
            real = type(self._rank_context.waiter) is context.Waiter
            self._last_look_at = now + (_ON_ITS_WAY if real else 0)
        self.progress()
        if not need() and now >= self._last_look_at:
            raise GroupRevoked(f"{need.what()}: {why}")

    def _end_left(self, need: Need | None) -> None:
        """Raise in a thread that waits for what cannot come: another one has left the groups."""
        if need is not None:
            raise CommError(f"{need.what()}: the group was left meanwhile; nothing more will come")

    def refuse_after_failure(self) -> None:
        """Raise where a peer has failed. (What ranks disagree on, each finds for itself.)"""
        failure = self.segment.failure()
        if failure is not None and failure.rank != self.rank and not failure.is_mismatch:
            raise self._failed(failure)

    def _failed(self, failure: Any, where: str = "") -> PeerFailed:
        rank = failure.rank
        number = self.view.members[rank]
        return PeerFailed(rank, failure.cause, failure.traceback, where, global_rank=number)

    def _all_needs(self) -> list[Need]:
        """What this rank waits for, of which anything would free it; empty where it may go on all
        the same, since a wait is only a probe or some thread may still do something."""
        needs = dict(self._needs)
        probes = any(
            limit is not None and limit <= context.PROBE_SECONDS for _, limit in needs.values()
        )
        return [] if probes or others_may_move(set(needs)) else [need for need, _ in needs.values()]

    def _under_way(self) -> list[Need]:
        """What that waits for which is in flight."""
        needs = [owner.head_need() for owner in tuple(self.pending)]
        return [need for need in needs if need is not None]

    def _end_wait(self, need: Need | None, failure: Any) -> None:
        """A rank has failed. What it died of may be an error that this rank must raise itself:
        a mismatch, whose headers are all there, or a deadlock."""
        if need is None:
            raise self._failed(failure)
        self.progress()
        if not need():
            self.detector.join(failure.rank, need, self._all_needs)
            if failure.is_mismatch and self.rank in ranks_of(failure.cause):
                raise CollectiveMismatch(failure.cause.partition(": ")[2])
            raise self._failed(failure, need.what())

    def watch_processes(self) -> None:
        """No launcher does it: notice the death of peers, whose pids are in their slots."""
        self._watch = Watch(self.segment, self.rank, self.size)
        self.detector.has_ended = self._watch.has_ended
        self.owns_segment = self.watches = True

    def give_watch(self) -> Watch | None:
        """What notices the end of peers where no launcher does; it is the caller's to close."""
        watch, self._watch = self._watch, None
        if watch is None and self.watches:  # it was given before
            watch = Watch(self.segment, self.rank, self.size)
        return watch

    def close(self, met: bool) -> None:
        """Leave all groups. ``met``: in good order, after a last meeting.

        The memory stays mapped as long as arrays view it.
        """
        for transport in tuple(self.open):
            transport.close(None)
        self.detector.leave(met)
        self._relax = self._leave_wait
        self.left = True
        self._detach()
        if self.owns_segment:
            self.segment.close()

    def _detach(self) -> None:
        slots, me = self._rank_context.slots, self._rank_context
        self._forget_check()
        for look_after in (self.end_program, self.finish):
            never_mind(look_after, me)
        if self in slots.get(HUBS, ()):
            slots[HUBS].remove(self)
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _leave_wait(self) -> None:
        """A wait is over in groups that were left."""
        self._forget_check()
        self.detector.relax()

    def _forget_check(self) -> None:
        """Not while other threads wait in groups that were left: it ends their waits."""
        if self.disowned or not self._needs:
            with contextlib.suppress(ValueError):
                self._rank_context.waiter.interrupts.remove(self.check)

    def end_program(self) -> None:
        """The program ends without having left its groups. Nobody is waited for, except where all
        have entered an operation; who is the last to end finds ranks that made other calls."""
        if self.watches:  # no launcher tells the others
            self._tell_error(getattr(sys, "last_value", None))
        failed = self.segment.failure() is not None or hasattr(sys, "last_type")
        if failed or self.segment.slot(self.rank).state == "failed":
            return  # it ends with an error, which says more
        for transport in self.open:
            transport.part()
        with self.lock:  # a full barrier: of two that end together, one sees the other's flag
            pass
        for transport in self.open:
            transport.compare_counts()

    def finish(self) -> None:
        """The program has ended, though its process has not: it waits for what has no part in
        this."""
        self.segment.slot(self.rank).state = "finished"

    def _tell_error(self, error: PeerFailed | ValueError | None) -> None:
        """What this rank's program has ended with, where that was an exception."""
        if isinstance(error, PeerFailed):
            self.segment.publish_failure(error.rank, error.cause, error.traceback)
        elif isinstance(error, BaseException):
            text = "".join(traceback.format_exception(error))
            self.segment.publish_failure(self.rank, f"{type(error).__name__}: {error}", text)

    def disown(self) -> None:
        """In a process forked from this rank: it must not speak for it."""
        self.disowned = True
        for transport in self.open:
            transport.disable("it belongs to the process that this one was forked from")
        self.detector.mute()
        self._needs.clear()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.disown()
        self._detach()


def _after_fork() -> None:
    for hub in tuple(context.current().slots.get(HUBS, ())):
        hub.disown()


os.register_at_fork(after_in_child=_after_fork)
