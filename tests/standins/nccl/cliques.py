"""What the stand-in for NCCL does: ranks that met by an id, and their operations, carried out.

Each rank's calls of one group are a *launch*: pending work on a stream of the device double. It
can end when all that came before it on its stream has ended, and the same is true of the launches
of its peers which it meets. Then the bytes move. Knows addresses, counts and launches; not how
calls are named.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FIFO_BYTES = 1 << 16  # of a pair: what was sent and not yet received, as in NCCL's buffers


class Misuse(AssertionError):
    """What NCCL would answer by a hang, by wrong numbers or by a crash."""


@dataclass
class Op:
    """One call. ``send``, ``recv``: views of hidden memory (uint8)."""

    verb: str
    send: np.ndarray | None
    recv: np.ndarray | None
    dtype: Any = None
    reduce: Any = None
    root: int = -1
    peer: int = -1
    launch: Launch | None = None
    result: np.ndarray | None = None

    def what(self) -> tuple:
        """What all ranks must give alike: NCCL's arguments."""
        size = (self.send if self.send is not None else self.recv).nbytes  # type: ignore[union-attr]
        if self.verb in ("broadcast", "reduce") and self.recv is not None:
            size = self.recv.nbytes
        return self.verb, size, str(self.dtype), str(self.reduce), self.root


class Launch:
    """The calls of one group of one rank."""

    def __init__(self, clique: Clique, rank: int, ops: list[Op], before: list[Any]) -> None:
        self.clique, self.rank, self.ops, self.before = clique, rank, ops, before
        self.done = False
        self.kept: list[Any] = []  # memory
        for op in ops:
            op.launch = self

    def running(self, known: dict | None = None) -> bool:
        """Whether all that lies before it on its stream can end."""
        known = {} if known is None else known
        key = (id(self), "runs")
        if key not in known:
            known[key] = False  # who asks for itself waits for itself
            known[key] = self.done or all(p.can_end(known) for p in self.before)
        return known[key]

    def can_end(self, known: dict | None = None) -> bool:
        with self.clique.lock:
            return self._can_end(known)

    def _can_end(self, known: dict | None) -> bool:
        if self.done or self.clique.ended(self.rank):
            return True
        known = {} if known is None else known
        key = (id(self), "ends")
        if key not in known:
            known[key] = False
            known[key] = (
                not self.clique.hangs
                and self.running(known)
                and all(self.clique.matched(op, known) for op in self.ops)
            )
        return known[key]

    def finish_before(self) -> None:
        """Carry out what lies before it on its stream."""
        for launch in self.before:
            launch.finish_before()
            launch.end()

    def end(self) -> None:
        """Carry it out: what all ranks that it meets get is known then."""
        if self.done:
            return
        self.done = True
        kept, self.kept = self.kept, []  # given back at the end of this, however it ends
        if self.clique.ended(self.rank):
            return
        for op in self.ops:
            self.clique.carry_out(op)
        for op in self.ops:
            if op.result is not None and op.recv is not None:
                op.recv[...] = op.result
        del kept


