"""The transport of a simulated cluster: arrays go from rank to rank inside the process.

Operations are data that members bring to a matcher (``matching``); the last one to come starts it,
and an event of the scheduler ends it for all. So a cluster of hundreds of ranks costs what its
arrays cost, and time is the network's (``fabric``). Results are bit for bit those of the other
transports.

As there, what is in flight is noticed whenever its rank comes by: in any call, in any wait.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from .... import context
from ....errors import CollectiveMismatch, PeerFailed, WaitTimeout
from ...calls.header import Call
from ...calls.reduce_ops import ReduceOp, make_reducer
from ...calls.transport import HostTransport, Swap
from ...calls.work import Work
from ...job.segment import Failure
from .exchange import Part
from .fabric import Fabric, required
from .matching import Matcher
from .posts import Letter, Request
from .scheduler import SimWaiter, until_woken

_END = "comm.sim.end"  # the slot of a rank's context where its end of the fabric is
_PATIENCE = (1.0, 5.0)  # seconds that a rank which leaves (the world) waits for who is elsewhere


def connect(
    rank: int | None = None,
    size: int | None = None,
    timeout: float = context.DEFAULT_TIMEOUT,
    at: str = "",
) -> SimTransport:
    """The transport of the ranks of the simulated cluster that the calling thread belongs to, or of
    ``size`` of them, among which the caller is ``rank``, and who meet ``at`` the same place.
    ``ConfigError`` where there is no cluster.
    Ranks may connect again and again."""
    me = context.current()
    end = me.slot(_END, lambda: End(required(), me))
    rank = end.rank if rank is None else rank
    matcher, world = end.fabric.world(end.rank, rank, size, at)
    return SimTransport(end, matcher, rank, world, timeout, is_world=True)


class End:
    """A rank's end of the fabric: what it has in flight, in all its groups."""

    def __init__(self, fabric: Fabric, me: context.Rank) -> None:
        self.fabric, self.me = fabric, me
        assert isinstance(me.waiter, SimWaiter)
        self.rank = me.waiter.rank  # in the cluster; the program may call itself otherwise
        self.pending: list[SimWork] = []
        self.news = 0  # how many of them have ended and were not noticed yet
        self.open: list[SimTransport] = []
        self.awaited: list[SimWork] = []  # what its threads wait for now
        self.given_up = False  # it has seen a failure, and asks who is left
        me.waiter.checks.append(self.check)
        me.at_end.append(self.end_program)

    def ended(self) -> None:
        """Something of this rank has ended."""
        self.news += 1
        self.fabric.scheduler.wake(self.rank)

    def progress(self) -> None:
        """Notice what has ended; callbacks run here."""
        while self.news:
            self.news = 0
            for work in [w for w in self.pending if w.settled]:
                if work in self.pending:  # a callback may have come by here, too
                    self.pending.remove(work)
                    work._end(*work.outcome)

    def check(self) -> None:
        """Called while this rank waits: raises where another one has failed."""
        failure = self._failure()
        if failure is None or self.given_up:
            return
        if self.awaited:
            work = self.awaited[-1]
            if work.settled or work.moving() is not None:
                return  # it ends by itself
            raise self._failed(failure, work.what())
        raise self._failed(failure)

    def _failure(self) -> Failure | None:
        """The failure that this rank hears of: not its own, except that all others are gone for one
        that has no network."""
        failure = self.fabric.failure
        if failure is None or failure.rank != self.rank:
            return failure
        if self.rank not in self.fabric.unreachable:
            return None
        return Failure(int(self.rank == 0), failure.cause, "")

    def _failed(self, failure: Failure, where: str = "") -> PeerFailed:
        rank, seat = self._number(failure.rank), failure.rank
        return PeerFailed(rank, failure.cause, failure.traceback, where, global_rank=seat)

    def _number(self, seat: int) -> int:
        """What the default group calls a rank of the cluster."""
        for transport in self.open:
            if transport._is_world and seat in transport.matcher.seats:
                return transport.matcher.seats.index(seat)
        return seat

    def give_up(self) -> None:
        """All groups of this rank are over."""
        self.given_up = True
        for transport in self.open:
            transport.disable("a rank has failed, and the others have gone on without it")
        self.open.clear()
        self.pending.clear()

    def wait(self, work: SimWork, timeout: float) -> None:
        """Block until ``work`` has ended; whatever else ends meanwhile is noticed."""
        scheduler = self.fabric.scheduler
        self.progress()
        start, deadline = scheduler.clock, scheduler.clock + timeout
        self.awaited.append(work)
        try:
            while not work._done:
                left = max(0.0, deadline - scheduler.clock)
                # Another task of this rank may notice the end of it first.
                context.wait_until(
                    lambda: self.news > 0 or work._done, work.what, left, until_woken
                )
                self.progress()
        finally:
            self.awaited.remove(work)
            end = scheduler.clock
            if end > start:
                since = work.began if work.began is not None else end
                self.fabric.timeline.waited(self.rank, work.call.op, start, end, since)

    def end_program(self) -> None:
        """The program ends without having left its groups. Nobody is waited for; who is the last
        to end finds ranks that made other calls."""
        if self.fabric.failure is not None:
            return
        for transport in self.open:
            transport.part()
        for transport in self.open:
            error = transport.matcher.counts_differ(transport.rank)
            if error is not None:
                raise error


