"""One collective between hosts that a rank has entered: what it exposes, and to whom it is sent.

On this rank's own host its data is exposed as ever (``shm.steps``). Other hosts get a copy at the
same place of their segments, before the header that tells of it. Where nobody else of the group is
on this host, nothing is copied here: the copies are sent from the caller's array.

Large reductions send no copies, but what an ``Exchange`` asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...calls.header import Call
from ..shm.channel import DIRECT, DONE, NONE, STAGED
from ..shm.deadlock import Edge
from ..shm.operation import SMALL_BYTES, Operation, Staging, Steps, together
from . import frames
from .exchange import Exchange
from .mirror import MirroredChannel, NetHub
from .pipe import Pipe

MIDDLE_BYTES = 64 << 10  # up to here everybody gets everybody's values and reduces them alone

Wants = Callable[[int], tuple[int, int]]  # (host): the first and the last part that it wants, + 1


class NetStaging(Staging):
    """As ever, but nobody reads another process' memory: it may be on another host."""

    def reserve(self, nbytes: int) -> int:
        """A block whose memory nobody reads here."""
        offset = self.hub.arena.take(nbytes)
        self._taken.add(offset)
        return offset

    def is_open(self) -> bool:
        return False

    def look(self, where: Sequence[tuple], seq: int) -> None:
        return


class NetOperation(Operation):
    """``parts`` are exposed as if concatenated. ``wants``: which of them go to which host; None:
    all of them to all."""

    hub: NetHub
    channel: MirroredChannel

    staging: NetStaging

    def __init__(
        self, staging: NetStaging, call: Call, async_op: bool, mates: Sequence[int]
    ) -> None:
        channel: Any = staging.channel
        self.staging, self.channel, self.hub = staging, channel, channel.hub
        self.me, self.call, self.mates = staging.channel.me, call, mates
        self.async_op = async_op
        self.block = self.offset = self.sizes = self.nbytes = 0
        self.mode = NONE
        staging.sweep()

    def enter(self) -> None:
        """Post the header: everything is in place, or on its way."""
        self.print_ = self.channel.post(self.call, self.offset, self.mode, self.sizes)
        self.seq = self.channel.seq
        if self.sizes:
            self.staging.retire(self.seq, self.sizes)

    def tell_sizes(self, table: Sequence[int]) -> None:
        """Sizes that all others need to see, for ragged operations."""
        self.sizes = self.staging.block([np.array(table, np.int64)], 8 * len(table))
        self.channel.copy(self.sizes, 8 * len(table))

    def expose(self, parts: Sequence[np.ndarray], copy: bool = False) -> None:
        """Expose ``parts`` on this host. ``copy``: a copy, even where nobody else is on it."""
        nbytes = self.nbytes = sum([p.nbytes for p in parts])
        if not nbytes:
            return
        self.mode = STAGED
        if nbytes <= SMALL_BYTES and not self.async_op:
            self.offset = self.staging.slot(parts)
            return
        direct = 0
        if nbytes > SMALL_BYTES and not copy:
            direct = self.hub.offset_at(together(parts), nbytes)
        if direct:
            self.offset, self.mode = direct, DIRECT
            return
        if self.mates or copy:
            self.offset = self.block = self.staging.block(parts, nbytes)
        else:
            self.offset = self.block = self.staging.reserve(nbytes)

    def send(self, parts: Sequence[np.ndarray], wants: Wants | None = None) -> None:
        """Queue the copies for other hosts."""
        if self.mode == NONE:
            return
        host_of = self.hub.layout.host_of
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + part.nbytes)
        small = starts[-1] <= SMALL_BYTES
        with self.hub.lock:
            for pipe in self.channel.pipes():
                first, last = (0, len(parts)) if wants is None else wants(host_of[pipe.rank])
                if small:
                    lo, hi = starts[first], starts[last]
                    if hi > lo and (not self.block or self.mates):
                        self.hub.put(pipe, self.offset + lo, hi - lo)
                        continue
                for part, start in zip(parts[first:last], starts[first:last], strict=True):
                    if part.nbytes:
                        self._send_part(pipe, self.offset + start, part)

    def _send_part(self, pipe: Pipe, where: int, part: np.ndarray) -> None:
        raw = part.view(np.uint8)
        source: Any = raw if not self.block or not self.mates else None
        if source is None:
            self.hub.put(pipe, where, raw.size)
        else:
            pipe.add(frames.put(where, raw.size), raw.data)

    def end(self) -> None:
        super().end()
        if self.mode == DIRECT or self.nbytes > MIDDLE_BYTES:  # somebody's memory waits for it
            self.channel.flush()


class Sent:
    """A ``Need``: what was queued for these peers has been handed to the kernel."""

    def __init__(self, pipes: Sequence[Pipe], what: str) -> None:
        self._pipes, self._what = pipes, what

    def __call__(self) -> bool:
        return all(pipe.idle for pipe in self._pipes)

    def what(self) -> str:
        slow = ", ".join(str(pipe.rank) for pipe in self._pipes if not pipe.idle)
        return f"{self._what}; rank {slow} takes nothing more at the moment"

    def edges(self) -> list[Edge]:
        return []


class _Arrival:
    """A ``Need``: something more has come for an exchange."""

    def __init__(self, exchange: Exchange, what: str) -> None:
        self._exchange, self._what, self._seen = exchange, what, exchange.arrived

    def __call__(self) -> bool:
        return self._exchange.arrived != self._seen

    def what(self) -> str:
        return f"{self._what}; data of other hosts has not come"

    def edges(self) -> list[Edge]:
        return []


class _Sink:
    """An exchange as what the net gives pieces to: ranks there are those of the world."""

    def __init__(self, exchange: Exchange, ranks: Sequence[int]) -> None:
        self._exchange, self._ranks = exchange, ranks

    def target(self, rank: int, index: int, size: int) -> memoryview:
        return self._exchange.target(self._ranks.index(rank), index, size)

    def taken(self, rank: int, index: int) -> None:
        self._exchange.taken(self._ranks.index(rank), index)


def reduce_between(
    op: NetOperation, key: int, exchange: Exchange, views: dict[int, np.ndarray], sizes: int
) -> Steps:
    """Run ``exchange``, which is ``key`` for others and whose ``views`` of other ranks of this host
    are still missing. ``sizes(rank)``: how many elements those have, 0 where only this rank gets
    results."""
    net, channel = op.hub.net, op.channel
    dtype = views[op.me].dtype
    touched: dict[Pipe, None] = {}

    def send(rank: int, head: bytes, data: object) -> None:
        pipe = net.pipes[channel.ranks[rank]]
        pipe.add(head, data)
        touched[pipe] = None

    try:
        yield from op.arrive()
        where = channel.where(op.seq)
        for mate in op.mates:
            views[mate] = op.view(where[mate][0], sizes, dtype)
        while True:
            with op.hub.lock:
                exchange.advance(send)
                for pipe in touched:
                    net.go(pipe)
            touched.clear()
            if exchange.is_over:
                break
            yield _Arrival(exchange, op.call.text)
        if op.mates:
            channel.publish(DONE, op.seq, 1)
            yield channel.need(DONE, op.seq, 1, members=op.mates)
    finally:
        net.sinks.pop(key, None)


def listen_for(net: Any, key: int, exchange: Exchange, ranks: Sequence[int]) -> None:
    """Let others send pieces for ``exchange``."""
    net.sinks[key] = _Sink(exchange, ranks)
