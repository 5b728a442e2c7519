"""One segment on several hosts: every rank's own memory, copied to where others read it.

Every host has a segment with the same layout, in which each rank of the job has its areas, wherever
it runs. A rank writes its own areas on its own host, and whatever others are to see goes over its
links, in the order in which it was written, to the same places of the other hosts' segments. So
flags, headers, messages and records of waits mean there what they mean here, and the code of shared
memory (``comm.shm``) compares headers, matches messages, finds deadlocks and counts calls across
hosts as it does on one.

What all ranks of a host are to see is sent once, to one of them (``plans.partner``); messages go to
whom they are for. A flag never overtakes what it tells of: both take the same link.

Knows links, flags and bytes; what operations do is in ``transport``.
"""

from __future__ import annotations

import functools
import struct
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import Any

from .... import context
from ....errors import CollectiveMismatch, CommError
from ...calls.header import SIZE as FINGERPRINT
from ...calls.header import Call
from ...job.segment import Failure
from ...meeting.survivors import as_view
from ..shm.arena import ALIGN
from ..shm.channel import BLOCK_BYTES, FINISHED, LEFT, NONE, NUM_HEADERS, POSTED, WHERE, Channel
from ..shm.deadlock import RECORD_BYTES, DeadlockDetector
from ..shm.hub import Flags, Hub, Need
from ..shm.mailbox import (
    ACKS_BYTES,
    INLINE_AT,
    INLINE_BYTES,
    KEY_AT,
    NUM_SLOTS,
    PAIR_BYTES,
    PRINT_AT,
    REFUSAL_AT,
    Mailbox,
    Recv,
    Send,
)
from . import frames
from .net import Net, failure_of
from .pipe import Pipe
from .plans import Layout, partner

_HEADERS_COME = 0.5  # seconds for the headers of a disagreement that others have found
# Seconds for what a failed rank of another host had sent before: news of it overtake what comes by
# way of another rank of this host, and what that one makes of it.
_RESULTS_COME, _MADE_OF_IT = 1.0, 0.1

# Between the two looks at ranks that wait for each other: looks, of each of them, and seconds. What
# one has said to another may be on its way for as long as lost packets take to be sent again.
LOOKS, CALM = 4, 1.5
NUM_BLOCKS = 4096  # of flags, for so many groups at once: addresses that hold nothing else
_OFFSET = struct.Struct("<Q")