class SimWork(Work):
    """An operation or a message in flight."""

    __slots__ = ("began", "call", "end", "number", "outcome", "matcher", "settled", "timeout")

    def __init__(self, end: End, matcher: Matcher, call: Call, timeout: float) -> None:
        super().__init__()
        self.end, self.matcher, self.call, self.timeout = end, matcher, call, timeout
        self.settled, self.number = False, 0
        self.began: float | None = None  # since when its data was on its way
        self.outcome: tuple[Any, BaseException | None] = (None, None)
        end.pending.append(self)

    def settle(self, result: int | list | np.ndarray | None, error: BaseException | None) -> None:
        """It has ended, in an event of the scheduler; its rank has yet to notice."""
        self.outcome, self.settled = (result, error), True
        self.began = self.moving() if self.number else self.end.fabric.scheduler.clock
        self.end.ended()

    def moving(self) -> float | None:
        """Since when its data is on its way; None where it is not."""
        return self.end.fabric.moving_since(self.matcher, self.number) if self.number else None

    def what(self) -> str:
        """The wait for people."""
        if self.number:
            return self.matcher.waited_for(self.call.text, self.number)
        if self.call.text.startswith("send("):
            return f"{self.call.text}; no receive has taken it"
        return f"{self.call.text}; no message has come"

    def _poll(self) -> None:
        self.end.fabric.posts.asked()
        self.end.progress()

    def _block(self, timeout: float | None) -> None:
        self.end.wait(self, self.timeout if timeout is None else timeout)


