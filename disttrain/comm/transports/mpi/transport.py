"""The MPI transport: one group of ranks over a communicator of its own.

A call's header is compared by small messages (``arrival``), then data moves from array to array
(``moves``). Where a group is small and an all_reduce, too, its data comes with the header, and
every rank reduces all of it: one message each way.

Async operations post their header when they are called. What is left is done in order, without a
thread, whenever the rank comes by: in any later call of any group, while it waits for anything,
in ``Work.is_completed`` and ``Work.wait``.

Knows arrays and MPI. Groups, argument checks and global ranks are in ``comm/group/group.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from .... import context
from ....errors import CollectiveMismatch, WaitTimeout
from ...calls.header import SIZE, Call, hash64
from ...calls.reduce_ops import ReduceOp
from ...calls.transport import HostTransport, Swap, Transport
from ...calls.work import Work
from .arrival import Arrivals, Entered, Group, Steps, differing
from .collectives import Moves, native
from .messages import Mailbox
from .notices import Notice, Wait
from .rounds import RADIX
from .shrinking import shrink
from .station import Need

_PATIENCE = (1.0, 5.0)  # seconds that a rank which leaves (the world) waits for who is elsewhere


class MpiTransport(HostTransport):
    """One group of ranks over MPI."""

    kind = "mpi"

    def __init__(
        self,
        group: Group,
        timeout: float = context.DEFAULT_TIMEOUT,
        epoch: int = 0,
        fixed_order: bool = True,
        is_world: bool = False,
        radix: int = RADIX,
    ) -> None:
        """``fixed_order``: every reduction in the order of the tree; else in MPI's own where that
        means the same (between hosts it moves less). ``radix``: see ``rounds``."""
        super().__init__(group.rank, group.size, group.name, timeout, epoch)
        self.members, self.station = group, group.station
        self.key = group.key
        self.fixed_order, self._is_world = fixed_order, is_world
        self._arrivals, self._moves = Arrivals(group, radix), Moves(group)
        self._radix = radix
        self._mailbox = Mailbox(group)
        self._queue: deque[Task] = deque()
        self.station.open.append(self)

    @property
    def seq(self) -> int:
        """How many calls this rank has made."""
        return self.members.seq

    def mail_sent(self) -> dict[int, int]:
        """Messages sent, by rank in the world."""
        ranks = self.members.ranks
        return {ranks[i]: n for i, n in enumerate(self._mailbox.sent) if n}

    # -- verbs --------------------------------------------------------------------------------

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        return self._run(call, None, async_op, None)

    def broadcast(
        self, call: Call, array: np.ndarray, root: int, *, async_op: bool = False
    ) -> Work | None:
        return self._run(call, lambda at: self._moves.broadcast(at, array, root), async_op, array)

    def all_reduce(
        self, call: Call, array: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        if array.nbytes <= self._arrivals.small and self._arrivals.flat:
            return self._all_reduce_small(call, array, op, async_op)
        reduce = self._reducer(op, array.dtype)
        types = None if self.fixed_order else native(self.station.MPI, op, array.dtype)

        def steps(at: Entered) -> Steps:
            if types is not None:
                return self._moves.all_reduce_native(at, array, op, types)
            return self._moves.all_reduce(at, array, reduce)

        return self._run(call, steps, async_op, array)

    def all_gather(
        self, call: Call, outs: Sequence[np.ndarray], array: np.ndarray, *, async_op: bool = False
    ) -> Work | None:
        return self._run(call, lambda at: self._moves.all_gather(at, outs, array), async_op, outs)

    def reduce_scatter(
        self,
        call: Call,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp,
        *,
        async_op: bool = False,
    ) -> Work | None:
        reduce = self._reducer(op, out.dtype)
        return self._run(
            call, lambda at: self._moves.reduce_scatter(at, out, ins, reduce), async_op, out
        )

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        def steps(at: Entered) -> Steps:
            if ragged:
                yield from self._check_pairs(at, outs, ins)
            yield from self._moves.all_to_all(at, outs, ins)

        return self._run(call, steps, async_op, outs)

    def send(self, call: Call, array: np.ndarray, dst: int, tag: int) -> Work:
        self._usable()
        return self._mailbox.send(call, array, dst, tag, self.timeout)

    def recv(self, call: Call, array: np.ndarray, src: int | None, tag: int) -> Work:
        self._usable()
        return self._mailbox.recv(call, array, src, tag, self.timeout)

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> MpiTransport | None:
        if swap is not None:
            swap(np.zeros(1, np.int64))  # all members are here
        else:
            self._run(call, None, False, None)
        if members is None:
            return None
        inside = self.members.comm.group.Incl(list(members))
        tag = hash64(name) % 0x7FFF
        comm = self.members.comm.Create_group(inside, tag)
        group = Group(self.station, comm, f"{self.key}{name[len(self.name) :]}", name)
        return MpiTransport(group, self.timeout, self.epoch, self.fixed_order, radix=self._radix)

    def shrink(
        self, timeout: float | None, exclude: Collection[int] = ()
    ) -> tuple[Transport, list[int]]:
        wait = timeout or self.timeout
        return shrink(self.station, self.timeout, self.epoch, wait, exclude)

    def close(self, call: Call | None) -> None:
        met = False
        try:
            if call is not None and not self._broken:
                met = self._meet_once_more(call)
        finally:
            self.disable("it was closed")
            self._leave(met)

    def _meet_once_more(self, call: Call) -> bool:
        """Meet the ranks that are there. False: some rank is elsewhere, perhaps waiting for this
        one: leave without it."""
        self._finish_queue()
        posted = self._arrivals.post(call)
        patience = min(_PATIENCE[self._is_world], self.timeout)
        try:
            for need in posted.meet():
                self.station.wait(need, patience)
        except WaitTimeout:
            self.members.seq -= 1
            return False
        return True

    def _leave(self, met: bool) -> None:
        station = self.station
        if self in station.open:
            station.open.remove(self)
        if self._is_world:
            for other in tuple(station.open):
                if other.key.startswith(self.key):
                    other.close(None)
        if station.over:
            return
        if self._queue or self._mailbox.busy:
            station.torn.append((self, None))
        if not met:
            calls = {self.key: self.seq}
            station.tell(Notice("gone", group=self.key, calls=calls), self.members.ranks)
        self._arrivals.cancel()

    def part(self) -> None:
        """At the end of the program: what all of them have entered is finished."""
        if self._queue and not self._broken:
            try:
                self.station.wait(self._queue[-1], min(_PATIENCE[1], self.timeout))
            except WaitTimeout:
                return

    def compare_counts(self) -> None:
        """At the end of the program: have others that have ended theirs made as many calls?"""
        if not self._broken:
            self._arrivals.compare_counts()

    # -- how they run -------------------------------------------------------------------------

    def _all_reduce_small(
        self, call: Call, array: np.ndarray, op: ReduceOp, async_op: bool
    ) -> Work | None:
        """Its data comes with the headers."""
        plan = call.plan
        if plan is None:
            plan = call.plan = self._small_plan(array, op)
        reduce, parts, me = plan
        if not async_op and self._sync():
            self._meet(call, array.view(np.uint8))
            parts[me] = array
            reduce(parts, array)
            parts[me] = None
            return None

        def steps(at: Entered) -> Steps:
            parts[me] = array
            reduce(parts, array)
            parts[me] = None
            yield from ()

        return self._run(call, steps, async_op, array, array.view(np.uint8))

    def _small_plan(self, array: np.ndarray, op: ReduceOp) -> tuple:
        """The reducer, all ranks' data where it comes in, and this rank's place."""
        parts: list[Any] = [None] * self.size
        arrivals, end = self._arrivals, SIZE + array.nbytes
        for each, heard in zip(arrivals.rounds, arrivals.heard, strict=True):
            for member, data in zip(each.of, heard, strict=True):
                parts[member] = data[SIZE:end].view(array.dtype)
        return self._reducer(op, array.dtype), parts, self.rank

    def _sync(self) -> bool:
        """Can a call be made the short way now? What was called before comes first."""
        if self._broken:
            self._usable()
        if self._queue:
            self._finish_queue()
        return self._arrivals.flat

    def _finish_queue(self) -> None:
        if self._queue:
            self.wait(self._queue[-1], None)

    def _meet(self, call: Call, payload: np.ndarray | None) -> None:
        """Meet the other ranks in a group of one round."""
        arrivals = self._arrivals
        requests, print_ = arrivals.begin(call, payload)
        if not (requests and arrivals._testall(requests)):
            need = arrivals.arrived(requests, Entered(call, self.seq))
            if not need():
                self.wait(need, None)
        if not arrivals.same(print_):
            self._make(differing(self.members, Entered(call, self.seq), arrivals.remembered()))

    def _run(
        self,
        call: Call,
        steps: Callable[[Entered], Steps] | None,
        async_op: bool,
        result: object,
        payload: np.ndarray | None = None,
    ) -> Work | None:
        """Meet, then make the steps."""
        if not async_op and self._sync():
            self._meet(call, payload)
            if steps is not None:
                self._make(steps(Entered(call, self.seq)))
            return None
        self._usable()
        posted = self._arrivals.post(call, payload)
        data = None if steps is None else steps(posted.entered)
        if not async_op:
            self._make(posted.meet())
            if data is not None:
                self._make(data)
            return None
        task = Task(self, posted.meet(), data, result)
        with self.station.lock:
            self._queue.append(task)
            if len(self._queue) == 1:
                self.station.pending.append(self)
        self.station.progress()
        return task

    def _make(self, steps: Steps) -> None:
        try:
            for need in steps:
                if not need():
                    self.wait(need, None)
        except CollectiveMismatch:
            raise  # where headers differ, all have raised, and the group goes on
        except BaseException as error:
            self._break(error)
            raise

    def advance(self) -> None:
        """Let the operations in the queue go on without waiting. They meet in order, and their
        data moves together; they end in order."""
        queue = self._queue
        for task in tuple(queue):
            task.advance()
            if not task.met:
                break
        while queue and queue[0].ended:
            task = queue.popleft()
            if not queue and self in self.station.pending:
                self.station.pending.remove(self)
            error = task.outcome[1]
            if error is not None and not isinstance(error, CollectiveMismatch):
                self._break(error)
            task._end(*task.outcome)

    def head_need(self) -> Need | None:
        """What the first operation of the queue waits for."""
        try:
            return self._queue[0].need
        except IndexError:  # another thread has seen it end
            return None

    def wait(self, need: Need, timeout: float | None) -> None:
        """Wait; a synchronous operation that is torn off in the middle makes the group useless."""
        try:
            self.station.wait(need, self.timeout if timeout is None else timeout)
        except BaseException as error:
            if not (isinstance(need, Task) and isinstance(error, TimeoutError)):
                self._break(error)
                self.station.torn.append((self, need))
            raise

    def _check_pairs(
        self, at: Entered, outs: Sequence[np.ndarray], ins: Sequence[np.ndarray]
    ) -> Steps:
        """Each pair of ranks must agree about what goes between them."""
        n = self.size
        history = self._arrivals.remembered()
        table = yield from self._moves.table(at, [a.size for a in (*ins, *outs)])
        sends, recvs = table[:, :n], table[:, n:]
        wrong = np.argwhere(sends != recvs.T)
        if len(wrong):
            a, b = map(int, wrong[0])
            ranks = self.members.ranks
            detail = (
                f"rank {ranks[a]} has {sends[a, b]} elements for rank {ranks[b]}, "
                f"which expects {recvs[b, a]}."
            )
            yield from differing(self.members, at, history, "sizes", detail)


class Task(Work):
    """An asynchronous collective in the queue of its group: it meets, then moves its data."""

    __slots__ = ("_data", "_transport", "ended", "met", "need", "outcome", "steps")

    def __init__(
        self, transport: MpiTransport, meet: Steps, data: Steps | None, result: Any
    ) -> None:
        super().__init__()
        self._transport, self.steps, self._data = transport, meet, data
        self.need: Need | None = None
        self.outcome: tuple = (result, None)
        self.met = self.ended = False

    def advance(self) -> None:
        """Go on until a need is not met, or to the end."""
        while not self.ended:
            try:
                if self.need is not None and not self.need():
                    return
                self.need = next(self.steps)
            except StopIteration:
                self.ended = self.met or self._data is None
                self.met, self.need = True, None
                if self._data is not None:
                    self.steps = self._data
            except BaseException as error:
                self.outcome = (None, error)
                self.met = self.ended = True
                if not isinstance(error, Exception):
                    raise  # KeyboardInterrupt is for the program, and ends this work too

    def _poll(self) -> None:
        self._transport.station.progress()

    def _block(self, timeout: float | None) -> None:
        self._transport.wait(self, timeout)

    def __call__(self) -> bool:
        return self._done

    def what(self) -> str:
        need = self._transport.head_need()
        return "an operation in flight" if need is None else need.what()

    def waits(self) -> Wait | None:
        need = self._transport.head_need()
        return None if need is None else need.waits()