class NetHub(Hub):
    """A rank's end of its host's segment, and of its links. ``layout``: the hosts of all ranks."""

    def __init__(
        self, segment: Any, rank: int, layout: Layout, net: Net, epoch: int, before: int = 0
    ) -> None:
        size = len(layout.host_of)
        start = Mailbox.reserved(as_view(segment).base.num_ranks)
        view = as_view(segment)
        heard = start + NUM_BLOCKS * BLOCK_BYTES  # a byte for each rank, see ``Net.listen_with``
        reserved = heard + -(-view.base.num_ranks // ALIGN) * ALIGN
        super().__init__(segment, rank, size, epoch, reserved, before)
        here = layout.hosts[layout.host_of[rank]]
        net.listen_with({r: segment.arena(r)[0] + heard for r in here})
        start += segment.arena(rank)[0]
        self.arena.spare_blocks = [start + i * BLOCK_BYTES for i in range(NUM_BLOCKS)][::-1]
        self._stays = False
        self._failed_at = 0.0  # when it was first heard that a rank has failed
        self.leaving: Any = None  # what is known of who goes on (``shrinking``)
        self.net, self.layout, self.memory = net, layout, memoryview(self.buffer)
        mine = layout.host_of[rank]
        self.mates = [r for r in layout.hosts[mine] if r != rank]
        self.far = [r for r in range(size) if layout.host_of[r] != mine]
        self.detector: DeadlockDetector = NetDeadlockDetector(self)
        net.root, net.why = self.detector.root, self.detector.why
        self.pending.append(net)
        self._rank_context.waiter.interrupts.insert(0, self._look)

    def partners(self, ranks: Sequence[int]) -> list[Pipe]:
        """For each other host with some of ``ranks``: who takes what all of those are to see."""
        net, layout = self.net, self.layout
        mine = layout.host_of[self.rank]
        by_host: dict[int, list[int]] = {}
        for r in ranks:
            by_host.setdefault(layout.host_of[r], []).append(r)
        place = by_host[mine].index(self.rank) if mine in by_host else 0
        chosen = [
            partner(there, place, [net.is_alive(r) for r in there])
            for host, there in by_host.items()
            if host != mine
        ]
        return [net.pipes[r] for r in chosen if r is not None]

    def put(self, pipe: Pipe, where: int, size: int, words: Sequence[int] = ()) -> None:
        """Queue what stands at ``where`` of the segment, and then the words with these indices."""
        values = [(i, self.words[i]) for i in words]
        pipe.add(frames.put(where, size, values), self.memory[where : where + size])

    def _look(self) -> None:
        if self.lock.acquire(False):  # else another thread is at the links, which looks itself
            try:
                self.net.look()
            finally:
                self.lock.release()

    def _end_wait(self, need: Need | None, failure: frames.Failure) -> None:
        with self.lock:  # found just now: this rank may end of it before it looks again
            self.net.tell(failure)
        if need is not None and self._may_still_come(failure):
            self.progress()
            return
        super()._end_wait(need, failure)

    def _may_still_come(self, failure: Failure) -> bool:
        """Whether what this rank waits for, or the headers of what ranks disagree on, from which it
        finds that too, may be on their way since before the failure."""
        self._failed_at = self._failed_at or context.now()
        waited = context.now() - self._failed_at
        if failure.is_mismatch:
            return waited < _HEADERS_COME
        if failure.rank not in self.far:
            return False
        return waited < (_MADE_OF_IT if self.net.all_heard(failure.rank) else _RESULTS_COME)

    def _until(self, ready: Callable[[], bool], need: Need, timeout: float | None) -> None:
        if self.left:
            self._end_left(need)

        def block(seconds: float) -> None:
            self.net.block(seconds, need)

        context.wait_until(ready, need.what, timeout, block)

    def _detach(self) -> None:
        super()._detach()
        interrupts = self._rank_context.waiter.interrupts
        if self._look in interrupts:
            interrupts.remove(self._look)
        if self.net in self.pending:
            self.pending.remove(self.net)

    def check(self) -> None:
        if self.net.excluded and not self.left:
            raise CommError(self.why_excluded())
        super().check()

    def why_excluded(self) -> str:
        """For a rank without which others go on."""
        return (
            f"the others have gone on without this rank ({self.rank}), since it was taken for lost"
        )

    def leave_groups(self) -> None:
        """Leave all of them; the links and the segment stay."""
        self._stays = True
        try:
            self._leave_all(False)
            self.pending.clear()
        finally:
            self._stays = False

    def _leave_all(self, met: bool) -> None:
        for transport in tuple(self.open):
            transport.close(None)
        self.detector.leave(met)
        self.left = True
        self._detach()
        self.net.sinks.clear()

    def close(self, met: bool) -> None:
        error = sys.exc_info()[1]
        self._leave_all(met)
        if self._stays:  # it is the default group that is left here
            return
        with self.lock:
            if error is not None and not met:
                self._tell(error)
            self.net.leave(frames.MET if met else frames.DROPPED)
        if self.owns_segment:
            self.segment.close()

    def _tell(self, error: BaseException) -> None:
        if not isinstance(error, CollectiveMismatch):  # all ranks raise that themselves
            text = "".join(traceback.format_exception(error))
            self.net.tell(failure_of(self.rank, error, text))

    def end_program(self) -> None:
        super().end_program()
        error = getattr(sys, "last_value", None)
        failure = self.net.known_failure()
        with self.lock:
            if error is not None and not isinstance(error, SystemExit):
                self._tell(error)
            elif failure is not None:
                self.net.tell(failure)
            ended = error is None and failure is None
            self.net.leave(frames.ENDED if ended else frames.DROPPED)

    def disown(self) -> None:
        super().disown()
        self.net.disown()

    def watch_processes(self) -> None:
        super().watch_processes()
        of_mates = self.detector.has_ended
        self.detector.has_ended = lambda rank: of_mates(rank) or self.net.has_ended(rank)


class MirroredChannel(Channel):
    """A group's flags and headers, of which those of this rank are told to other hosts. What stands
    in ``finished`` waits for the next header, or until this rank waits."""

    hub: NetHub
    _pipes: tuple[int, list[Pipe]] = (-1, [])

    @functools.cached_property
    def _mine(self) -> list[int]:
        return [self.own[POSTED], self.own[FINISHED]]

    def pipes(self) -> list[Pipe]:
        """Whom to tell; others when one of them has gone."""
        now = self.hub.net.departures
        if self._pipes[0] != now:
            self._pipes = now, self.hub.partners(self.ranks)
        return self._pipes[1]

    def post(self, call: Call, offset: int = 0, mode: int = NONE, sizes: int = 0) -> bytes:
        print_ = super().post(call, offset, mode, sizes)
        hub = self.hub
        slot = self.headers[self.seq % NUM_HEADERS][0]
        size = FINGERPRINT + WHERE.size + len(call.told)
        with hub.lock:
            for pipe in self.pipes():
                hub.put(pipe, slot, size, self._mine)
                hub.net.go(pipe)
            hub.net.dirty.pop(self, None)
        return print_

    def publish(self, field: int, seq: int, chunk: int = 0) -> None:
        super().publish(field, seq, chunk)
        if field == FINISHED:
            self.hub.net.dirty[self] = None
        elif field == LEFT:
            self.flush(LEFT)

    def flush(self, field: int = FINISHED) -> None:
        """Tell other hosts of a flag now."""
        hub = self.hub
        with hub.lock:
            hub.net.dirty.pop(self, None)  # before it is read: its thread may go on meanwhile
            for pipe in self.pipes():
                hub.put(pipe, 0, 0, [self.own[FINISHED], self.own[field]])
                hub.net.go(pipe)

    def need(self, *args: Any, **named: Any) -> Flags:
        found = super().need(*args, **named)
        text = found.text
        found.text = lambda missing: text(self._surely(missing))
        return found

    def _surely(self, missing: list[int]) -> list[int]:
        """Without those of other hosts whose news come here through one who is missing."""
        layout = self.hub.layout
        mine = layout.host_of[self.hub.rank]
        here = [r for r in self.ranks if layout.host_of[r] == mine]

        def is_heard(rank: int) -> bool:
            there = [r for r in self.ranks if layout.host_of[r] == layout.host_of[rank]]
            return partner(here, there.index(rank), [True] * len(here)) not in missing

        return [r for r in missing if layout.host_of[r] == mine or is_heard(r)] or missing

    def copy(self, offset: int, size: int) -> None:
        """Queue ``size`` bytes at ``offset`` for all other hosts, before the next header."""
        with self.hub.lock:
            for pipe in self.pipes():
                self.hub.put(pipe, offset, size)


class NetDeadlockDetector(DeadlockDetector):
    """Tells other hosts, too, what this rank waits for."""

    looks, calm = LOOKS, CALM

    def __init__(self, hub: NetHub) -> None:
        self._hub: NetHub | None = None
        segment = hub.segment
        super().__init__(hub.words, hub.buffer, segment, hub.rank, hub.size, hub.start)
        self._hub = hub
        self._sent: tuple[int, int] = (0, 0)

    def look(self, need: object, waits: Callable[[], list]) -> None:
        try:
            super().look(need, waits)
        finally:
            self._send()

    def why(self, rank: int) -> str:
        hub = self._hub
        return super().why(rank) if hub is None or rank not in hub.net.gone else hub.net.how(rank)

    def _blame(self, ended: Collection[int], need: object) -> None:
        try:
            super()._blame(ended, need)
        finally:  # to all: whoever finds this rank gone is to see whom it has missed
            hub = self._hub
            if hub is not None:
                with hub.lock:
                    self._put([p for p in hub.net.pipes.values() if p.open])

    def join(self, accuser: int, need: object, waits: Callable[[], list]) -> None:
        try:
            super().join(accuser, need, waits)
        finally:
            self._send()

    def leave(self, met: bool) -> None:
        super().leave(met)
        self._send()

    def relax(self) -> None:
        super().relax()
        if self._sent[1]:
            self._send()

    def _send(self) -> None:
        """The record as it is, if it has changed. A reader takes the version for odd until all of
        it is there."""
        at, words, hub = self._at[self._rank], self._words, self._hub
        if hub is None:
            return
        now = words[at // 8], words[at // 8 + 2]
        if now == self._sent:
            return
        self._sent = now
        with hub.lock:
            self._put(hub.partners(range(hub.size)))

    def _put(self, pipes: Sequence[Pipe]) -> None:
        hub, at = self._hub, self._at[self._rank]
        assert hub is not None
        for pipe in pipes:
            pipe.add(frames.put(0, 0, [(at // 8, self._words[at // 8] | 1)]))
            hub.put(pipe, at + 8, RECORD_BYTES - 8, [at // 8])
            hub.net.go(pipe)


class NetMailbox(Mailbox):
    """Messages, of which those for other hosts are told to whom they are for."""

    hub: NetHub

    def _post(self, dst: int, message: Send) -> None:
        super()._post(dst, message)
        pipe = self.hub.net.pipes.get(dst)
        if pipe is None:
            return
        self._tell(pipe, self.slot(self.hub.rank, dst, message.number), message)

    def _tell(self, pipe: Pipe, slot: int, message: Send) -> None:
        hub, at = self.hub, slot + PRINT_AT
        nbytes = message.data.nbytes
        if nbytes <= INLINE_BYTES:
            size = INLINE_AT - PRINT_AT + nbytes
        else:
            size = INLINE_AT - PRINT_AT
            (where,) = _OFFSET.unpack_from(hub.buffer, slot + KEY_AT + 8)
            hub.put(pipe, where, nbytes)
        hub.put(pipe, at, size, [slot // 8 + 1, slot // 8])
        hub.net.go(pipe)

    def _acknowledge(self, message: Recv, refused: int) -> None:
        super()._acknowledge(message, refused)
        hub, source = self.hub, message.source
        pipe = hub.net.pipes.get(source)
        if pipe is None:
            return
        pair = self._starts[hub.rank] + source * PAIR_BYTES
        if refused:
            hub.put(pipe, pair + REFUSAL_AT, ACKS_BYTES - REFUSAL_AT)
        hub.put(pipe, 0, 0, [pair // 8 + message.number % NUM_SLOTS])
        hub.net.go(pipe)
