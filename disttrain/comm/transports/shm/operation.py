"""What a rank exposes of its data in a collective: where it lies, and who has to copy it.

``Staging`` is the memory of one group for data that peers cannot read where it lies; ``Operation``
is one collective that a rank has entered. Knows channels and arrays; what is done with the data is
in ``steps.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ....backends.llvm.reduction import reduction
from ....errors import CollectiveMismatch
from ...calls.header import Call
from ...calls.reduce_ops import tree
from .channel import (
    DIRECT,
    FILLED,
    FINISHED,
    NONE,
    PAYLOAD_BYTES,
    POSTED,
    REMOTE,
    RING,
    STAGED,
    Channel,
)
from .chunks import NativeRounds, Rings, rings_bytes
from .hub import Need
from .oversubscription import YIELDS
from .process_memory import Far, address_of

SMALL_BYTES = PAYLOAD_BYTES
CHUNK_BYTES = 1 << 20  # one chunk of the ring
NUM_CHUNKS = 4
# By machine code for each by Python. Who spins long keeps off a peer that has no other core.
NATIVE_SPINS, NATIVE_YIELDS = 2, 5

# What is reduced whole. Members read (n - 1) times as much as there is, against twice as much where
# each reduces a slice for all; but they wait for each other once instead of twice.
_WHOLE_BYTES = {1: 256 << 10, 2: 256 << 10, 3: 64 << 10, 4: 64 << 10}
_WHOLE_BYTES_OF_MANY = 32 << 10


def whole_bytes(size: int) -> int:
    """Up to so many bytes an array is reduced whole by each of ``size`` members."""
    return _WHOLE_BYTES.get(size, _WHOLE_BYTES_OF_MANY)


Steps = Generator[Need, None, None]


class Staging:
    """The memory of one group in which data is exposed that does not lie in shared memory."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.hub = channel, channel.hub
        self.ring = self._halves = 0
        self.half_bytes = whole_bytes(len(channel.ranks))
        self.spins = range(self.hub.spins)
        self.ring_seq = 0  # the last operation whose chunks peers may still be reading
        self._blocks: list[tuple[int, int]] = []  # (operation, offset), free once all finished it
        self._taken: set[int] = set()  # all blocks
        self._near: dict[int, np.ndarray] = {}
        self._rings: dict[int, tuple[list[int], Rings]] = {}
        self._native: dict[int, tuple[list[int], NativeRounds | None]] = {}
        self._looked = 0  # the operation in which members found out whose memory they can read
        self._is_open: bool | None = None

    def slot(self, parts: Sequence[np.ndarray]) -> int:
        """Copy into the small payload of the next operation, which must be free."""
        channel = self.channel
        offset = channel.payload(channel.me, (channel.seq + 1) & 1)
        self._copy(parts, offset)
        return offset

    def block(self, parts: Sequence[np.ndarray], nbytes: int) -> int:
        """Copy into a block of the arena."""
        offset = self.hub.arena.take(nbytes)
        self._taken.add(offset)
        self._copy(parts, offset)
        return offset

    def half(self, parity: int) -> int:
        """Where what is reduced whole lies in operations of one parity, if it is too long for the
        small payload."""
        if not self._halves:
            self._halves = self.hub.arena.take(2 * self.half_bytes)
            self._taken.add(self._halves)
        return self._halves + parity * self.half_bytes

    def use_ring(self) -> int:
        if not self.ring:
            self.ring = self.hub.arena.take(CHUNK_BYTES * NUM_CHUNKS)
        return self.ring

    def rings(self, offsets: list[int], dtype: np.dtype) -> Rings:
        """The rings of all members, which lie at ``offsets``, for elements of a type."""
        known = self._rings.get(dtype.num)
        if known is None or known[0] != offsets:
            nbytes = rings_bytes(len(offsets), dtype)
            views = [self.hub.bytes[at : at + nbytes].view(dtype) for at in offsets]
            known = self._rings[dtype.num] = offsets, Rings(views, self.channel.me)
        return known[1]

    def native(self, offsets: list[int], dtype: np.dtype) -> NativeRounds | None:
        """The rounds through rings at ``offsets`` in machine code, for sums of elements of a type;
        None where there is none."""
        known = self._native.get(dtype.num)
        if known is None or known[0] != offsets:
            made, channel, size = None, self.channel, len(offsets)
            code = reduction(dtype.name, size, tree(size, None)) if size > 1 else None
            if code is not None:
                nbytes, flags = rings_bytes(size, dtype), channel.flags(FILLED)
                views = [self.hub.bytes[at : at + nbytes] for at in offsets]
                waits = (
                    NATIVE_SPINS * len(self.spins),
                    NATIVE_YIELDS * YIELDS if self.hub.futex else 0,
                )
                made = NativeRounds(code, views, channel.me, flags, channel.sleepers(), *waits)
            known = self._native[dtype.num] = offsets, made
        return known[1]

    def is_open(self) -> bool:
        """Whether all members can read each other's memory, for the next operation. They answer
        alike: one that waits for its peers comes two after the one that they have found it out in
        only when all have said so. (Others, which wait for nobody, may answer no for longer.)"""
        if self._is_open is None and self._looked and self.channel.seq > self._looked:
            known = self.channel.need(FINISHED, self._looked, own=True)
            if known():
                self._is_open = self.hub.reach.is_open(self.channel.ranks)
        return bool(self._is_open)

    def look(self, where: Sequence[tuple], seq: int) -> None:
        """Where a member had to copy its data in operation ``seq``: find out whether it can be read
        without, from now on. All have come, and all see the same."""
        if not self._looked and any(mode in (RING, STAGED) for _, mode, _ in where):
            self._looked = seq
            self.hub.reach.look(self.channel.ranks)

    def near(self, member: int, part: Far, dtype: np.dtype) -> np.ndarray:
        """A copy of what a member has far away, until the next one of its parts."""
        nbytes = part.size * dtype.itemsize
        room = self._near.get(member)
        if room is None or room.size < nbytes:
            room = self._near[member] = np.empty(nbytes, np.uint8)
        into = room[:nbytes].view(dtype)
        part.read(into)
        return into

    def retire(self, seq: int, offset: int) -> None:
        """Free a block when every member has finished operation ``seq``."""
        self._blocks.append((seq, offset))

    def sweep(self) -> None:
        """Free what can be freed."""
        if not self._blocks:
            return
        with self.hub.lock:  # another thread may bring the group's operations forward
            kept = []
            for seq, offset in self._blocks:
                if self.channel.need(FINISHED, seq, own=True)():
                    self._taken.discard(offset)
                    self.hub.arena.give(offset)
                else:
                    kept.append((seq, offset))
            self._blocks = kept

    def close(self) -> None:
        """Give everything back; every member has left the group's last operation."""
        for offset in self._taken:
            self.hub.arena.give(offset)
        self._blocks, self._taken, self._halves = [], set(), 0
        self._rings, self._native = {}, {}
        if self.ring:
            self.hub.arena.give(self.ring)
            self.ring = 0

    def _copy(self, parts: Sequence[np.ndarray], offset: int) -> None:
        for part in parts:
            into = self.hub.bytes[offset : offset + part.nbytes]
            into[...] = part.view(np.uint8)
            offset += part.nbytes


