"""A process's end of an MPI job: where it waits, what it hears from the others beside their calls.

One ``Station`` per process; the transports of all groups share it. Whoever waits lets everything in
flight go on, reads notices (``notices``), and tells the others when it has waited for a while.

Knows MPI and notices; no operations, no arrays.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from .... import context
from ....errors import CollectiveMismatch, CommError, GroupRevoked, PeerFailed
from ...job import progress
from ...job.segment import JOB_SLOT
from ...job.threads import others_may_move
from ...meeting.survivors import DECIDED, as_view, given_up
from . import library, starting
from .notices import TEXT_BYTES, Board, Notice, Wait, accusation, decode

SLOT = "comm.mpi"  # of a rank's context
_TAG = 1
_DETAIL_BYTES = 16000
_LISTEN_EVERY = 0.001
_TELL_AFTER = 0.1  # seconds of waiting after which the others are told
_LOOK_EVERY = 0.05
# seconds that a wait goes on when a rank has failed: of something else, of calls that do not fit
_LAST_WORDS = (0.05, 1.0)
_LOOKS = 3  # as many looks must agree before anybody is accused


class Need(progress.Need, Protocol):
    """As everywhere, and it can say who is missing."""

    def waits(self) -> Wait | None:
        """What is still missing; None when that cannot be said."""
        ...


def station(timeout: float = context.DEFAULT_TIMEOUT) -> Station:
    """This process's, made when it is first asked for. All ranks of the job ask together; where
    one does not come in ``timeout`` seconds, this process ends."""
    return context.current().slot(SLOT, lambda: Station(timeout))


def existing() -> Station | None:
    """This process's, where there is one and it is not that of a parent."""
    found = context.current().slots.get(SLOT)
    return found if found is not None and found.pid == os.getpid() else None


