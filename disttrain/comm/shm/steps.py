"""The collectives over shared memory, as generators of what each one waits for.

A generator runs to its next ``yield need`` and is resumed when that need is met: at once and by
waiting in a synchronous call, whenever the rank comes by in an asynchronous one. Same code, same
order of arithmetic, same bits.

``Operation`` is one collective that a rank has entered: its exposed data and its header. ``Task``
is one in a transport's queue. Knows channels and arrays; the verbs are in ``transport.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ...errors import CollectiveMismatch
from ..header import Call
from ..work import Work
from .channel import (
    DIRECT,
    DONE,
    FILLED,
    FINISHED,
    NONE,
    PAYLOAD_BYTES,
    POSTED,
    RING,
    STAGED,
    Channel,
)
from .deadlock import Edge
from .hub import Need

SMALL_BYTES = PAYLOAD_BYTES
CHUNK_BYTES = 1 << 20  # one chunk of the ring
NUM_CHUNKS = 4
SLICE_BYTES = 256 << 10  # what one rank reduces in one go where nothing needs a ring
_LINE = 64  # slices begin at multiples of so many elements

Steps = Generator[Need, None, None]
Parts = list[tuple[int, np.ndarray]]  # (member, its elements)


class Staging:
    """The memory of one group in which data is exposed that does not lie in shared memory."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.hub = channel, channel.hub
        self.ring = 0
        self.ring_seq = 0  # the last operation whose chunks peers may still be reading
        self._blocks: list[tuple[int, int]] = []  # (operation, offset), free once all finished it
        self._taken: set[int] = set()  # all blocks

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

    def use_ring(self) -> int:
        if not self.ring:
            self.ring = self.hub.arena.take(CHUNK_BYTES * NUM_CHUNKS)
        return self.ring

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
        self._blocks, self._taken = [], set()
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
    ) -> None:
        """Expose ``parts`` (as if concatenated) and post the header.

        ``table``: sizes that the others need to see, for ragged operations.
        """
        self.staging, self.channel = staging, staging.channel
        self.hub, self.me = staging.hub, staging.channel.me
        staging.sweep()
        self.block = 0
        self.offset, self.mode = self._expose(parts, async_op)
        sizes = 0
        if len(table):
            sizes = staging.block([np.array(table, np.int64)], 8 * len(table))
        self.print_ = self.channel.post(call, self.offset, self.mode, sizes)
        self.seq = self.channel.seq
        if sizes:
            staging.retire(self.seq, sizes)

    def _expose(self, parts: Sequence[np.ndarray], async_op: bool) -> tuple[int, int]:
        nbytes = sum([p.nbytes for p in parts])
        if nbytes == 0:
            return 0, NONE
        if nbytes > SMALL_BYTES:
            offset = self._in_place(parts)
            if offset:
                return offset, DIRECT
            if not async_op:
                return self.staging.use_ring(), RING
        elif not async_op:
            return self.staging.slot(parts), STAGED
        self.block = self.staging.block(parts, nbytes)
        return self.block, STAGED

    def _in_place(self, parts: Sequence[np.ndarray]) -> int:
        """The offset of ``parts`` if they lie in this rank's arena, one behind the other."""
        start = end = 0
        for part in parts:
            if part.nbytes:
                offset = self.hub.offset_of(part)
                if not offset or (end and offset != end):
                    return 0
                start, end = start or offset, offset + part.nbytes
        return start

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
        peer that has broken off may have changed its data meanwhile: then nobody knows."""
        self.hub.refuse_after_failure()
        self.end()

    def end(self) -> None:
        """This rank reads nothing of others any more."""
        self.channel.publish(FINISHED, self.seq)
        if self.block:
            self.staging.retire(self.seq, self.block)
            self.block = 0

    def view(self, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        return self.hub.bytes[offset : offset + count * dtype.itemsize].view(dtype)

    def exposures(self, where: Sequence[tuple], count: int, dtype: np.dtype) -> list[np.ndarray]:
        """Every member's exposed array of ``count`` elements, or its ring."""
        ring = NUM_CHUNKS * (CHUNK_BYTES // dtype.itemsize)
        return [self.view(o, ring if mode == RING else count, dtype) for o, mode, _ in where]


def meet(op: Operation) -> Steps:
    """Wait for all and compare the headers; nothing else."""
    yield from op.arrive()
    op.finish()


def reduce_small(op: Operation, array: np.ndarray, reduce: Callable) -> Steps:
    """All members' data is exposed whole: every member reduces all of it."""
    yield from op.arrive()
    reduce(op.exposures(op.channel.where(op.seq), array.size, array.dtype), array)
    op.finish()


class _Slices:
    """How an array is divided: into chunks of ``step`` elements, those into a slice per member."""

    def __init__(self, count: int, step: int, size: int) -> None:
        self.count, self.step, self.size = count, step, size
        self.total = -(-count // step)

    def __call__(self, chunk: int, member: int) -> tuple[int, int, int, int]:
        """(start of the chunk, of the slice, end of the slice, of the chunk), in elements."""
        lo = chunk * self.step
        n = min(self.step, self.count - lo)
        per = -(-n // (self.size * _LINE)) * _LINE
        return lo, lo + min(member * per, n), lo + min((member + 1) * per, n), lo + n


class _Reduction:
    """A large all_reduce after all have arrived: what lies where, and the three stages."""

    def __init__(self, op: Operation, array: np.ndarray, reduce: Callable) -> None:
        dtype = array.dtype
        where = op.channel.where(op.seq)
        self.me, self.reduce = op.me, reduce
        self.rings = {i for i, (_, mode, _) in enumerate(where) if mode == RING}
        self.views = op.exposures(where, array.size, dtype)
        self.own = self.views[op.me] if op.mode == STAGED else array
        nbytes = CHUNK_BYTES if self.rings else len(where) * SLICE_BYTES
        self.slices = _Slices(array.size, nbytes // dtype.itemsize, len(where))

    def _shift(self, member: int, chunk: int) -> int:
        """What to subtract from an index of the array to get one of the member's exposure."""
        return (chunk - chunk % NUM_CHUNKS) * self.slices.step if member in self.rings else 0

    def copy(self, chunk: int, *, out: bool) -> None:
        """Copy what others reduce of a chunk into this member's ring, or out of it."""
        lo, a, b, hi = self.slices(chunk, self.me)
        d = self._shift(self.me, chunk)
        for begin, end in ((lo, a), (b, hi)):
            inside, outside = self.views[self.me][begin - d : end - d], self.own[begin:end]
            if out:
                outside[...] = inside
            else:
                inside[...] = outside

    def reduce_slice(self, chunk: int) -> None:
        """Reduce this member's slice of a chunk from all exposures and into all of them."""
        _, a, b, _ = self.slices(chunk, self.me)
        if a == b:
            return
        parts = []
        for i, view in enumerate(self.views):
            d = self._shift(i, chunk)
            parts.append(view[a - d : b - d])
        targets = parts[: self.me] + parts[self.me + 1 :]
        out = parts[self.me] = self.own[a:b]
        self.reduce(parts, out)
        for target in targets:
            target[...] = out


def reduce_large(op: Operation, array: np.ndarray, reduce: Callable) -> Steps:
    """Each member reduces its slice of every chunk and writes it into all exposures.

    With rings in play, three stages follow each other chunk by chunk: copy in, reduce, copy out.
    A ring slot is free for chunk c when chunk c-4 was copied out, two rounds earlier.
    """
    yield from op.arrive()
    channel, seq, mine = op.channel, op.seq, op.mode == RING
    work = _Reduction(op, array, reduce)
    total = work.slices.total
    awaited = sorted(work.rings - {op.me})
    if mine and op.staging.ring_seq:
        yield channel.need(FINISHED, op.staging.ring_seq)
    for c in range(total + 2):
        if mine and c < total:
            work.copy(c, out=False)
            channel.publish(FILLED, seq, c + 1)
        if 0 <= c - 1 < total:
            if awaited:
                yield channel.need(FILLED, seq, c, members=awaited)
            work.reduce_slice(c - 1)
            channel.publish(DONE, seq, c)
        if mine and 0 <= c - 2:
            yield channel.need(DONE, seq, c - 1)
            work.copy(c - 2, out=True)
    yield channel.need(DONE, seq, total)
    if work.own is not array:
        array[...] = work.own
    op.finish()


Layout = tuple[Sequence[int], Sequence[int], int]


class _Sources:
    """The data of all members that is meant for this one, after all have arrived."""

    def __init__(
        self,
        op: Operation,
        ins: Sequence[np.ndarray],
        dtype: np.dtype,
        layout: Layout,
        spread: bool,
    ) -> None:
        lens, starts, longest = layout
        where = op.channel.where(op.seq)
        rings = [i for i, (_, mode, _) in enumerate(where) if mode == RING]
        self.lens, self.starts, self.rings = lens, starts, rings
        self.awaited = [i for i in rings if i != op.me and lens[i]]
        self.per_chunk = CHUNK_BYTES // dtype.itemsize
        self.piece = self.per_chunk // len(where) if spread else self.per_chunk
        self.step = self.piece if rings else max(longest, 1)
        self.total = -(-longest // self.step)
        self.base = op.me * self.piece if spread else 0  # of our piece in a peer's ring slot
        self.views = [
            op.exposures([w], start + n, dtype)[0] if n else None
            for w, start, n in zip(where, starts, lens, strict=True)
        ]
        self.me, self.ins, self.spread = op.me, ins, spread

    def parts(self, chunk: int) -> Parts:
        """What each member has for us in a chunk, in rank order."""
        lo, found = chunk * self.step, []
        for i, view in enumerate(self.views):
            n = min(self.step, self.lens[i] - lo)
            if n <= 0 or view is None:
                continue
            begin = self.starts[i] + lo
            if i == self.me:
                view, begin = self.ins[i if self.spread else 0], lo
            elif i in self.rings:
                begin = chunk % NUM_CHUNKS * self.per_chunk + self.base
            found.append((i, view[begin : begin + n]))
        return found

    def fill(self, op: Operation, chunk: int) -> None:
        """Copy a chunk of every piece of ours into our ring."""
        ring = op.view(op.offset, NUM_CHUNKS * self.per_chunk, self.ins[0].dtype)
        base, lo = chunk % NUM_CHUNKS * self.per_chunk, chunk * self.piece
        for i, source in enumerate(self.ins):
            if not (self.spread and i == self.me):
                part = source[lo : lo + self.piece]
                at = base + i * self.piece
                ring[at : at + part.size] = part


def pull(
    op: Operation,
    ins: Sequence[np.ndarray],
    dtype: np.dtype,
    layout: Callable[[], Layout],
    sink: Callable[[int, Parts], None],
    spread: bool,
) -> Steps:
    """Every member reads from every other one what is meant for it.

    ``ins``: this member's pieces, one per destination where ``spread``, else one for all (or
    none). ``layout()``: for each member the number of elements it has for us and where they begin
    in its data, and the longest such piece between any two members. ``sink(lo, parts)`` gets the
    elements from ``lo`` on, in rank order.
    """
    yield from op.arrive()
    channel, seq, mine = op.channel, op.seq, op.mode == RING
    sources = _Sources(op, ins, dtype, layout(), spread)
    if mine and op.staging.ring_seq:
        yield channel.need(FINISHED, op.staging.ring_seq)
    for c in range(sources.total + 1):
        if mine and c < sources.total:
            if c >= NUM_CHUNKS:
                yield channel.need(DONE, seq, c - NUM_CHUNKS + 1)
            sources.fill(op, c)
            channel.publish(FILLED, seq, c + 1)
        if c:
            if sources.awaited:
                yield channel.need(FILLED, seq, c, members=sources.awaited)
            sink((c - 1) * sources.step, sources.parts(c - 1))
            channel.publish(DONE, seq, c)
    op.finish()
    if mine:
        op.staging.ring_seq = seq
    if op.mode == DIRECT:
        yield channel.need(FINISHED, seq)


class Task(Work):
    """An operation in a transport's queue: a generator of the needs it waits for, in turn."""

    __slots__ = ("need", "outcome", "owner", "steps")

    def __init__(self, owner: Any, steps: Steps, result: Any) -> None:
        super().__init__()
        self.owner, self.steps = owner, steps
        self.need: Need | None = None
        self.outcome: tuple = (result, None)

    def advance(self) -> bool:
        """Go on until a need is not met; True when nothing is left to do."""
        while True:
            try:
                if self.need is not None and not self.need():
                    return False
                self.need = next(self.steps)
            except StopIteration:
                return True
            except BaseException as error:
                self.outcome = (None, error)
                if not isinstance(error, Exception):
                    raise  # KeyboardInterrupt is for the program, and ends this work too
                return True

    def _poll(self) -> None:
        self.owner.hub.progress()

    def _block(self, timeout: float | None) -> None:
        self.owner.wait(self, timeout)

    # As the ``Need`` of who waits for it: what the head of the queue waits for, since all go
    # in order.
    def __call__(self) -> bool:
        return self._done

    def what(self) -> str:
        return self.owner.head_need().what()

    def edges(self) -> list[Edge]:
        return self.owner.head_need().edges()


def copy_to(outs: Sequence[np.ndarray]) -> Any:
    """A sink that copies what comes into each of ``outs``."""

    def sink(lo: int, parts: Parts) -> None:
        for i, part in parts:
            outs[i][lo : lo + part.size] = part

    return sink


def ragged_layout(op: Operation) -> tuple:
    """Read everybody's table of sizes; each pair must agree. All members see the same."""
    ranks, me, tables = op.channel.ranks, op.me, []
    n = len(ranks)
    for _, _, at in op.channel.where(op.seq):
        tables.append(op.view(at, 2 * n, np.dtype(np.int64)))
    sends, recvs = np.stack([t[:n] for t in tables]), np.stack([t[n:] for t in tables])
    wrong = np.argwhere(sends != recvs.T)
    if len(wrong):
        a, b = map(int, wrong[0])
        detail = (
            f"rank {ranks[a]} has {sends[a, b]} elements for rank {ranks[b]}, "
            f"which expects {recvs[b, a]}."
        )
        op.checked(op.channel.mismatch, op.seq, "sizes", detail)
    starts = [int(sends[i, :me].sum()) for i in range(n)]
    return sends[:, me].tolist(), starts, int(sends.max())
