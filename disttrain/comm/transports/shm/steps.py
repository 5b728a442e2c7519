"""The collectives over shared memory, as generators of what each one waits for.

A generator runs to its next ``yield need`` and is resumed when that need is met: at once and by
waiting in a synchronous call, whenever the rank comes by in an asynchronous one. Same code, same
order of arithmetic, same bits.

``Task`` is one in a transport's queue. Knows channels and arrays; the verbs are in
``transport.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any, cast

import numpy as np

from ...calls.work import Work
from .channel import DIRECT, DONE, FILLED, FINISHED, NONE, REMOTE, RING, STAGED
from .chunks import reduce_in_rounds
from .deadlock import Edge
from .hub import Need
from .operation import CHUNK_BYTES, NUM_CHUNKS, SMALL_BYTES, Operation, Staging, Steps
from .process_memory import Far, put

SLICE_BYTES = 256 << 10  # what one rank reduces in one go ...
CACHE_BYTES = 1 << 20  # ... of all members together: what stays in a core's own cache meanwhile
LEAST_SLICE_BYTES = 64 << 10  # below, a call for memory that is far costs more than its copy
_LINE = 64  # slices begin at multiples of so many elements

Parts = list[tuple[int, Any]]  # (member, its elements: an array, or ``Far``)


def slice_bytes(size: int) -> int:
    """What one of ``size`` members reduces in one go."""
    return min(SLICE_BYTES, max(CACHE_BYTES // size, LEAST_SLICE_BYTES))


def meet(op: Operation) -> Steps:
    """Wait for all and compare the headers; nothing else."""
    yield from op.arrive()
    op.end()


def reduce_small(op: Operation, array: np.ndarray, reduce: Callable) -> Steps:
    """All members' data is staged whole: every member reduces all of it."""
    yield from op.arrive()
    reduce(op.exposures(op.channel.where(op.seq), array.size, array.dtype), array)
    op.end()


def reduce_each(
    op: Operation, arrays: Sequence[np.ndarray], reduce: Callable, mark: int, done: list[int]
) -> Steps:
    """As ``reduce_small`` of all ``arrays``, which are staged one behind the other, where every
    member has marked its header so; else of the first alone. ``done`` gets how many it was."""
    yield from op.arrive()
    where = op.channel.where(op.seq)
    count = len(arrays) if all(sizes == mark for _, _, sizes in where) else 1
    flat = np.concatenate(arrays[:count])
    reduce(op.exposures(where, flat.size, flat.dtype), flat)
    op.end()
    start = 0
    for array in arrays[:count]:
        array[...] = flat[start : start + array.size]
        start += array.size
    done.append(count)


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

    def __init__(
        self, op: Operation, where: Sequence[tuple], array: np.ndarray, reduce: Callable
    ) -> None:
        dtype = array.dtype
        op.staging.look(where, op.seq)
        self.me, self.reduce, self.near = op.me, reduce, op.staging.near
        self.rings = {i for i, (_, mode, _) in enumerate(where) if mode == RING}
        self.views = op.exposures(where, array.size, dtype)
        self.own = self.views[op.me] if op.mode == STAGED else array
        self.far = [i for i, (_, mode, _) in enumerate(where) if mode == REMOTE]
        step = CHUNK_BYTES // dtype.itemsize if self.rings else max(array.size, 1)
        self.slices = _Slices(array.size, step, len(where))
        self.block = slice_bytes(len(where)) // dtype.itemsize

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
        """Reduce this member's slice of a chunk from all exposures, and into those that are near.
        A slice is taken block by block, so that what is read of it stays in the cache."""
        _, a, b, _ = self.slices(chunk, self.me)
        for lo in range(a, b, self.block):
            hi = min(lo + self.block, b)
            own, parts, targets = self.own[lo:hi], [], []
            for i, view in enumerate(self.views):
                d = self._shift(i, chunk)
                part = own if i == self.me else view[lo - d : hi - d]
                if type(part) is Far:
                    part = self.near(i, part, own.dtype)
                elif i != self.me:
                    targets.append(part)
                parts.append(part)
            self.reduce(parts, own)
            for target in targets:
                target[...] = own

    def fetch(self) -> None:
        """Copy the slices that others have reduced, which nobody writes into memory that is not
        shared: its owner may have broken off meanwhile."""
        for i, view in enumerate(self.views):
            _, a, b, _ = self.slices(0, i)
            if i != self.me and a < b:
                put(view[a:b], self.own[a:b])