@dataclass
class Clique:
    """The ranks of one communicator. ``hangs``: what it is given never ends."""

    size: int
    lock: Any
    came: dict[int, Any] = field(default_factory=dict)
    at: set[int] = field(default_factory=set)  # devices of ranks of one host
    aborted: set[int] = field(default_factory=set)
    finalized: set[int] = field(default_factory=set)
    errors: dict[int, int] = field(default_factory=dict)  # rank -> a code, until it is aborted
    hangs: bool = False
    calls: dict[int, dict[int, Op]] = field(default_factory=lambda: defaultdict(dict))
    count: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sends: dict[tuple, deque] = field(default_factory=lambda: defaultdict(deque))
    recvs: dict[tuple, deque] = field(default_factory=lambda: defaultdict(deque))
    places: dict[int, tuple] = field(default_factory=dict)  # by id of an op
    splits: dict[int, dict[int, tuple]] = field(default_factory=lambda: defaultdict(dict))
    split_count: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    children: dict[tuple, Clique] = field(default_factory=dict)

    def all_here(self) -> bool:
        return len(self.came) == self.size

    def ended(self, rank: int) -> bool:
        return rank in self.aborted

    def issue(self, rank: int, op: Op) -> None:
        if op.verb in ("send", "recv"):
            pair = (rank, op.peer) if op.verb == "send" else (op.peer, rank)
            row = (self.sends if op.verb == "send" else self.recvs)[pair]
            row.append(op)
            self.places[id(op)] = (pair, len(row) - 1)
            return
        number = self.count[rank]
        self.count[rank] += 1
        self.calls[number][rank] = op
        self.places[id(op)] = (None, number)

    def _peer(self, op: Op) -> Op | None:
        pair, number = self.places[id(op)]
        row = (self.recvs if op.verb == "send" else self.sends)[pair]
        return row[number] if number < len(row) else None

    def matched(self, op: Op, known: dict) -> bool:
        """Whether all that ``op`` meets is on its way on a device."""
        if op.verb in ("send", "recv"):
            if op.verb == "send" and op.send.nbytes <= FIFO_BYTES:  # type: ignore[union-attr]
                return True
            other = self._peer(op)
            if other is None or other.launch is None:
                return False
            return other.launch is op.launch or other.launch.running(known)
        there = self.calls[self.places[id(op)][1]]
        return len(there) == self.size and all(
            o.launch is not None and o.launch.running(known) for o in there.values()
        )

    def carry_out(self, op: Op) -> None:
        if op.verb == "send":
            if op.result is None:
                op.result = op.send.copy()  # type: ignore[union-attr]
            return
        if op.verb == "recv":
            other = self._peer(op)
            assert other is not None
            other.launch.finish_before()  # type: ignore[union-attr]
            data = other.send if other.result is None else other.result
            if data.nbytes != op.recv.nbytes:  # type: ignore[union-attr]
                raise Misuse(f"recv of {op.recv.nbytes} bytes meets send of {data.nbytes}")  # type: ignore[union-attr]
            op.result = data.copy()
            return
        if op.result is not None or (op.recv is None and op.verb != "reduce"):
            return
        there = self.calls[self.places[id(op)][1]]
        if any(o.result is not None for o in there.values()):
            return
        kinds = {o.what() for o in there.values()}
        if len(kinds) > 1:
            raise Misuse(f"ranks give NCCL different calls: {sorted(kinds)}")
        for o in there.values():
            o.launch.finish_before()  # type: ignore[union-attr]
        collective(op.verb, [there[r] for r in range(self.size)])


def collective(verb: str, ops: Sequence[Op]) -> None:
    """Give each of ``ops``, by rank, its result."""
    if verb == "broadcast":
        data = ops[ops[0].root].send.copy()  # type: ignore[union-attr]
        for op in ops:
            op.result = data
    elif verb == "all_gather":
        data = np.concatenate([op.send for op in ops])  # type: ignore[misc]
        for op in ops:
            op.result = data
    elif verb == "reduce":
        total = reduced(ops)
        for r, op in enumerate(ops):
            op.result = total if r == op.root else np.empty(0, np.uint8)
    elif verb == "all_reduce":
        total = reduced(ops)
        for op in ops:
            op.result = total
    elif verb == "reduce_scatter":
        rows = reduced(ops).reshape(len(ops), -1)
        for row, op in zip(rows, ops, strict=True):
            op.result = row
    else:
        raise Misuse(f"the stand-in has no {verb}")


_FOLD = {"SUM": np.add, "AVG": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


def reduced(ops: Sequence[Op]) -> np.ndarray:
    """As NCCL's ring: from rank to rank, narrow numbers in float32."""
    dtype = ops[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize < 4 and dtype.kind in "fV" else dtype
    name = getattr(ops[0].reduce, "name", "SUM")
    factor = getattr(ops[0].reduce, "factor", None)
    parts = [op.send.view(dtype).astype(wide) for op in ops]  # type: ignore[union-attr]
    if factor is not None:
        parts = [p * wide.type(factor) for p in parts]
    with np.errstate(all="ignore"):
        total = parts[0]
        for p in parts[1:]:
            total = _FOLD[name](total, p)
        if name == "AVG":
            total = total / wide.type(len(ops)) if wide.kind == "f" else total // len(ops)
        return np.ascontiguousarray(total.astype(dtype)).view(np.uint8)