class Station(progress.Progress[Need]):
    """See above. ``open`` holds the transports that were not left."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        with starting.watched(timeout):
            self.MPI = library.load()
        self.world = self.MPI.COMM_WORLD
        self.comm = self.world.Dup()
        self.rank, self.size = self.world.rank, self.world.size
        self.pid = os.getpid()
        job = context.current().slots.get(JOB_SLOT)  # of our launcher, which sees who dies
        self.view = None if job is None or job.num_ranks != self.size else as_view(job)
        self.open: list[Any] = []
        self.torn: list[Any] = []  # whose memory MPI may still write to
        self.board = Board(self.rank)
        self.hooks: Any = None  # of the interpreter (``ending``)
        self.over = False  # MPI is finalized, or this is a process that the rank has forked
        self._sending: list[Any] = []
        self._since: float | None = None
        self._failed_at: float | None = None  # when this rank heard of the first failure
        self._next_listen = self._next_look = 0.0
        self._told: Notice | None = None
        self._looks: tuple[frozenset[int], int] = (frozenset(), 0)
        beside = self.world.Split_type(self.MPI.COMM_TYPE_SHARED)
        starting.unlink_memory()  # all ranks have it by now
        waiter = context.current().waiter
        waiter.interrupts.append(self.check)
        if beside.size > len(os.sched_getaffinity(0)):
            # who spins keeps the processor from the one it waits for
            waiter.spins = 0
        beside.Free()

    # -- waiting ------------------------------------------------------------------------------

    @property
    def is_launched(self) -> bool:
        """Does our launcher see this process end, and say how?"""
        return self.view is not None

    def _until(self, ready: Callable[[], bool], need: Need, timeout: float | None) -> None:
        try:
            context.wait_until(ready, need.what, timeout)
        except self.MPI.Exception as error:
            raise CommError(f"{need.what()}: MPI says: {error}") from None

    def check(self) -> None:
        """Called while this rank waits: raises when a peer failed or nobody can go on."""
        now = context.now()
        if self.over or now < self._next_listen:
            return
        self._next_listen = now + _LISTEN_EVERY
        self.listen()
        need, _ = self._needs.get(threading.get_ident(), (None, None))
        board = self.board
        if board.verdict is not None and need is not None:
            text, board.verdict = board.verdict, None
            self._end_wait(need, CollectiveMismatch(text))
        job = self.view.failure() if self.view is not None else None
        if self.view is not None and (why := given_up(self.view, self.rank)):
            self._end_wait(need, GroupRevoked(why if need is None else f"{need.what()}: {why}"))
        if job is not None and job.rank != self.rank:
            board.failures.setdefault(job.rank, (job.cause, job.traceback))
        if board.failures:
            self._look_at_failures(need, now)
        if need is None:
            return
        if self._since is None:
            self._since, self._next_look = now, now + _TELL_AFTER
        elif now >= self._next_look:
            self._next_look = now + _LOOK_EVERY
            self._look(need)

    def _look_at_failures(self, need: Need | None, now: float) -> None:
        """What another rank failed of may be an error that this one must raise itself, once all
        that is on its way has come."""
        rank, (cause, traceback) = next(iter(self.board.failures.items()))
        if self._failed_at is None:
            self._failed_at = now
        same = cause.startswith(CollectiveMismatch.__name__)
        if need is None or now >= self._failed_at + _LAST_WORDS[same]:
            where = "" if need is None else need.what()
            self._end_wait(need, PeerFailed(rank, cause, traceback, where))

    def _end_wait(self, need: Need | None, error: Exception) -> None:
        """Raise, unless the wait is over."""
        if need is not None:
            self.progress()
            if need():
                return
        raise error

    def _relax(self) -> None:
        """A wait is over."""
        if self._since is not None and not self._needs:
            self._since, self._looks = None, (frozenset(), 0)
            if self._told is not None:
                self._told = None
                self.tell(Notice("free"))

    # -- what others say ----------------------------------------------------------------------

    def listen(self) -> None:
        """Read what the others have said."""
        with self.lock:
            MPI = self.MPI
            while True:
                message = self.comm.Improbe(MPI.ANY_SOURCE, _TAG, status := MPI.Status())
                if message is None:
                    break
                data = bytearray(status.Get_count(MPI.BYTE))
                message.Recv([data, MPI.BYTE])
                self.hear(status.source, bytes(data))
            self._sending = [item for item in self._sending if not item[0].Test()]

    def hear(self, rank: int, data: bytes) -> None:
        """``rank`` has said ``data``."""
        self.board.hear(rank, decode(data))

    def tell(self, notice: Notice, ranks: list | range | set | None = None) -> None:
        """Tell the others (or ``ranks``)."""
        data = notice.encode()
        with self.lock:
            for rank in range(self.size) if ranks is None else ranks:
                if rank != self.rank:
                    self._sending.append((self.comm.Isend([data, self.MPI.BYTE], rank, _TAG), data))

    def fail(self, cause: str, traceback: str, ranks: range | None = None) -> None:
        """Tell the others (or ``ranks``) that this rank has failed."""
        text, detail = cause[:TEXT_BYTES], traceback[-_DETAIL_BYTES:]
        self.tell(Notice("failed", text, detail=detail), ranks)

    def notice(self, kind: str, **fields: Any) -> Notice:
        """A notice with this rank's counts."""
        calls = {t.key: t.seq for t in self.open}
        mail = {t.key: dict(t.mail_sent()) for t in self.open}
        return Notice(kind, calls=calls, mail=mail, **fields)

    # -- who is stuck -------------------------------------------------------------------------

    def _look(self, need: Need) -> None:
        mine = self._mine(need)
        if mine is None:
            return
        if mine != self._told:
            self._told = mine
            self.tell(mine)
        stuck = frozenset(self.board.stuck(mine))
        same = self._looks[1] + 1 if stuck == self._looks[0] else 1
        self._looks = stuck, same
        if stuck and same >= _LOOKS:
            self.accuse(mine, stuck)

    def accuse(self, mine: Notice, stuck: frozenset[int]) -> None:
        """Raise, and have the others of ``stuck`` raise, too, and who waits for them."""
        text = accusation({**self.board.said, self.rank: mine}, stuck)
        self.tell(Notice("accuses", text), self.board.concerned(mine, stuck))
        raise CollectiveMismatch(text)

    def _mine(self, need: Need) -> Notice | None:
        """What this rank waits for; None where it may go on all the same, since a wait is only a
        probe or some thread may still do something."""
        needs = dict(self._needs)
        if any(limit is not None and limit <= context.PROBE_SECONDS for _, limit in needs.values()):
            return None
        if others_may_move(set(needs)):
            return None
        waits = [each.waits() for each, _ in needs.values()]
        if any(wait is None or not wait.edges for wait in waits):
            return None
        texts = dict.fromkeys([need.what(), *[each.what() for each, _ in needs.values()]])
        text = "\n    and in ".join(texts)[:TEXT_BYTES]
        return self.notice("waits", text=text, waits=tuple(w for w in waits if w is not None))

    # -- the end ------------------------------------------------------------------------------

    def flush(self, seconds: float) -> None:
        """Wait until the others have what this rank has told them, at most so long."""

        def sent() -> bool:
            self._sending = [item for item in self._sending if not item[0].Test()]
            return not self._sending

        try:
            context.wait_until(sent, lambda: "notices to be read", seconds)
        except Exception:
            return

    def begin_anew(self) -> None:
        """Forget all groups and all that was said. For tests, between jobs in one job; all ranks
        call it, after they have met."""
        self.listen()
        for transport in self.open:
            transport.disable("it belongs to an earlier job")
        self.open, self.pending, self.board = [], [], Board(self.rank)
        self._told = self._since = self._failed_at = None

    def end(self) -> None:
        """The program ends without having left its groups: finish what all have entered. Raises
        ``CollectiveMismatch`` where others have ended that made other calls."""
        for transport in tuple(self.open):
            transport.part()
        self.listen()
        for transport in tuple(self.open):
            transport.compare_counts()

    @property
    def is_left(self) -> bool:
        """Whether the ranks have gone on without one that has failed, and without MPI."""
        return self.view is not None and self.view.base.rounds[DECIDED] > self.view.round

    def give_up(self) -> None:
        """Use MPI for nothing any more, though it is not finalized."""
        for transport in self.open:
            transport.disable("a rank has failed, and the others have gone on without it")
        self.open, self.pending = [], []
        self.detach()

    def detach(self) -> None:
        """Take no part in anything any more."""
        self.over = True
        interrupts = context.current().waiter.interrupts
        if self.check in interrupts:
            interrupts.remove(self.check)
