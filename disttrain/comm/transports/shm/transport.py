"""The shared-memory transport: ranks of one host that map one segment.

How data moves. A rank *exposes* its data of an operation in shared memory, and its header says
where (``channel``): in the caller's array when that lies in the rank's arena (``allocate``; no
copy), in a small payload slot, in a staged copy (async), or in a ring of chunks (large arrays
elsewhere), so that what is copied, reduced and copied back stays in the processor's cache.

* Small operations: everybody exposes, everybody waits until all have arrived, compares headers,
  and reads what it needs, reducing all ranks' data itself in one order. One flag, no second
  barrier: the slots alternate (``short_arrays``).
* A large all_reduce: each rank reduces its slice of every chunk from all exposures, in one order,
  and writes the result into all of them: in rounds, where all go through rings (``chunks``).
* The rest pull: each rank copies (or reduces) from the exposures what is meant for it.

Async operations post header and data when they are called. What is left is done in order, without
a thread, whenever the rank comes by: in any later call of any group, while it waits for anything,
in ``Work.is_completed`` and ``Work.wait``. So a rank that waits may depend on a peer's next call,
never on the peer's ``wait``. A progress thread would free it of that too, but competes for the
interpreter and the core: with 2 ranks on 2 cores, six 1 MiB buckets between pieces of computation
that take 13.6 ms alone, a step takes 14.7 ms this way (14.6 without async_op) and 17.3 with one.

Knows arrays and flags. Groups, argument checks and global ranks are in ``group.py``.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from .... import context
from ....errors import CollectiveMismatch, CommError, ConfigError, PeerFailed, WaitTimeout
from ...calls.header import Call, hash64
from ...calls.reduce_ops import ReduceOp
from ...calls.transport import HostTransport, Swap
from ...calls.work import Work
from ...meeting.survivors import as_view
from .bootstrap import share_segment
from .channel import (
    BLOCK_BYTES,
    CONTROL_BYTES,
    DONE,
    FILLED,
    FINISHED,
    LEFT,
    POSTED,
    Channel,
    LastMeeting,
    last_word,
    open_channel,
)
from .hub import CHUNK_BITS, Hub, Need, next_start
from .mailbox import Mailbox
from .operation import SMALL_BYTES, Operation, Staging, Steps
from .process_memory import Reach, put
from .shared import Shared, lend
from .short_arrays import Whole
from .shrinking import leave_and_agree
from .steps import (
    Parts,
    Task,
    copy_to,
    meet,
    pull,
    ragged_layout,
    reduce_each,
    reduce_large,
    reduce_small,
    reduce_to,
)

_PATIENCE = (1.0, 5.0)  # seconds that a rank which leaves (the world) waits for who is elsewhere


def connect(
    segment: Any,
    rank: int,
    world_size: int,
    epoch: int = 0,
    timeout: float = context.DEFAULT_TIMEOUT,
) -> ShmTransport:
    """The transport of all ranks of ``segment`` (a ``comm.control.Segment``).

    ``epoch`` counts restarts of the job. Ranks may connect again and again: nothing that an earlier
    group has left in the segment means anything to a later one (see ``hub``).
    """
    if not 0 <= rank < world_size <= segment.num_ranks:
        raise ConfigError(
            f"shm.connect: rank={rank}, world_size={world_size} were given; needed is "
            f"0 <= rank < world_size <= {segment.num_ranks}, the number of ranks of the segment."
        )
    blocks = [segment.comm_area(r)[0] for r in range(world_size)]
    view = as_view(segment)
    reserved = Mailbox.reserved(view.base.num_ranks)  # more of them may be there later
    before = max(last_word(segment.buffer, blocks[rank]), view.start)
    hub = Hub(segment, rank, world_size, epoch, reserved, before)
    hub.reach = Reach(hub, blocks)
    hub.let_sleep()
    channel = open_channel(hub, range(world_size), rank, blocks, "world", hub.start)
    return ShmTransport(channel, Mailbox(hub), timeout, is_world=True)


def connect_by_store(
    store: object,
    rank: int,
    world_size: int,
    epoch: int = 0,
    timeout: float = context.DEFAULT_TIMEOUT,
) -> ShmTransport:
    """As ``connect``, for processes on one host that nobody launched but that share a store."""
    segment = share_segment(store, rank, world_size, timeout, f"shm/{epoch}")
    transport = connect(segment, rank, world_size, epoch, timeout)
    transport.hub.watch_processes()
    return transport


class ShmTransport(HostTransport):
    """One group of ranks over shared memory."""

    kind = "shm"
    shares = True

    def __init__(
        self, channel: Channel, mailbox: Mailbox, timeout: float, is_world: bool = False
    ) -> None:
        super().__init__(channel.me, len(channel.ranks), channel.name, timeout, channel.hub.epoch)
        self.channel, self.hub, self.mailbox = channel, channel.hub, mailbox
        self._is_world = is_world
        self._staging = Staging(channel)
        self._queue: deque[Task] = deque()
        self._left_early = 0
        self._failed: PeerFailed | None = None  # what broke it, where that was a peer's end
        self._words = self.hub.words
        self._whole_bytes = self._staging.half_bytes
        self._spins = self._staging.spins
        self._key = (hash64(channel.name) & 0xFFFFFFFF) << 32
        for field in (POSTED, FILLED, DONE, FINISHED):
            channel.publish(field, channel.start)
        self.hub.open.append(self)

    def allocate(self, nbytes: int) -> np.ndarray:
        """uint8 memory in this rank's arena, not initialized; freed by its last view.

        Arrays in it are reduced and read by peers where they lie.
        """
        return self.hub.arena.allocate(nbytes)

    def share(self, call: Call, nbytes: int) -> Shared:
        """It lies in the arena of the group's first rank, which frees it when all let go of it."""
        where = np.array([0 if self.rank else lend(self.hub, nbytes, self.size)], np.int64)
        self.broadcast(call, where, 0)
        return Shared(self.hub, int(where[0]), nbytes, self.channel.ranks, self.rank, self.name)

    # -- verbs --------------------------------------------------------------------------------

    def barrier(self, call: Call, *, async_op: bool = False) -> Work | None:
        op = self._enter(call, (), async_op)
        return self._run(meet(op), async_op, None)

    def broadcast(
        self, call: Call, array: np.ndarray, root: int, *, async_op: bool = False
    ) -> Work | None:
        ins = (array,) if self.rank == root else ()
        op = self._enter(call, ins, async_op)
        lens = [array.size if i == root else 0 for i in range(self.size)]
        layout = (lens, [0] * self.size, array.size)

        def sink(lo: int, parts: Parts) -> None:
            for i, part in parts:
                if i != self.rank:
                    put(part, array[lo : lo + part.size])

        steps = pull(op, ins, array.dtype, lambda: layout, sink, spread=False)
        return self._run(steps, async_op, array)

    def all_reduce(
        self, call: Call, array: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        whole = array.nbytes <= self._whole_bytes
        if whole and not async_op:
            self._all_reduce_whole(call, array, op)
            return None
        reduce = self._reducer(op, array.dtype)
        if whole:
            self._usable()
            operation = Operation(self._staging, call, (array,), True, copy=True)
            return self._run(reduce_small(operation, array, reduce), True, array)
        (self._usable if async_op else self._ready_for_sync)()
        operation = Operation(self._staging, call, (array,), async_op, ring=not async_op)
        return self._run(reduce_large(operation, array, reduce), async_op, array)

    def all_reduce_each(
        self, calls: Sequence[Call], arrays: Sequence[np.ndarray], op: ReduceOp
    ) -> int:
        small = sum([a.nbytes for a in arrays]) <= SMALL_BYTES
        if not small or not all(a.size for a in arrays):
            return super().all_reduce_each(calls, arrays, op)
        self._ready_for_sync()
        mark = hash64("".join([call.tail.hex() for call in calls])) | 1
        operation = Operation(self._staging, calls[0], arrays, False, mark=mark)
        alike = list[int]()
        reduce = self._reducer(op, arrays[0].dtype)
        self._run(reduce_each(operation, arrays, reduce, mark, alike), False, None)
        return alike[0]

    def all_gather(
        self, call: Call, outs: Sequence[np.ndarray], array: np.ndarray, *, async_op: bool = False
    ) -> Work | None:
        op = self._enter(call, (array,), async_op)
        lens = [out.size for out in outs]
        layout = (lens, [0] * self.size, max(lens))
        steps = pull(op, (array,), array.dtype, lambda: layout, copy_to(outs), spread=False)
        return self._run(steps, async_op, outs)

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
        operation = self._enter(call, ins, async_op)
        sizes = [part.size for part in ins]
        start = sum(sizes[: self.rank])
        layout = ([sizes[self.rank]] * self.size, [start] * self.size, max(sizes))

        sink = reduce_to(out, reduce, self._staging)
        steps = pull(operation, ins, out.dtype, lambda: layout, sink, spread=True)
        return self._run(steps, async_op, out)

    def all_to_all(
        self,
        call: Call,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray],
        *,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        sends, recvs = [a.size for a in ins], [a.size for a in outs]
        op = self._enter(call, ins, async_op, (*sends, *recvs) if ragged else ())

        def layout() -> tuple:
            if not ragged:
                return recvs, [sends[0] * self.rank] * self.size, sends[0]
            return ragged_layout(op)

        steps = pull(op, ins, ins[0].dtype, layout, copy_to(outs), spread=True)
        return self._run(steps, async_op, outs)

    def send(self, call: Call, array: np.ndarray, dst: int, tag: int) -> Work:
        self._usable()
        peer = self.channel.ranks[dst]
        return self.mailbox.send(call, array, peer, self._key | tag, self.timeout)

    def recv(self, call: Call, array: np.ndarray, src: int | None, tag: int) -> Work:
        self._usable()
        ranks = self.channel.ranks
        peer = None if src is None else ranks[src]
        work = self.mailbox.recv(call, array, peer, self._key | tag, self.timeout)
        return work if self._is_world else work.then(ranks.index)

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> ShmTransport | None:
        mine = np.zeros(2, np.int64)
        if members is not None:
            mine[:] = self._control_block()
        if swap is not None:
            table = swap(mine)
        else:
            everyone = np.zeros((self.size, 2), np.int64)
            self.all_gather(call, list(everyone), mine)
            table = everyone[list(members or ())]
        if members is None:
            return None
        ranks = [self.channel.ranks[i] for i in members]
        blocks, starts = table.T.tolist()
        me = list(members).index(self.rank)
        return self._of(ranks, me, blocks, name, max(starts))

    def _of(
        self, ranks: list[int], me: int, blocks: list[int], name: str, start: int
    ) -> ShmTransport:
        """The transport of a new group (see ``Channel``)."""
        channel = open_channel(self.hub, ranks, me, blocks, name, start)
        return ShmTransport(channel, self.mailbox, self.timeout)

    def _control_block(self) -> tuple[int, int]:
        """A control block for a new group, and where the group may begin on its flags."""
        spare = self.hub.arena.spare_blocks
        if spare:
            block = spare.pop()
        else:
            block = self.hub.arena.take(BLOCK_BYTES)
            self.hub.bytes[block : block + CONTROL_BYTES] = 0
        return block, next_start(last_word(self.hub.buffer, block))

    def close(self, call: Call | None) -> None:
        met = False
        try:
            if call is not None and not self._broken:
                met = self._meet_once_more(call)
        finally:
            if not (met or self.hub.disowned):
                self.channel.publish(LEFT, self.channel.seq - self._left_early)
            self.disable("it was closed")
            if self in self.hub.open:
                self.hub.open.remove(self)
            if self._is_world:
                self.hub.close(met)

    def shrink(
        self, timeout: float | None, exclude: Collection[int] = ()
    ) -> tuple[ShmTransport, list[int]]:
        old = self.hub
        view = leave_and_agree(old, self.mailbox, timeout or self.timeout, exclude)
        me = view.members.index(old.view.members[old.rank])
        made = connect(view, me, view.num_ranks, self.epoch, self.timeout)
        made.job, made.hub.owns_segment = view, old.owns_segment
        if old.watches:
            made.hub.watch_processes()
        before = {number: rank for rank, number in enumerate(old.view.members)}
        return made, [before.get(number, -1) for number in view.members]

    def abandon(self) -> None:
        """All ranks that live have left this group: give back what it has."""
        self._staging.close()
        if not self._is_world:
            self.hub.arena.spare_blocks.append(self.channel.blocks[self.rank])

    def _meet_once_more(self, call: Call) -> bool:
        """Meet the ranks that are there, compare how many calls each has made, give memory back.
        False: some rank is elsewhere, perhaps waiting for this one: leave without it."""
        channel = self.channel
        seq = self._enter(call, (), False).seq
        try:
            self.wait(LastMeeting(channel, seq), min(_PATIENCE[self._is_world], self.timeout))
        except WaitTimeout:
            channel.publish(FINISHED, seq)  # for who comes just now
            self._left_early = 1
            return False
        try:
            channel.check_counts(seq - 1)
            channel.verify(seq, last=True)
        except CollectiveMismatch:
            self._see_others_look(seq, CommError)  # of whom some may have failed of it already
            raise
        self._see_others_look(seq)
        self.abandon()
        return True

    def _see_others_look(self, seq: int, *ignored: type[Exception]) -> None:
        """Who goes on may join anew: not before all have looked at each other's last call."""
        self.channel.publish(FINISHED, seq)
        with contextlib.suppress(*ignored):
            self.wait(self.channel.need(FINISHED, seq, members=self.channel.present(seq)), None)

    def part(self) -> None:
        """At the end of the program: leave without meeting the others. What all of them have
        entered is finished first, since they need this rank for it."""
        if self._broken:
            return
        channel = self.channel
        if self._queue and channel.need(POSTED, channel.seq)():
            self.wait(self._queue[-1], None)
        channel.publish(LEFT, channel.seq)

    def compare_counts(self) -> None:
        """At the end of the program: have others that have ended theirs made as many calls?"""
        if not self._broken:
            self.channel.check_counts(self.channel.seq)

    # -- how they run -------------------------------------------------------------------------

    def _all_reduce_whole(self, call: Call, array: np.ndarray, op: ReduceOp) -> None:
        """The shortest way: one slot, one flag, everybody reduces. Kept free of objects."""
        plan = call.plan
        if plan is None:
            plan = call.plan = Whole(self._staging, call, array, self._reducer(op, array.dtype))
        self._ready_for_sync()
        channel, words = self.channel, self._words
        seq = channel.seq + 1
        exposed = plan.exposed[seq & 1]
        exposed.own[...] = array
        try:
            number = channel.post_again(exposed.rest)
            posted = seq << CHUNK_BITS
            for i in channel.posted_idxs:
                if words[i] < posted:
                    for _ in self._spins:
                        if words[i] >= posted:
                            break
                    else:
                        self._wait_all(POSTED, seq)
                        break
            if channel.same_and_there(seq, number, exposed.known):
                parts = exposed.parts
            else:
                parts = plan.elsewhere(seq, exposed)
            plan.reduce(parts, array)
            words[channel.own[FINISHED]] = posted
        except CollectiveMismatch:
            raise  # as in ``_run``
        except BaseException as error:
            if channel.seq == seq:  # it was entered
                self._break(error)
            raise
        if self.hub.futex is not None:
            channel.publish(FINISHED, seq)

    def _enter(
        self, call: Call, parts: Sequence[np.ndarray], async_op: bool, table: Sequence[int] = ()
    ) -> Operation:
        (self._usable if async_op else self._ready_for_sync)()
        return Operation(self._staging, call, parts, async_op, table)

    def _ready_for_sync(self) -> None:
        """What was called before comes first; and the next small payload must be free."""
        if self._broken:
            self._usable()
        if self._queue:
            self.wait(self._queue[-1], None)
        channel, words = self.channel, self._words
        before = channel.seq - 1
        if before > channel.start:
            value = channel.value(before)
            for i in channel.finished_idxs:
                if words[i] < value:
                    self._wait_all(FINISHED, before)
                    break

    def _usable(self) -> None:
        if self._failed is not None:
            raise self._failed.with_traceback(None)
        super()._usable()

    def _run(self, steps: Steps, async_op: bool, result: object) -> Work | None:
        if async_op:
            task = Task(self, steps, result)
            with self.hub.lock:
                self._queue.append(task)
                if len(self._queue) == 1:
                    self.hub.pending.append(self)
            self.hub.progress()
            return task
        try:
            for need in steps:
                if not need():
                    self.wait(need, None)
        except CollectiveMismatch:
            raise  # where headers differ, all have raised, and the group goes on
        except BaseException as error:
            self._break(error)
            raise
        return None

    def advance(self) -> None:
        """Let the operations in the queue go on, in order, without waiting."""
        queue = self._queue
        while queue and queue[0].advance():
            task = queue.popleft()
            if not queue and self in self.hub.pending:
                self.hub.pending.remove(self)
            error = task.outcome[1]
            if error is not None and not isinstance(error, CollectiveMismatch):
                self._break(error)
            task._end(*task.outcome)

    def head_need(self) -> Need:
        """What the first operation of the queue waits for."""
        try:
            need = self._queue[0].need
        except IndexError:  # another thread has seen it end
            need = None
        return self.channel.need(POSTED, self.channel.seq) if need is None else need

    def wait(self, need: Need, timeout: float | None) -> None:
        """Wait; a synchronous operation that is torn off in the middle makes the group useless."""
        try:
            self.hub.wait(need, self.timeout if timeout is None else timeout)
        except BaseException as error:
            if not (isinstance(need, (Task, LastMeeting)) and isinstance(error, TimeoutError)):
                self._break(error)
            raise

    def _break(self, error: BaseException) -> None:
        if isinstance(error, PeerFailed) and not self._broken:
            self._failed = error
        super()._break(error)

    def _wait_all(self, field: int, seq: int) -> None:
        self.wait(self.channel.need(field, seq), None)
