"""What the ranks of a simulated cluster share: matchers, messages on their way, the network's time.

Whatever takes time ends in an event of the scheduler; the rank that it is for is woken. A link
carries one thing after the other in each direction (full duplex): an operation begins when all of
its members have come and their links (and, between hosts, the links of the hosts) are free both
ways, a message when the way out of its sender and that into its receiver are.

Knows the scheduler, the network and the faults; not how a rank waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .... import context
from ....errors import CommError, ConfigError
from ...calls.header import name_ranks
from ...job.segment import Failure
from .exchange import Part, bytes_of, move
from .faults import DROP, RPC, Calendar, Fault, Struck
from .matching import Matcher
from .network import Link, Network, spread
from .posts import Letter, Posts
from .scheduler import Killed, Scheduler, SimWaiter
from .timeline import Timeline

SLOT = "comm.sim.fabric"  # of the scheduler
SILENCE = 3.5  # seconds after which links to a rank without a network count as ended
LOCAL, REMOTE = Link(1e-6, 10e9), Link(20e-6, 10e9)  # of a cluster of which nothing is said


@dataclass(frozen=True)
class Cluster:
    """The machines. ``compute``: seconds that a rank's program takes from one call of a verb to
    the next; None: what its thread has needed of a processor. ``stragglers``: rank -> how many
    times longer."""

    num_ranks: int
    num_hosts: int = 1
    local: Link = LOCAL
    remote: Link = REMOTE
    algorithm: str = "auto"
    compute: float | None = 0.0
    stragglers: tuple[tuple[int, float], ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def network(self) -> Network:
        hosts = spread(self.num_ranks, self.num_hosts)
        return Network(hosts, self.local, self.remote, self.algorithm)


_CUT = Fault(DROP, None, None, None)


@dataclass
class Ports:
    """When each direction of each link is free again: of ranks, and of hosts."""

    network: Network
    _free: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def take(self, now: float, seconds: float, ranks: Sequence[int]) -> tuple[float, float]:
        """An operation of ``ranks``, who all send and receive, takes so long: from when to when."""
        return self._take(now, seconds, ranks, ranks)

    def send(self, now: float, seconds: float, src: int, dst: int) -> tuple[float, float]:
        """The same of a message."""
        return self._take(now, seconds, (src,), (dst,))

    def _take(
        self, now: float, seconds: float, sends: Sequence[int], receives: Sequence[int]
    ) -> tuple[float, float]:
        several = len({self.network.hosts[rank] for rank in (*sends, *receives)}) > 1
        ways: list[tuple[str, str, int]] = []
        for way, ranks in (("out", sends), ("in", receives)):
            ways += [(way, "rank", rank) for rank in ranks]
            ways += [(way, "host", self.network.hosts[rank]) for rank in ranks if several]
        start = max([now, *(self._free.get(way, 0.0) for way in ways)])
        self._free.update(dict.fromkeys(ways, start + seconds))
        return start, start + seconds


@dataclass
class _Leaving:
    """A default group whose ranks agree on who goes on: ``members`` once ``number`` is not 0."""

    came: set[int] = field(default_factory=set)
    excluded: set[int] = field(default_factory=set)
    members: list[int] = field(default_factory=list)
    number: int = 0


class Fabric:
    """One simulated cluster."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster) -> None:
        self.scheduler, self.cluster = scheduler, cluster
        self.network = cluster.network
        self.ports = Ports(self.network)
        self.calendar = Calendar(cluster.faults)
        self.timeline = Timeline(cluster.num_ranks)
        self.posts = Posts()
        self.failure: Failure | None = None
        self.happened: list[str] = []  # the faults that have struck
        self.unreachable: set[int] = set()  # ranks without a network
        self._matchers: dict[tuple, Matcher] = {}
        # (seat, size, place) -> default groups that it has had there; the number of each group
        self._worlds: dict[tuple[int, int, str], int] = {}
        self._numbers: dict[tuple[int, str, int], int] = {}
        # of a pair: messages on their way, in their order; when the last one arrives
        self._letters: dict[tuple[int, int], deque[Letter]] = {}
        self._last: dict[tuple[int, int], float] = {}
        # rank -> when the last message of workers to it leaves, and arrives
        self._carried: dict[int, tuple[float, float]] = {}
        # matcher -> its operations on their way, in their order: number, parts, since when
        self._moving: dict[Matcher, deque[tuple[int, list[Part], float]]] = {}
        self._leaving: dict[Matcher, _Leaving] = {}
        self._shrunk = 0
        self._without: set[int] = set()  # ranks that the others have gone on without
        self._slower = dict(cluster.stragglers)
        scheduler.slots[SLOT] = self
        scheduler.when_waited = self._waited
        scheduler.stopwatch = None if cluster.compute == 0.0 else self._lasts

    # -- time ---------------------------------------------------------------------------------

    def _lasts(self, rank: int, spent: float, is_call: bool) -> float:
        """How long a rank's program has taken since its last wait."""
        given = self.cluster.compute
        seconds = spent if given is None else (given if is_call else 0.0)
        seconds *= self._slower.get(rank, 1.0)
        now = self.scheduler.clock
        self.timeline.computed(rank, now, now + seconds)
        return seconds

    def message_seconds(self, src: int, dst: int, nbytes: int) -> float:
        """How long from now until a message of other parts arrives."""
        link = self.network.link(src, dst)
        _, end = self.ports.send(self.scheduler.clock, link.seconds(0, nbytes), src, dst)
        return end + link.latency - self.scheduler.clock

    def carry(self, src: int, dst: int, nbytes: int, late: float) -> float:
        """A worker sends a message to another one: how long until it arrives, ``late`` included."""
        now, seconds = self.scheduler.clock, self.message_seconds(src, dst, nbytes) + late
        self._carried[dst] = now, now + seconds
        pair = (src, dst) if src != dst else (src,)
        self.timeline.flew(pair, RPC, now, now + seconds, nbytes)
        return seconds

    def _waited(self, rank: int, what: str, start: float, end: float) -> None:
        """The program of ``rank`` has waited for something that is no operation of a group: for an
        answer of a worker, whose way here is communication, or for a store, a lock, a time."""
        left, arrived = self._carried.get(rank, (end, end))
        self.timeline.waited(rank, what, start, end, left if arrived == end else end)

    # -- points -------------------------------------------------------------------------------

    def call(self, me: context.Rank, verb: str) -> Struck:
        """A rank calls a verb: its clock goes on, and what is due here strikes."""
        waiter = me.waiter
        assert isinstance(waiter, SimWaiter)
        waiter.charge(is_call=True)
        rank = waiter.rank
        struck = self.calendar.next(rank, verb)
        point = f"{rank}@{verb}:{self.calendar.counts[rank, verb]}"
        for kind, what in (("kill", struck.kill), ("drop", struck.drop), ("delay", struck.delay)):
            if what:
                self.happened.append(f"--{kind} {point}")
        if struck.kill is not None:
            why = f"killed (--kill {point})"
            self.scheduler.end_rank(rank, why)
            raise Killed(why)
        if rank in self.unreachable:
            struck = replace(struck, drop=_CUT)
        if struck.drop is not None:
            self.scheduler.lost = True
        return struck

    def cut(self, rank: int) -> None:
        """``rank`` has no network any more: of what it sends, and of what is sent to it from now
        on, nothing arrives. Both sides find that out by their links' silence."""
        self.unreachable.add(rank)

        def found() -> None:
            self.fail(
                rank, f"its link has ended: its host has acknowledged nothing for {SILENCE} s"
            )
            self.scheduler.failed = True
            self.scheduler.wake_all()

        self.scheduler.later(SILENCE, found)

    def step(self) -> None:
        """The calling rank has ended a step of its training."""
        waiter = context.current().waiter
        assert isinstance(waiter, SimWaiter)
        waiter.charge()
        self.timeline.stepped(waiter.rank, self.scheduler.clock)

    def fail(self, rank: int, cause: str, traceback: str = "") -> None:
        """``rank`` has failed; the first one counts, of those that the job still has."""
        if self.failure is None and rank not in self._without:
            self.failure = Failure(rank, cause, traceback)

    # -- groups -------------------------------------------------------------------------------

    def world(self, seat: int, rank: int, size: int | None, at: str = "") -> tuple[Matcher, int]:
        """The matcher of the next default group of ``seat``, which is ``rank`` of ``size`` there,
        and the group's number. ``at``: groups that meet at other places are others."""
        everyone = self.cluster.num_ranks
        size = everyone if size is None else size
        at = f"of seat {seat}" if size == 1 else "" if size == everyone else at
        nth = self._worlds[seat, size, at] = self._worlds.get((seat, size, at), 0) + 1
        number = self._numbers.setdefault((size, at, nth), len(self._numbers) + 1)
        if size == 1:
            return Matcher("world", [rank], self._ready, [seat]), number
        matcher = self.matcher(number, "world", range(size))
        matcher.seats[rank] = seat
        return matcher, number

    def matcher(self, world: int, name: str, ranks: Sequence[int]) -> Matcher:
        """The matcher of a group, the same for all members."""
        key = (world, name, *ranks)
        if key not in self._matchers:
            self._matchers[key] = Matcher(name, ranks, self._ready)
        return self._matchers[key]

    def survivors(
        self, matcher: Matcher, seat: int, timeout: float, exclude: Collection[int] = ()
    ) -> tuple[list[int], int]:
        """The ranks of a default group that live and are not in ``exclude``, once all of them ask,
        and the number of the group that they go on as. Raises ``WaitTimeout`` naming who has
        neither come nor ended, ``CommError`` in one that the others have excluded."""
        if seat in self.unreachable:
            raise CommError("shrink: this rank has no network, and the others go on without it")
        state = self._leaving.setdefault(matcher, _Leaving())
        state.came.add(seat)
        state.excluded.update(exclude)

        def missing() -> list[int]:
            ended = self.scheduler.ended | state.excluded
            return [s for s in matcher.seats if s not in state.came and s not in ended]

        def what() -> str:
            return f"shrink; {name_ranks(missing())} not come"

        context.wait_until(lambda: bool(state.number) or not missing(), what, timeout, _look_only)
        if not state.number:  # the first one to see it
            self._shrunk += 1
            came = state.came - state.excluded - self.scheduler.ended
            state.number, state.members = -self._shrunk, sorted(came, key=matcher.seats.index)
            self._without.update(set(matcher.seats) - came)
            self.failure = None
        if seat not in state.members:
            raise CommError("shrink: the others have gone on without this rank")
        return state.members, state.number

    def forget(self, matcher: Matcher) -> None:
        """All members have left."""
        self._matchers = {key: each for key, each in self._matchers.items() if each is not matcher}

    def later(self, delay: float, action: Callable[[], Any]) -> None:
        """``action`` happens then, at once without a delay."""
        if delay > 0.0:
            self.scheduler.later(delay, action)
        else:
            action()

    def _ready(self, matcher: Matcher, number: int, parts: list[Part]) -> None:
        """All have come to an operation: their data is on its way."""
        verb, now = parts[0].call.op, self.scheduler.clock
        nbytes = bytes_of(parts)
        seconds = self.network.seconds(verb, matcher.seats, nbytes)
        start, end = self.ports.take(now, seconds, matcher.seats)
        self._moving.setdefault(matcher, deque()).append((number, parts, start))
        self.timeline.flew(matcher.seats, verb, start, end, round(nbytes))
        self.scheduler.later(end - now, partial(self._done, matcher))

    def _done(self, matcher: Matcher) -> None:
        """The next operation of ``matcher`` ends (of several at one time, the first one)."""
        _, parts, _ = self._moving[matcher][0]
        error: BaseException | None = None
        try:
            if parts[0].verb != "close":
                move(parts)
        except Exception as raised:  # a type that cannot be reduced so: everybody's error
            error = raised
        for part in parts:
            part.ended(error)
        self._moving[matcher].popleft()
        if not self._moving[matcher]:
            del self._moving[matcher]

    def moving_since(self, matcher: Matcher, number: int) -> float | None:
        """Since when the data of an operation is on its way; None before that."""
        return next((since for n, _, since in self._moving.get(matcher, ()) if n == number), None)

    # -- messages -----------------------------------------------------------------------------

    def post(self, letter: Letter, delay: float) -> None:
        """Send a message; those of one pair arrive in order."""
        now, pair = self.scheduler.clock, (letter.src, letter.dst)
        takes = self.message_seconds(letter.src, letter.dst, letter.data.nbytes)
        at = max(now + takes + delay, self._last.get(pair, 0.0))
        self._last[pair] = at
        ends = pair if pair[0] != pair[1] else pair[:1]
        self.timeline.flew(ends, "send", now, at, letter.data.nbytes)
        if letter.dst in self.unreachable:
            return
        coming = self._letters.setdefault(pair, deque())
        coming.append(letter)
        self.scheduler.later(at - now, lambda: self.posts.arrive(coming.popleft()))


def _look_only(seconds: float) -> None:
    """As ``block=`` of a wait: whoever comes by may ask."""


def fabric() -> Fabric | None:
    """The cluster that the calling thread's rank belongs to; None where none is simulated."""
    waiter = context.current().waiter
    if not isinstance(waiter, SimWaiter):
        return None
    return waiter.scheduler.slots.get(SLOT)


def required() -> Fabric:
    found = fabric()
    if found is None:
        raise ConfigError(
            "backend 'sim' is for the ranks of a simulated cluster: dtrun --simulate N train.py"
        )
    return found
