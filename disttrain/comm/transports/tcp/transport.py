"""The transport between hosts: TCP between them, shared memory inside each.

Every host has a segment of the same layout, and what a rank of another host is to see is copied to
the same place there (``mirror``). So this is the transport of shared memory (``comm.shm``), with
its headers, messages, groups and failures, apart from how data gets to other hosts:

* Small operations send all of a rank's data once to every other host, together with the header.
* Copies (broadcast, all_gather, all_to_all ...) send what a host is to have, once.
* Large reductions add up inside each host first (``exchange``, ``plans``).

The bits are those of shared memory. Knows arrays; links are in ``net``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ...calls.header import Call, hash64
from ...calls.reduce_ops import ReduceOp
from ...calls.work import Work
from ..shm.channel import FINISHED, POSTED, SLOT, Channel
from ..shm.operation import SMALL_BYTES, Steps
from ..shm.process_memory import Reach
from ..shm.short_arrays import Whole
from ..shm.steps import copy_to, pull, ragged_layout, reduce_small
from ..shm.transport import ShmTransport
from .arithmetic import Arithmetic
from .exchange import Exchange
from .frames import operation_key
from .mirror import MirroredChannel, NetHub, NetMailbox
from .net import Net
from .plans import Layout, Piece, layout_of, owned_pieces, shared_pieces
from .shrinking import leave_and_agree
from .steps import MIDDLE_BYTES, NetOperation, NetStaging, Sent, Wants, listen_for, reduce_between

PIECE_BYTES = 512 << 10


class TcpTransport(ShmTransport):
    """One group of ranks on several hosts."""

    kind = "tcp"
    shares = False

    hub: NetHub
    channel: MirroredChannel
    mailbox: NetMailbox

    def __init__(
        self, channel: MirroredChannel, mailbox: NetMailbox, timeout: float, is_world: bool = False
    ) -> None:
        super().__init__(channel, mailbox, timeout, is_world)
        self._staging: NetStaging = NetStaging(channel)
        host_of = self.hub.layout.host_of
        self.layout: Layout = layout_of([str(host_of[r]) for r in channel.ranks])
        mine = self.layout.host_of[self.rank]
        self._mates = [r for r in self.layout.hosts[mine] if r != self.rank]
        self._hosts = {host_of[r]: h for r, h in zip(channel.ranks, self.layout.host_of)}
        self._group = hash64(channel.name)
        self._sums: dict[tuple, Arithmetic] = {}
        self._cuts: dict[tuple, tuple[Piece, ...]] = {}
        self._wants = self._wanted()

    @property
    def sealed(self) -> bool:  # type: ignore[override]
        return self.hub.net.sealed

    def share(self, call: Call, nbytes: int) -> Any:
        return None

    def shrink(
        self, timeout: float | None, exclude: Collection[int] = ()
    ) -> tuple[ShmTransport, list[int]]:
        return _shrink(self, timeout, exclude)

    def _of(self, ranks: list[int], me: int, blocks: list[int], name: str, start: int) -> Any:
        hosts = {self.hub.layout.host_of[r] for r in ranks}
        if len(hosts) == 1:
            channel = Channel(self.hub, ranks, me, blocks, name, start)
            return ShmTransport(channel, self.mailbox, self.timeout)
        mirrored = MirroredChannel(self.hub, ranks, me, blocks, name, start)
        return TcpTransport(mirrored, self.mailbox, self.timeout)

    # --- verbs -----------------------------------------------------------------------------------

    def all_reduce(
        self, call: Call, array: np.ndarray, op: ReduceOp, *, async_op: bool = False
    ) -> Work | None:
        if array.nbytes <= SMALL_BYTES and not async_op:
            self._all_reduce_small(call, array, op)
            return None
        if array.nbytes <= MIDDLE_BYTES:
            reduce = self._reducer(op, array.dtype)
            entered = self._begin(call, async_op)
            entered.expose((array,), copy=True)
            entered.send((array,))
            entered.enter()
            return self._run(reduce_small(entered, array, reduce), async_op, array)
        return self._all_reduce_large(call, array, op, async_op)

    def all_reduce_each(
        self, calls: Sequence[Call], arrays: Sequence[np.ndarray], op: ReduceOp
    ) -> int:
        self.all_reduce(calls[0], arrays[0], op)
        return 1

    def _all_reduce_large(
        self, call: Call, array: np.ndarray, op: ReduceOp, async_op: bool
    ) -> Work | None:
        step = PIECE_BYTES // array.itemsize
        sums = self._arithmetic(op, array.dtype, step)
        cut = (array.size, step)
        if cut not in self._cuts:
            self._cuts[cut] = shared_pieces(self.layout, *cut)
        entered = self._begin(call, async_op)
        if self._mates:
            entered.expose((array,))
        own = entered.view(entered.block, array.size, array.dtype) if entered.block else array
        views = {self.rank: own}
        steps = self._exchange(entered, self._cuts[cut], sums, views, None, array.size)

        def with_result() -> Steps:
            yield from steps
            if own is not array:
                array[...] = own
            entered.finish()

        return self._run(with_result(), async_op, array)

    def reduce_scatter(
        self,
        call: Call,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp,
        *,
        async_op: bool = False,
    ) -> Work | None:
        sizes = [part.size for part in ins]
        if sum(sizes) * out.itemsize <= MIDDLE_BYTES:
            return self._reduce_scatter_small(call, out, ins, op, async_op)
        step = PIECE_BYTES // out.itemsize
        sums = self._arithmetic(op, out.dtype, step)
        entered = self._begin(call, async_op)
        whole = _as_one(ins)
        if whole is None:  # a host's agents read all pieces as one array
            entered.expose(ins, copy=True)
            whole = entered.view(entered.offset, sum(sizes), out.dtype)
        elif self._mates:
            entered.expose((whole,))
        pieces = owned_pieces(self.layout, sizes, step)
        steps = self._exchange(entered, pieces, sums, {self.rank: whole}, out, whole.size)

        def to_the_end() -> Steps:
            yield from steps
            entered.finish()
            if self._mates:  # who may still read what lies here
                yield self.channel.need(FINISHED, entered.seq, members=self._mates)

        return self._run(to_the_end(), async_op, out)

    def _reduce_scatter_small(
        self, call: Call, out: np.ndarray, ins: Sequence[np.ndarray], op: ReduceOp, async_op: bool
    ) -> Work | None:
        reduce = self._reducer(op, out.dtype)
        entered = self._spread(call, ins, async_op)
        sizes = [part.size for part in ins]
        start = sum(sizes[: self.rank])
        layout = ([sizes[self.rank]] * self.size, [start] * self.size, max(sizes))

        def sink(lo: int, parts: list) -> None:
            if parts:
                reduce([part for _, part in parts], out[lo : lo + parts[0][1].size])

        return self._run(
            pull(entered, ins, out.dtype, lambda: layout, sink, spread=True), async_op, out
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
        sends, recvs = [a.size for a in ins], [a.size for a in outs]
        entered = self._spread(call, ins, async_op, (*sends, *recvs) if ragged else ())

        def layout() -> tuple:
            if not ragged:
                return recvs, [sends[0] * self.rank] * self.size, sends[0]
            return ragged_layout(entered)

        steps = pull(entered, ins, ins[0].dtype, layout, copy_to(outs), spread=True)
        return self._run(steps, async_op, outs)

    # --- how they run ----------------------------------------------------------------------------

    def _all_reduce_small(self, call: Call, array: np.ndarray, op: ReduceOp) -> None:
        plan = call.plan
        if plan is None:
            plan = call.plan = Whole(self._staging, call, array, self._reducer(op, array.dtype))
        self._ready_for_sync()
        channel, words = self.channel, self._words
        seq = channel.seq + 1
        exposed = plan.exposed[seq & 1]
        exposed.own[...] = array
        offset = channel.payload(self.rank, seq & 1)
        if array.nbytes:
            channel.copy(offset, array.nbytes)
        fingerprint = channel.post(call, offset, SLOT)
        posted = channel.value(seq)
        for i in channel.posted_idxs:
            if words[i] < posted:
                self._wait_all(POSTED, seq)
                break
        parts = exposed.parts
        if not channel.same_and_there(seq, fingerprint[:8], exposed.known):
            parts = plan.elsewhere(seq, exposed)
        plan.reduce(parts, array)
        channel.publish(FINISHED, seq)

    def _begin(self, call: Call, async_op: bool) -> NetOperation:
        if async_op:
            self._usable()
        else:
            self._ready_for_sync()
        return NetOperation(self._staging, call, async_op, self._mates)

    def _enter(
        self, call: Call, parts: Sequence[np.ndarray], async_op: bool, table: Sequence[int] = ()
    ) -> NetOperation:
        entered = self._begin(call, async_op)
        entered.expose(parts)
        entered.send(parts)
        if len(table):
            entered.tell_sizes(table)
        entered.enter()
        return entered

    def _spread(
        self, call: Call, ins: Sequence[np.ndarray], async_op: bool, table: Sequence[int] = ()
    ) -> NetOperation:
        """Enter an operation in which each rank has a piece for each."""
        entered = self._begin(call, async_op)
        entered.expose(ins)
        for wants in self._wants:
            entered.send(ins, wants)
        if len(table):
            entered.tell_sizes(table)
        entered.enter()
        return entered

    def _wanted(self) -> list[Wants]:
        """Which pieces go to the ranks of a host: its ranks', run by run."""
        runs: dict[int, list[tuple[int, int]]] = {h: [] for h in self._hosts}
        for host, number in self._hosts.items():
            for r in self.layout.hosts[number]:
                last = runs[host][-1] if runs[host] else (0, -1)
                if last[1] == r:
                    runs[host][-1] = (last[0], r + 1)
                else:
                    runs[host].append((r, r + 1))
        most = max(map(len, runs.values()))

        def run(i: int) -> Wants:
            return lambda host: runs[host][i] if i < len(runs[host]) else (0, 0)

        return [run(i) for i in range(most)]

    def _exchange(
        self,
        entered: NetOperation,
        pieces: tuple[Piece, ...],
        sums: Arithmetic,
        views: dict[int, np.ndarray],
        out: np.ndarray | None,
        count: int,
    ) -> Steps:
        """Enter a large reduction; what is left of it."""
        key = operation_key(self._group, self.channel.seq + 1)
        exchange = Exchange(key, self.rank, self.layout, pieces, sums, views, out)
        listen_for(self.hub.net, key, exchange, self.channel.ranks)
        try:
            entered.enter()
        except BaseException:
            self.hub.net.sinks.pop(key, None)
            raise
        return reduce_between(entered, key, exchange, views, count)

    def _arithmetic(self, op: ReduceOp, dtype: np.dtype, step: int) -> Arithmetic:
        key = (op, dtype.num)
        if key not in self._sums:
            if len(self._sums) >= 16:
                self._sums.clear()
            self._sums[key] = Arithmetic(op, dtype, self.layout, step)
        return self._sums[key]

    def _run(self, steps: Steps, async_op: bool, result: object) -> Work | None:
        return super()._run(self._until_sent(steps), async_op, result)

    def _until_sent(self, steps: Steps) -> Steps:
        """What this rank has to send is read from the caller's arrays."""
        yield from steps
        pipes = [self.hub.net.pipes[r] for r in self.channel.ranks if r in self.hub.net.pipes]
        yield Sent(pipes, f"operation of group {self.name}")


