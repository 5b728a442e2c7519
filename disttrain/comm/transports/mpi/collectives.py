"""The collectives over MPI, as generators of what each one waits for.

Between ranks that have compared their headers (``arrival``). Ranks send each other their parts
directly, and every rank reduces its own slice from all ranks' parts by the tree (``reduce_ops``):
so results have the bits of shared memory's, narrow floats are summed in float32, and nothing is
moved twice. On one host that is as fast as MPI's own reductions or faster. Between hosts, where a
host's ranks should share what crosses the wire, the library's own algorithms are used where they
compute the same: see ``native``.

Knows arrays and MPI; no headers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...calls.reduce_ops import ReduceOp
from .arrival import Entered, Group, Requests, Steps

_LINE = 64  # slices begin at multiples of so many elements
_LOOKS = 50
_KEPT_BYTES = 64 << 20
_NATIVE = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX",
           "BAND": "BAND", "BOR": "BOR", "BXOR": "BXOR"}  # fmt: skip


class Scratch:
    """Memory that parts of other ranks come in. It is used again: fresh memory costs as much as
    receiving. One block is kept for operations one after the other; more in flight get their
    own."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    @contextmanager
    def rows(self, like: np.ndarray, num_rows: int) -> Iterator[np.ndarray]:
        """Rows of the type and size of ``like``."""
        nbytes = num_rows * like.nbytes
        block, self._kept = self._kept, np.empty(0, np.uint8)
        if block.nbytes < nbytes:
            block = np.empty(nbytes, np.uint8)
        yield block[:nbytes].view(like.dtype).reshape(num_rows, like.size)
        if _KEPT_BYTES >= block.nbytes > self._kept.nbytes:
            self._kept = block


class Moves:
    """The transfers of one group. Its ranks start them in one order."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size = group, group.rank, group.size
        self._scratch = Scratch()
        self._peers = [(group.rank + i) % group.size for i in range(1, group.size)]

    # -- parts --------------------------------------------------------------------------------

    def exchange(
        self, at: Entered, outs: Sequence[np.ndarray], ins: Sequence[np.ndarray], phase: int = 0
    ) -> Requests:
        """Start sending ``ins[r]`` to rank r, and receiving ``outs[r]`` from it, where they are
        not empty; both sides know the sizes. Not this rank's own. ``phase``: 0, then 1."""
        tag = at.data(phase)
        comm, byte, requests = self.group.comm, self.group.MPI.BYTE, []
        for r in reversed(self._peers):
            into = outs[r]
            if into.nbytes:
                requests.append(comm.Irecv([into.view(np.uint8), byte], r, tag))
        for r in self._peers:
            data = ins[r]
            if data.nbytes:
                requests.append(comm.Isend([data.view(np.uint8), byte], r, tag))
        return Requests(self.group, at, requests, _LOOKS)

    # -- collectives --------------------------------------------------------------------------

    def broadcast(self, at: Entered, array: np.ndarray, root: int) -> Steps:
        if array.nbytes and self.size > 1:
            request = self.group.comm.Ibcast([array.view(np.uint8), self.group.MPI.BYTE], root)
            yield Requests(self.group, at, [request], _LOOKS)

    def all_gather(self, at: Entered, outs: Sequence[np.ndarray], array: np.ndarray) -> Steps:
        mine = outs[self.rank]
        if mine.nbytes and not _same_memory(mine, array):
            mine[...] = array
        yield self.exchange(at, outs, [array] * self.size)

    def all_to_all(
        self, at: Entered, outs: Sequence[np.ndarray], ins: Sequence[np.ndarray]
    ) -> Steps:
        outs[self.rank][...] = ins[self.rank]
        yield self.exchange(at, outs, ins)

    def reduce_scatter(
        self, at: Entered, out: np.ndarray, ins: Sequence[np.ndarray], reduce: Callable
    ) -> Steps:
        own = ins[self.rank]
        with self._scratch.rows(own, self.size) as rows:
            parts = [own if r == self.rank else rows[r] for r in range(self.size)]
            yield self.exchange(at, parts, ins)
            if own.size:
                reduce(parts, out)

    def all_reduce(self, at: Entered, array: np.ndarray, reduce: Callable) -> Steps:
        """Every rank reduces its slice of all ranks' arrays, then all gather the slices."""
        ends = [_cut(array.size, r, self.size) for r in range(self.size + 1)]
        pieces = [array[a:b] for a, b in itertools.pairwise(ends)]
        own = pieces[self.rank]
        with self._scratch.rows(own, self.size) as rows:
            parts = [own if r == self.rank else rows[r] for r in range(self.size)]
            yield self.exchange(at, parts, pieces)
            if own.size:
                reduce(parts, own)
        yield self.exchange(at, pieces, [own] * self.size, 1)

    def all_reduce_native(
        self, at: Entered, array: np.ndarray, op: ReduceOp, types: tuple
    ) -> Steps:
        """MPI's own, in the order that it chooses."""
        if array.size:
            MPI = self.group.MPI
            request = self.group.comm.Iallreduce(MPI.IN_PLACE, [array, types[0]], types[1])
            yield Requests(self.group, at, [request], _LOOKS)
            if op.name == "AVG":
                np.divide(array, self.size, out=array)

    def table(self, at: Entered, row: Sequence[int]) -> Steps:
        """Every rank's row of numbers; the result."""
        table = np.empty((self.size, len(row)), np.int64)
        mine = np.array(row, np.int64)
        int64 = self.group.MPI.INT64_T
        yield Requests(self.group, at, [self.group.comm.Iallgather([mine, int64], [table, int64])])
        return table


def native(MPI: Any, op: ReduceOp, dtype: np.dtype) -> Any:
    """(MPI's type, MPI's operator) where its reduction means what ours does; None for narrow
    floats, which are summed in float32 and rounded once, for bool, for scaled sums, and for the
    least and greatest of floats, where MPI leaves open what becomes of nan."""
    name = _NATIVE.get(op.name)
    plain = dtype.kind in "iu" or dtype in (np.float32, np.float64, np.complex64, np.complex128)
    if name is None or not plain or (dtype.kind in "fc" and name in ("MIN", "MAX")):
        return None
    return MPI._typedict[dtype.char], getattr(MPI, name)


def _cut(n: int, rank: int, size: int) -> int:
    """Where the slice of ``rank`` begins."""
    step = -(-n // size)
    step = -(-step // _LINE) * _LINE
    return min(n, rank * step)


def _same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    return a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
