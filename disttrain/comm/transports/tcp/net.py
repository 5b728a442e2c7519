"""All links of a rank: one pipe to every rank of another host, and what is known of those ranks.

Nobody has a thread for it. Whoever waits (``mirror.NetHub``) lets everything go on: takes what has
come, sends what there is room for. So nothing competes with it for the interpreter, and what has
come need not be handed from one thread to another.

A rank whose link ends without a farewell has failed; so has one whose host acknowledges nothing for
``pipe.SILENCE`` seconds, though signs of life are sent while anybody here waits. That is published
in this host's segment, where all its ranks look, and what is published there by others (a launcher,
the rank itself) is told to all other hosts.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from .... import context
from ....errors import CommError, PeerFailed
from ...job.segment import Failure
from ...meeting.survivors import WANTED, View, as_view
from ...sockets.link import Closed, Link
from ..shm.fences import words_of
from . import frames
from .agreement import Word, decode, room
from .pipe import Garbage, Pipe

# Seconds in which somebody may say why a rank's link has ended, or this rank find what they
# disagree on: so late a process has its turn on a machine that has too much to do.
GRACE = 0.3
# In which the other ranks of this host take what came to them of a rank before its end. They may be
# far from any call, and then take nothing.
HEARD = 1.0
_BEAT_EVERY = 0.5
_FAREWELL = 2.0  # seconds for what was sent last
_NAP = 0.0002  # seconds that a rank sleeps which waits for others of its host, too ...
_EAGER, _LONG = 3, 1000  # ... after so many naps in vain without spinning, and five times as long
_SPINS = 80
_OVER = ("finished", "failed", "vanished")
_IN, _OUT = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT


class Sink(Protocol):
    """An operation that others send pieces for."""

    def target(self, rank: int, index: int, size: int) -> memoryview:
        """Where a piece belongs. Raises ``Garbage``."""
        ...

    def taken(self, rank: int, index: int) -> None:
        """It is there."""
        ...


class _GivenAway(dict):
    """The pipes of a net that others go on with."""

    def __missing__(self, rank: int) -> Pipe:
        raise CommError("the group was left meanwhile; nothing more will come")


class Net:
    """The links of ``rank``. ``host_of``: of every rank; ``sealed``: whether what goes over links
    is encrypted. One thread at a time calls anything but ``block``."""

    def __init__(self, segment: Any, rank: int, host_of: Sequence[int], sealed: bool) -> None:
        self.segment, self.rank, self.view = segment, rank, as_view(segment)
        self.sealed = sealed
        self.job: Any = None  # the launcher's segment, where it has another one, of the same ranks
        self.pipes: dict[int, Pipe] = {}
        self.sinks: dict[int, Sink] = {}
        self.gone: dict[int, tuple[float, str]] = {}  # whose link ended, when, and how
        self.root: Callable[[int], int] = lambda rank: rank  # whom one that is gone had missed
        self.why: Callable[[int], str] = self.how
        self.over: dict[int, float] = {}  # whose program has ended, and when that was heard
        self.sure: set[int] = set()  # who has ended for certain, as it or its host has said
        self.said: dict[int, Word] = {}  # of who goes on
        self.excluded = False  # others go on, and this rank is none of them
        self.dirty: dict[Any, None] = {}  # what has something to tell before anybody waits
        self._by_fd: dict[int, tuple[Pipe, bool]] = {}
        self._wants_room: set[int] = set()
        self._epoll = select.epoll()
        self._events: list = []
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, _IN)
        self._bells = [self._bell]  # while it is open
        self._asleep: set[int] = set()  # threads
        self._memory = memoryview(segment.buffer)
        whole = np.frombuffer(segment.buffer, np.uint8)
        self._words = words_of(segment.buffer, whole.__array_interface__["data"][0])
        self._news = bytearray(0)
        self._junk = memoryview(bytearray(0))
        self._told = False
        self._next_beat = context.now() + _BEAT_EVERY
        self.host_of = host_of
        self._mates, self._in_vain = host_of.count(host_of[rank]) > 1, 0
        self._closed = False
        self.departures = 0  # how many pipes have ended, or are about to
        self._heard: dict[int, int] = {}
        self._areas: dict[int, tuple[int, int, int, int]] = {}  # where a rank's own memory is

    def add(self, pipe: Pipe) -> None:
        self.pipes[pipe.rank] = pipe
        for link, is_pulse in ((pipe.link, False), (pipe.pulse, True)):
            if not link.closed:
                self._by_fd[link.fileno()] = pipe, is_pulse
                self._epoll.register(link.fileno(), _IN)

    def listen_with(self, heard: dict[int, int]) -> None:
        """``heard``: where in the segment each rank of this host, which tells the others there what
        it hears, has a byte for every rank of the job: whether it has heard all that comes of it
        before its end, or before its failure."""
        self._heard = heard

    def is_alive(self, rank: int) -> bool:
        pipe = self.pipes.get(rank)
        return pipe is not None and pipe.open and pipe.said_bye is None

    # --- going on --------------------------------------------------------------------------------

    def advance(self) -> None:
        """Take what has come and send what there is room for. Never waits."""
        if self._closed:
            return
        for one in tuple(self.dirty):
            one.flush()
        events, self._events = self._events, []
        for fd, mask in events or self._epoll.poll(0):
            self._attend(fd, mask)
            if self._asleep:  # what one of them waits for may be there now, and nothing more comes
                os.eventfd_write(self._bell, 1)

    def block(self, seconds: float, ready: Callable[[], bool]) -> None:
        """Sleep until something has come or there is room again, or ``seconds`` are over. ``ready``
        is asked while that costs nothing: what others of this host do rings no bell."""
        if self._closed:
            return
        try:
            poll = self._epoll.poll
            if self._in_vain <= _EAGER:
                for turn in range(_SPINS):
                    self._events = poll(0)
                    if self._events or ready():
                        self._in_vain = 0
                        return
                    if self._mates and turn >= _SPINS // 4:
                        os.sched_yield()
            self._in_vain += 1
            if self._mates:  # a poll cannot sleep for less than a millisecond
                time.sleep(min(seconds, _NAP if self._in_vain < _LONG else 5 * _NAP))
                self._events = poll(0)
            else:
                self._events = self._sleep(seconds, ready)
            if self._events:
                self._in_vain = 0
        except (ValueError, OSError):  # another thread has closed the poll
            if not self._closed:
                raise
            self._events = []

    def _sleep(self, seconds: float, ready: Callable[[], bool]) -> list:
        """Until something comes, or another thread has taken it."""
        me = threading.get_ident()
        self._asleep.add(me)
        try:
            return [] if self._closed or ready() else self._epoll.poll(seconds)
        finally:
            if len(self._asleep) == 1:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            self._asleep.discard(me)
            if self._closed:
                self._close_bell()

    def _close_bell(self) -> None:
        """Once nobody is asleep: its number may be another descriptor's at once."""
        if not self._asleep:
            with contextlib.suppress(IndexError):
                os.close(self._bells.pop())

    def _attend(self, fd: int, mask: int) -> None:
        entry = self._by_fd.get(fd)
        if entry is None:
            return
        pipe, is_pulse = entry
        try:
            if is_pulse:
                pipe.hear()
                return
            if mask & ~select.EPOLLOUT:
                pipe.receive()
            if mask & select.EPOLLOUT:
                self.go(pipe)
        except (Closed, Garbage) as error:
            self._lose(pipe, error, is_pulse)

    def go(self, pipe: Pipe) -> None:
        """Send what is queued, as far as there is room; the rest when there is."""
        try:
            pipe.go()
        except Closed as error:
            self._lose(pipe, error, False)
            return
        waits, fd = not pipe.idle, pipe.link.fileno()
        if waits != (fd in self._wants_room):
            (self._wants_room.add if waits else self._wants_room.discard)(fd)
            self._epoll.modify(fd, _OUT if waits else _IN)

    @property
    def idle(self) -> bool:
        """Whether everything that was queued has been handed to the kernel."""
        return not self._wants_room

    # --- what comes ------------------------------------------------------------------------------

    def target(self, rank: int, kind: int, index: int, where: int, size: int) -> memoryview:
        if kind == frames.PUT:
            if size:
                self._check_place(rank, where, where + size)
            return self._memory[where : where + size]
        if kind == frames.DATA:
            sink = self.sinks.get(where)
            if sink is None:  # the operation was given up here
                if len(self._junk) < size:
                    self._junk = memoryview(bytearray(size))
                return self._junk[:size]
            return sink.target(rank, index, size)
        if (kind == frames.NEWS and size <= frames.MOST_NEWS) or (
            kind == frames.WORD_OF and size == room(self.view.base.num_ranks)
        ):
            self._news = bytearray(size)
            return memoryview(self._news)
        if kind in (frames.BYE, frames.PULSE) and not size:
            return self._junk[:0]
        raise Garbage(f"a frame of kind {kind} with {size} bytes")

    def taken(
        self, rank: int, kind: int, index: int, where: int, words: Iterable[tuple[int, int]]
    ) -> None:
        if kind == frames.PUT:
            for place, value in words:
                self._check_place(rank, 8 * place, 8 * place + 8)
                self._words[place] = value
        elif kind == frames.DATA:
            sink = self.sinks.get(where)
            if sink is not None:
                sink.taken(rank, index)
        elif kind == frames.NEWS:
            self._hear_news(rank)
        elif kind == frames.WORD_OF:
            self._hear_word(rank)
        elif kind == frames.BYE:
            self.pipes[rank].said_bye = index
            self.departures += 1
            self.sure.add(rank)
            if index == frames.ENDED:
                self.segment.slot(rank).state = "finished"
                self.over.setdefault(rank, context.now())
            self._have_heard(rank)

    def _check_place(self, rank: int, lo: int, hi: int) -> None:
        """A rank writes into its own areas only, here as on its own host."""
        areas = self._areas.get(rank)
        if areas is None:
            (comm, size), (arena, room) = self.segment.comm_area(rank), self.segment.arena(rank)
            areas = self._areas[rank] = comm, comm + size, arena, arena + room
        if not ((areas[0] <= lo and hi <= areas[1]) or (areas[2] <= lo and hi <= areas[3])):
            raise Garbage(f"bytes for {lo} to {hi} of the segment, which are not rank {rank}'s")

    def _hear_word(self, rank: int) -> None:
        view = self.view
        try:
            word = self.said[rank] = decode(bytes(self._news), view.base.num_ranks)
        except ValueError as error:
            raise Garbage(f"a word that makes no sense ({error})") from None
        rounds, decided = view.base.rounds, word.decided
        rounds[WANTED] = max(rounds[WANTED], word.round)
        if decided is not None and decided.number > view.round:
            self.excluded = view.members[self.rank] not in decided.members

    def _hear_news(self, sender: int) -> None:
        try:
            failure = frames.read_news(bytes(self._news))
        except ValueError as error:
            raise Garbage(f"news that make no sense ({error})") from None
        if failure.rank in self.view.members:
            rank = self.view.members.index(failure.rank)
            self._publish(Failure(rank, failure.cause, failure.traceback))
            if rank == sender:
                self._have_heard(rank)
            if self.host_of[rank] == self.host_of[sender]:  # there it is known for certain
                self.sure.add(rank)

    # --- failures --------------------------------------------------------------------------------

    def _lose(self, pipe: Pipe, error: Exception, is_pulse: bool) -> None:
        """A link of ``pipe`` has ended. What it had said before comes first."""
        by_peer = getattr(error, "by_peer", False)
        if pipe.open and not isinstance(error, Garbage):
            with contextlib.suppress(Closed, Garbage):
                pipe.receive()  # where sending has failed, nothing has been read yet
                if is_pulse and by_peer and not pipe.pulse.closed:
                    self._forget(pipe.pulse)
                    pipe.outlive_pulse()
                    return
        for link in (pipe.link, pipe.pulse):
            self._forget(link)
        pipe.close()
        self.departures += 1
        if by_peer:
            self.sure.add(pipe.rank)
        if pipe.said_bye is None:
            self.gone.setdefault(pipe.rank, (context.now(), str(error)))
        self._have_heard(pipe.rank)

    def _forget(self, link: Link) -> None:
        fd = link.fileno()
        if self._by_fd.pop(fd, None) is not None:
            self._wants_room.discard(fd)
            self._epoll.unregister(fd)

    def has_ended(self, rank: int) -> bool:
        """Whether the link to a rank has ended without a farewell, and nobody has said why, or its
        program has; and all that it has ever sent is here: the other ranks of this host, who take
        some of it, have heard of its end, too (or their own has come). Of a broken link, those have
        ``HEARD`` seconds for it."""
        when = self.gone[rank][0] if rank in self.gone else self.over.get(rank)
        since = 0.0 if when is None else context.now() - when
        if since <= GRACE:
            return False
        return self.all_heard(rank) or (rank in self.gone and since > HEARD)

    def all_heard(self, rank: int) -> bool:
        """Whether all ranks of this host that are still there have heard what a rank of another
        host has said before its end: what it told this one's through them is in the segment."""
        number = self.view.members[rank]
        return all(
            self._memory[at + number] or self.segment.slot(mate).state in _OVER
            for mate, at in self._heard.items()
        )

    def _have_heard(self, rank: int) -> None:
        if self._heard:
            self._memory[self._heard[self.rank] + self.view.members[rank]] = 1

    def look(self) -> None:
        """Called again and again by who waits: give signs of life, and publish what has failed."""
        if self._closed:
            return
        failure = self.known_failure()
        if failure is None:
            failure = self._failure_found()
        if failure is not None:
            self.tell(failure)
        self.beat()

    def known_failure(self) -> Failure | None:
        """What has been published, here or in the launcher's segment."""
        failure = self.segment.failure()
        if failure is None and self.job is not None:
            failure = self.job.failure()
            if failure is not None:
                self._publish(failure)
        return failure

    def beat(self) -> None:
        """Give signs of life, when it is time."""
        now = context.now()
        if now >= self._next_beat:
            self._next_beat = now + _BEAT_EVERY
            for pipe in self.pipes.values():
                try:
                    pipe.beat()
                except Closed as error:
                    self._lose(pipe, error, True)

    def _failure_found(self) -> Failure | None:
        """Of the first rank whose link has ended, when nobody has said why for a moment; or of the
        one that this rank has missed before."""
        now = context.now()
        for rank, (when, _) in self.gone.items():
            if now - when > GRACE:
                first = self.root(rank)
                self._publish(Failure(first, self.why(first), ""))
                return self.segment.failure()
        return None

    def how(self, rank: int) -> str:
        """What has become of the link to a rank that is gone."""
        return f"its link has ended: {self.gone[rank][1]}"

    def _publish(self, failure: Failure) -> None:
        self.segment.publish_failure(failure.rank, failure.cause, failure.traceback)

    def tell(self, failure: Failure) -> None:
        """Tell all other hosts, once."""
        if not self._told:
            self._told = True
            number = self.view.members[failure.rank]  # views may differ for a moment
            self._send_all(frames.news(Failure(number, failure.cause, failure.traceback)))

    def tell_word(self, data: bytes) -> None:
        """Tell all of other hosts what this rank says of who goes on."""
        self._send_all(frames.word_of(data))

    def _send_all(self, frame: bytes) -> None:
        for pipe in self.pipes.values():
            if pipe.open:
                pipe.add(frame)
                self.go(pipe)

    def hand_over(self, view: View, host_of: Sequence[int]) -> Net:
        """What the ranks of ``view`` go on with: the links to them. The others' are closed."""
        numbers = {self.view.members.index(r): new for new, r in enumerate(view.members)}
        mine = numbers[self.rank]
        made = Net(view, mine, host_of, self.sealed)
        made.departures = self.departures + 1
        made.gone = {numbers[r]: found for r, found in self.gone.items() if r in numbers}
        made.over = {numbers[r]: found for r, found in self.over.items() if r in numbers}
        made.sure = {numbers[r] for r in self.sure if r in numbers}
        made.said = {numbers[r]: word for r, word in self.said.items() if r in numbers}
        for rank, pipe in self.pipes.items():
            if rank not in numbers:
                pipe.close()
                continue
            pipe.hand_over(numbers[rank], made)
            made.pipes[pipe.rank] = pipe
            if pipe.open:
                made.add(pipe)
                made.go(pipe)
        self.pipes = _GivenAway()
        self.departures += 1
        self.abandon()
        return made

    # --- the end ---------------------------------------------------------------------------------

    def leave(self, how: int) -> None:
        """Say farewell (``frames.DROPPED``, ``MET`` or ``ENDED``) and close all links. Who has met
        the others hears their farewells, too."""
        if self._closed:
            return
        for one in tuple(self.dirty):
            one.flush()
        self._send_all(frames.bye(how))
        end = context.now() + _FAREWELL
        while not all(self._has_parted(pipe, how) for pipe in self.pipes.values()):
            if context.now() > end:
                break
            self._events = self._epoll.poll(0.01)
            self.advance()
        self.abandon()

    @staticmethod
    def _has_parted(pipe: Pipe, how: int) -> bool:
        heard = how != frames.MET or pipe.said_bye is not None
        return pipe.idle and (heard or not pipe.open)

    def abandon(self) -> None:
        """Close this process's descriptors, and say nothing."""
        self._closed = True
        for pipe in self.pipes.values():
            pipe.close()
        self._by_fd.clear()
        if not self._epoll.closed:
            if self._asleep:
                os.eventfd_write(self._bell, 1)
            self._epoll.close()
            self._close_bell()
        self.sinks.clear()

    def disown(self) -> None:
        """In a process forked from this rank, which has none of its other threads."""
        self._asleep.clear()
        for pipe in self.pipes.values():
            pipe.disown()
        self.pipes = {}
        self.abandon()


def failure_of(rank: int, error: BaseException, text: str) -> Failure:
    """What a rank that ends with ``error`` has failed of: of another rank's failure, if that is
    what it ends with."""
    if isinstance(error, PeerFailed):
        return Failure(error.rank, error.cause, error.traceback)
    return Failure(rank, f"{type(error).__name__}: {error}", text)