def reduce_large(op: Operation, array: np.ndarray, reduce: Callable) -> Steps:
    """Each member reduces its slice of every chunk and writes it into all exposures in shared
    memory; the other members fetch it when all are done.

    With rings in play, three stages follow each other chunk by chunk: copy in, reduce, copy out.
    A ring slot is free for chunk c when chunk c-4 was copied out, two rounds earlier.
    """
    yield from op.arrive()
    where = op.where()
    if all(mode == RING for _, mode, _ in where):
        yield from _reduce_in_rings(op, [at for at, _, _ in where], array, reduce)
        return
    work = _Reduction(op, where, array, reduce)
    channel, seq, mine = op.channel, op.seq, op.mode == RING
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
    if op.mode == REMOTE:
        work.fetch()
    if work.own is not array:
        array[...] = work.own
    op.finish()
    if work.far and op.mode != STAGED:
        yield channel.need(FINISHED, seq)  # some have read the result in this member's array


def _reduce_in_rings(op: Operation, offsets: list[int], array: np.ndarray, reduce: Any) -> Steps:
    """All members wait, and their data is in rings: it goes through them in rounds. Who has arrived
    has finished what came before, so that all rings are free."""
    channel, seq, spins = op.channel, op.seq, op.staging.spins
    words, ended, start = op.hub.words, channel.filled_idxs, channel.value(op.seq)

    native = op.staging.native(offsets, array.dtype) if reduce.scale is not None else None
    if native is not None:
        for rounds in native(array, start, reduce.scale, lambda n: channel.ring(FILLED, seq, n)):
            yield channel.need(FILLED, seq, rounds)
    else:
        rings = op.staging.rings(offsets, array.dtype)
        publish = functools.partial(channel.publish, FILLED, seq)
        for rounds in reduce_in_rounds(rings, array, reduce, publish):
            if not _soon(words, ended, start + rounds, spins):
                yield channel.need(FILLED, seq, rounds)
    op.staging.ring_seq = seq
    op.finish()


def _soon(words: memoryview, idxs: Sequence[int], value: int, spins: range) -> bool:
    """Whether all have reached ``value``, now or a moment later."""
    for i in idxs:
        if words[i] < value:
            for _ in spins:
                if words[i] >= value:
                    break
            else:
                return False
    return True


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
        if longest * dtype.itemsize > SMALL_BYTES:
            op.staging.look(where, op.seq)
        rings = [i for i, (_, mode, _) in enumerate(where) if mode == RING]
        self.staged = all(mode in (STAGED, NONE) for _, mode, _ in where)
        self.lens, self.starts, self.rings = lens, starts, rings
        self.awaited = [i for i in rings if i != op.me and lens[i]]
        self.of_others = any(n for i, n in enumerate(lens) if i != op.me)
        self.per_chunk = CHUNK_BYTES // dtype.itemsize
        self.piece = self.per_chunk // len(where) if spread else self.per_chunk
        self.step = self.piece if rings else max(longest, 1)
        self.total = -(-longest // self.step)
        self.base = op.me * self.piece if spread else 0  # of our piece in a peer's ring slot
        self.views = [
            op.exposure(i, w, start + n, dtype) if n else None
            for i, (w, start, n) in enumerate(zip(where, starts, lens, strict=True))
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
    if sources.of_others and not sources.staged:
        op.finish()
    else:
        op.end()
    if mine:
        op.staging.ring_seq = seq
    if op.mode in (DIRECT, REMOTE):
        yield channel.need(FINISHED, seq)


class Task(Work):
    """An operation in a transport's queue: a generator of the needs it waits for, in turn."""

    __slots__ = ("need", "outcome", "owner", "steps")

    def __init__(self, owner: Any, steps: Steps, result: Any) -> None:
        super().__init__()
        self.owner, self.steps = owner, cast("GeneratorType[Need, None, None]", steps)
        self.need: Need | None = None
        self.outcome: tuple = (result, None)

    def advance(self) -> bool:
        """Go on until a need is not met; True when nothing is left to do."""
        if self.steps.gi_running:
            return False  # it has found a peer's memory gone, and waits to hear why
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
            put(part, outs[i][lo : lo + part.size])

    return sink


def reduce_to(out: np.ndarray, reduce: Callable, staging: Staging) -> Any:
    """A sink that reduces what comes into ``out``, and what is far slice by slice."""
    step = slice_bytes(len(staging.channel.ranks)) // out.dtype.itemsize

    def near(member: int, part: Any, at: int) -> np.ndarray:
        part = part[at : at + step]
        return staging.near(member, part, out.dtype) if type(part) is Far else part

    def sink(lo: int, parts: Parts) -> None:
        size = parts[0][1].size if parts else 0
        if not any(type(part) is Far for _, part in parts):
            if parts:
                reduce([part for _, part in parts], out[lo : lo + size])
            return
        for at in range(0, size, step):
            pieces = [near(i, part, at) for i, part in parts]
            reduce(pieces, out[lo + at : lo + at + pieces[0].size])

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