class Operation:
    """One collective that this rank has entered: exposed data, header posted."""

    __slots__ = ("block", "channel", "hub", "me", "mode", "offset", "print_", "seq", "staging")

    def __init__(
        self,
        staging: Staging,
        call: Call,
        parts: Sequence[np.ndarray],
        async_op: bool,
        table: Sequence[int] = (),
        copy: bool = False,
        ring: bool = False,
        mark: int = 0,
    ) -> None:
        """Expose ``parts`` (as if concatenated) and post the header.

        ``table``: sizes that the others need to see, for ragged operations. ``copy``: a copy, since
        this rank will write to them before the others have read them. ``ring``: rather in a ring
        than far away, if all are in rings; the header then says both. ``mark``: what the others are
        to see of staged data.
        """
        self.staging, self.channel = staging, staging.channel
        self.hub, self.me = staging.hub, staging.channel.me
        staging.sweep()
        self.block = 0
        self.offset, self.mode = self._expose(parts, async_op, copy)
        sizes = mark
        if ring and self.mode == REMOTE:
            self.offset, self.mode, sizes = staging.use_ring(), RING, self.offset
        if len(table):
            sizes = staging.block([np.array(table, np.int64)], 8 * len(table))
        self.print_ = self.channel.post(call, self.offset, self.mode, sizes)
        self.seq = self.channel.seq
        if len(table):
            staging.retire(self.seq, sizes)

    def _expose(self, parts: Sequence[np.ndarray], async_op: bool, copy: bool) -> tuple[int, int]:
        nbytes = sum([p.nbytes for p in parts])
        if nbytes == 0:
            return 0, NONE
        if nbytes > SMALL_BYTES and not copy:
            start = together(parts)
            offset = self.hub.offset_at(start, nbytes)
            if offset:
                return offset, DIRECT
            if start and self.staging.is_open():
                return start, REMOTE
            if not async_op:
                return self.staging.use_ring(), RING
        elif not async_op:
            return self.staging.slot(parts), STAGED
        self.block = self.staging.block(parts, nbytes)
        return self.block, STAGED

    def arrive(self) -> Steps:
        """Wait for all members and compare the headers."""
        yield self.channel.need(POSTED, self.seq)
        if not self.channel.same(self.seq, self.print_):
            self.checked(self.channel.verify, self.seq)

    def checked(self, check: Callable, *args) -> None:
        """Run a check that raises on all members alike; the group stays usable."""
        try:
            check(*args)
        except CollectiveMismatch:
            self.end()
            raise

    def finish(self) -> None:
        """All that was read is good, and this rank reads nothing more. Where a rank has failed, a
        peer that has broken off may have changed its data meanwhile: then nobody knows. (What is
        staged stays as it is until all have read it: that is ``end``.)"""
        self.hub.refuse_after_failure()
        self.end()

    def end(self) -> None:
        """This rank reads nothing of others any more."""
        self.channel.publish(FINISHED, self.seq)
        if self.block:
            self.staging.retire(self.seq, self.block)
            self.block = 0

    def where(self) -> list[tuple[int, int, int]]:
        """(offset, mode, sizes) of every member's data. All have arrived. Where not all are in
        rings, those that may as well be far away are."""
        where = self.channel.where(self.seq)
        if all(mode == RING for _, mode, _ in where):
            return where
        where = [(s, REMOTE, 0) if mode == RING and s else (at, mode, s) for at, mode, s in where]
        self.offset, self.mode, _ = where[self.me]
        return where

    def view(self, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        return self.hub.bytes[offset : offset + count * dtype.itemsize].view(dtype)

    def exposure(self, member: int, where: tuple, count: int, dtype: np.dtype) -> Any:
        """A member's exposed array of ``count`` elements (``Far`` where it is), or its ring."""
        offset, mode, _ = where
        if mode == REMOTE:
            rank = self.channel.ranks[member]
            return Far(self.hub.reach, rank, offset, count, dtype.itemsize)
        ring = NUM_CHUNKS * (CHUNK_BYTES // dtype.itemsize)
        return self.view(offset, ring if mode == RING else count, dtype)

    def exposures(self, where: Sequence[tuple], count: int, dtype: np.dtype) -> list:
        """Every member's."""
        return [self.exposure(i, w, count, dtype) for i, w in enumerate(where)]


def together(parts: Sequence[np.ndarray]) -> int:
    """The address of ``parts`` if they lie one behind the other, else 0."""
    start = end = 0
    for part in parts:
        if part.nbytes:
            address = address_of(part)
            if end and address != end:
                return 0
            start, end = start or address, address + part.nbytes
    return start