class LocalTransport(ShmTransport):
    """A default group of several hosts, of which one is left."""

    hub: NetHub

    def shrink(
        self, timeout: float | None, exclude: Collection[int] = ()
    ) -> tuple[ShmTransport, list[int]]:
        return _shrink(self, timeout, exclude)


def world(
    segment: Any, net: Net, layout: Layout, epoch: int, timeout: float, before: int = 0
) -> ShmTransport:
    """The transport of all ranks of ``segment``, to which the links are there. ``before``: beyond
    which value their flags begin."""
    rank, size = net.rank, len(layout.host_of)
    hub = NetHub(segment, rank, layout, net, epoch, before)
    hub.watch_processes()
    blocks = [segment.comm_area(r)[0] for r in range(size)]
    hub.reach = Reach(hub, blocks)
    mailbox, rest = NetMailbox(hub), (range(size), rank, blocks, "world", hub.start)
    if len(layout.hosts) == 1:
        return LocalTransport(Channel(hub, *rest), mailbox, timeout, is_world=True)
    return TcpTransport(MirroredChannel(hub, *rest), mailbox, timeout, is_world=True)


def _shrink(
    old: TcpTransport | LocalTransport, timeout: float | None, exclude: Collection[int]
) -> tuple[ShmTransport, list[int]]:
    before = old.hub.view
    view, net, layout = leave_and_agree(old.hub, timeout or old.timeout, exclude)
    if not exclude:  # who lives may still write into what it was given
        old.mailbox.abandon()
        for group in old.hub.given_back:
            group.abandon()
    made = world(view, net, layout, old.epoch, old.timeout, view.start)
    made.job = net.job
    return made, [before.members.index(r) for r in view.members]


def _as_one(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """The array that ``parts`` are one behind the other, if they are."""
    full = [p for p in parts if p.nbytes]
    if len(full) == 1:
        return full[0]
    base = full[0].base
    if not isinstance(base, np.ndarray) or not base.flags.c_contiguous:
        return None
    at = [p.__array_interface__["data"][0] for p in full]
    ends = [start + p.nbytes for start, p in zip(at, full, strict=True)]
    if at[1:] != ends[:-1] or any(p.base is not base for p in full):
        return None
    start = at[0] - base.__array_interface__["data"][0]
    return base.reshape(-1).view(np.uint8)[start : start + ends[-1] - at[0]].view(full[0].dtype)