class SimTransport(HostTransport):
    """See ``Transport``."""

    kind = "sim"

    def __init__(
        self,
        end: End,
        matcher: Matcher,
        rank: int,
        world: int,
        timeout: float,
        is_world: bool = False,
    ) -> None:
        super().__init__(rank, len(matcher.ranks), matcher.name, timeout, world)
        self.end, self.matcher = end, matcher
        self._world, self._is_world = world, is_world
        end.open.append(self)

    # -- verbs --------------------------------------------------------------------------------

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        return self._run(Part(call, "barrier"), async_op, None)

    def broadcast(
        self, call: Call, array: np.ndarray, root: int, *, async_op: bool = False
    ) -> Work | None:
        return self._run(Part(call, "broadcast", outs=[array], root=root), async_op, array)

    def all_reduce(
        self, call: Call, array: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        make_reducer(op, array.dtype, self.size)  # refuses what it cannot reduce, before anything
        return self._run(Part(call, "all_reduce", outs=[array], op=op), async_op, array)

    def all_gather(
        self, call: Call, outs: Sequence[np.ndarray], array: np.ndarray, *, async_op: bool = False
    ) -> Work | None:
        return self._run(Part(call, "all_gather", [array], outs), async_op, outs)

    def reduce_scatter(
        self,
        call: Call,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp,
        *,
        async_op: bool = False,
    ) -> Work | None:
        make_reducer(op, out.dtype, self.size)
        return self._run(Part(call, "reduce_scatter", ins, [out], op), async_op, out)

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        return self._run(Part(call, "all_to_all", ins, outs, ragged=ragged), async_op, outs)

    def send(self, call: Call, array: np.ndarray, dst: int, tag: int) -> Work:
        self._usable()
        end, fabric = self.end, self.end.fabric
        struck = fabric.call(end.me, "send")
        src, to = end.rank, self.matcher.seats[dst]
        refused = fabric.posts.refusal(src, to)
        if refused is not None:
            raise refused
        work = SimWork(end, self.matcher, call, self.timeout)
        waits = struck.drop is None and fabric.posts.waits(array.nbytes)
        if struck.drop is None:
            taken = partial(work.settle, array, None) if waits else None
            letter = Letter(call, array.copy(), src, to, (self._key, tag), taken)
            fabric.post(letter, struck.delay)
        if not waits:
            work.settle(array, None)
        end.progress()
        return work

    def recv(self, call: Call, array: np.ndarray, src: int | None, tag: int) -> Work:
        self._usable()
        end, fabric = self.end, self.end.fabric
        fabric.call(end.me, "recv")
        work = SimWork(end, self.matcher, call, self.timeout)
        seats = self.matcher.seats

        def ended(source: int | None, error: BaseException | None) -> None:
            work.settle(None if source is None else seats.index(source), error)

        peer = None if src is None else seats[src]
        fabric.posts.want(end.rank, Request(call, array, peer, (self._key, tag), ended))
        end.progress()
        return work

    @property
    def _key(self) -> str:
        return f"{self._world} {self.name}"

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> SimTransport | None:
        if swap is None:
            self._run(Part(call, "split"), False, None)
        else:
            swap(np.zeros(1, np.int64))
        if members is None:
            return None
        ranks = [self.matcher.ranks[i] for i in members]
        matcher = self.end.fabric.matcher(self._world, name, ranks)
        matcher.seats = [self.matcher.seats[i] for i in members]
        me = list(members).index(self.rank)
        return SimTransport(self.end, matcher, me, self._world, self.timeout)

    # -- leaving ------------------------------------------------------------------------------

    def shrink(
        self, timeout: float | None, exclude: Collection[int] = ()
    ) -> tuple[SimTransport, list[int]]:
        end, fabric, seats = self.end, self.end.fabric, self.matcher.seats
        end.give_up()
        without = {seats[rank] for rank in exclude}
        members, world = fabric.survivors(self.matcher, end.rank, timeout or self.timeout, without)
        end.given_up = False
        matcher = fabric.matcher(world, "world", range(len(members)))
        matcher.seats = list(members)
        me = members.index(end.rank)
        made = SimTransport(end, matcher, me, world, self.timeout, is_world=True)
        return made, [seats.index(seat) for seat in members]

    def close(self, call: Call | None) -> None:
        met = False
        try:
            if call is not None and not self._broken:
                met = self._meet_once_more(call)
        finally:
            self._leave(met)
            if self._is_world:
                for other in tuple(self.end.open):
                    other._leave(met)
                    other.disable("its world was closed")

    def _meet_once_more(self, call: Call) -> bool:
        """Meet the ranks that are there. False: some rank is elsewhere, perhaps waiting for this
        one: leave without it."""
        work = self._start(Part(call, "close"), None)
        try:
            self.end.wait(work, min(_PATIENCE[self._is_world], self.timeout))
        except WaitTimeout:
            self.matcher.take_back(self.rank, work.number)
            self.matcher.last[self.rank] -= 1
            self.end.pending.remove(work)
            return False
        work.wait()
        return True

    def _leave(self, met: bool) -> None:
        self.disable("it was closed")
        if self in self.end.open:
            self.end.open.remove(self)
        if met:
            self.matcher.left[self.rank] = self.matcher.last[self.rank]
        else:
            self.matcher.leave(self.rank, self.matcher.last[self.rank])
        if self.matcher.empty:
            self.end.fabric.forget(self.matcher)

    def part(self) -> None:
        """At the end of the program: leave without meeting the others."""
        if not self._broken:
            self.matcher.leave(self.rank, self.matcher.last[self.rank])

    # -- how they run -------------------------------------------------------------------------

    def _start(self, part: Part, result: Any) -> SimWork:
        """Bring ``part`` to the next operation."""
        self._usable()
        end, matcher = self.end, self.matcher
        struck = end.fabric.call(end.me, part.call.op)
        work = SimWork(end, matcher, part.call, self.timeout)
        work.number = matcher.enter(self.rank)
        part.ended = lambda error: work.settle(None if error else result, error)
        if struck.drop is None:
            end.fabric.later(struck.delay, lambda: matcher.bring(self.rank, work.number, part))
        return work

    def _run(self, part: Part, async_op: bool, result: object) -> Work | None:
        work = self._start(part, result)
        self.end.progress()
        if async_op:
            return work
        try:
            work.wait()
        except CollectiveMismatch:
            raise  # where headers differ, all have raised, and the group goes on
        except BaseException as error:
            self._break(error)
            raise
        return None
