"""A unit's gradients: deposited by backward, reduced to shards, added to ``.grad``.

Every leaf stores its gradient straight into the ranks' blocks in memory that peers can read, so a
full gradient does not live longer than the operation that made it. Which parameters have received
one anywhere travels with the sums, so that those that have not keep ``.grad`` as it is.
Knows arrays and members; when to reduce is the unit's affair.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends.device.memory import Mark, bytes_of, lend
from ....comm.calls.reduce_ops import ReduceOp, premul_sum
from ....comm.group.blocks import Blocks
from ....context import thread
from ....core import wrap
from ....core.types import dtypes
from ....core.types.device import device
from .lanes import Line
from .layout import (
    BlockLayout,
    chunks_of,
    place,
    plan_block,
    shard_span,
    whole_chunks,
)
from .members import Choices, Member, Sharding
from .params import receive_gradient
from .places import Places
from .pool import Pool

_WIDE = 4  # bytes: narrower types are multiplied in float32


class Gradients:
    """The gradients of the trained members of a unit that are reduced in one type."""

    def __init__(
        self,
        members: list[Member],
        sharding: Sharding,
        kind: np.dtype,
        choices: Choices,
        blocks: Blocks,
        pool: Pool,
        places: Places,
        line: Line,
    ) -> None:
        self.members, self.sharding, self.kind = members, sharding, kind
        self.choices, self.blocks, self.pool = choices, blocks, pool
        self.places, self.line = places, line
        shapes = [(m.name, m.layout.shape, m.layout.dim) for m in members]
        self.layout: BlockLayout = plan_block(shapes, sharding.world, kind.itemsize)
        self.buffer: Any = None
        self.has = [False] * len(members)
        self._targets: dict[int, tuple[Any, list[tuple]]] = {}
        self._own: Any = None  # the last reduced block's memory, used again when nobody has it
        self._lent: Any = None  # dead then
        self._spans: list[tuple] | None = None  # where this rank's shards lie in its block
        self._flying: tuple | None = None
        self.partial: Any = None  # summed over shards, not yet over replicas

    after = 1.0  # the factor of what is being reduced

    def deposit(self, i: int, array: Any) -> None:
        """Write (or add) member ``i``'s full gradient, a raw array."""
        if self.buffer is None:
            self.buffer = self._room()
        if self.choices.scales is not None:
            array = self._scaled(array)
        known = self._targets.get(id(self.buffer))
        targets = self._make_targets(self.buffer) if known is None else known[1]
        target, shape = targets[i]
        if shape is None:
            place(array, target, self.layout.params[i], self.has[i])
        elif self.has[i]:
            np.add(target, array.reshape(shape), out=target, casting="unsafe")
        else:
            target[...] = array.reshape(shape)
        self.has[i] = True

    def _scaled(self, array: Any) -> Any:
        """``array`` as it counts in a weighted mean; not at all (nan neither) with weight 0."""
        factor = self.choices.scales.deposited
        kind = self.kind if self.kind.itemsize >= _WIDE else np.dtype(np.float32)
        if not factor:
            return self.places.use.zeros(array.shape, kind)
        if factor == 1.0:
            return array
        return np.multiply(array.astype(kind, copy=False), kind.type(factor))

    def _weigh(self, blocks: Any) -> None:
        """Before all that was deposited is reduced."""
        scales = self.choices.scales
        self.after = 1.0 if scales is None else scales.after
        if scales is not None and scales.before != 1.0:
            parts = blocks[:, : self.end]
            np.multiply(parts, self.kind.type(scales.before), out=parts)

    @property
    def end(self) -> int:
        """Where the gradients end in a block."""
        return self.layout.numel

    def size(self) -> int:
        """Elements of all ranks' blocks."""
        return self.layout.flagged * self.sharding.world

    def _room(self) -> Any:
        return self.pool.take(self.places.use, self.sharding.group, self.size(), self.kind)

    def _make_targets(self, buffer: Any) -> list[tuple]:
        size = self.layout.flagged
        targets = [(chunks_of(buffer, p, size), whole_chunks(p)) for p in self.layout.params]
        if len(self._targets) > 3:  # the pool has got other memory since
            self._targets.clear()
        self._targets[id(buffer)] = buffer, targets  # which is kept, so that its id is its own
        return targets

    def launch(self) -> None:
        """Begin to reduce what was deposited; members without a gradient count as zeros."""
        if self.buffer is None:
            self.buffer = self._room()
        buffer, self.buffer = self.buffer, None
        found = self._targets.get(id(buffer))
        targets = self._make_targets(buffer) if found is None else found[1]
        for i, has in enumerate(self.has):
            if not has:
                targets[i][0].fill(0)
        blocks = buffer.reshape(self.sharding.world, -1)
        self._weigh(blocks)
        known = self._flag(blocks, self.layout.numel)
        out = self._out()
        self._flying = (buffer, out, self._reduce(buffer, out), self._mark(), known)

    def _flag(self, blocks: Any, at: int) -> tuple[list[bool], bool]:
        """Say behind the gradients, from ``at`` on, which members have received one. Those, and
        whether no rank can know better: all that are trained have."""
        has, self.has = self.has, [False] * len(self.members)
        blocks[:, at : at + len(has)] = 1
        for i, flag in enumerate(has):
            if not flag:
                blocks[:, at + i] = 0
        whole = all(
            h or not m.sharded.requires_grad for h, m in zip(has, self.members, strict=True)
        )
        return has, whole

    def _reduce(self, buffer: Any, out: Any) -> Any:
        """Begin to reduce. On a device a line beside the program's does it."""
        if self.choices.reduce_with is not None:
            return self._by_program(buffer, out)
        if self.places.use.on_host:
            return self.blocks.reduce(out, buffer, self._op(), async_op=True)
        self.line.reduce.follow()
        with self.line.reduce:
            return self.blocks.reduce(out, buffer, self._op())

    def _mark(self) -> Mark:
        return self.line.reduce.mark()

    def _by_program(self, buffer: np.ndarray, out: np.ndarray) -> Any:
        """Let the program's own reduce-scatter do it."""
        comm, raw = self.choices.reduce_with, self.places.use.raw
        place = {"dtype": dtypes.of(self.kind), "device": device(str(self.places.use))}
        given = comm.allocate((buffer.size,), **place)
        result = comm.allocate((out.size,), **place)
        raw(given.array)[...] = buffer
        work = comm(result, given, self.sharding.group, self._op(), True)
        if work is not None:
            work.wait()
        out[...] = raw(result.array)
        return None

    def _op(self) -> ReduceOp:
        factor = self.choices.divide_factor
        if factor is None and not self.choices.force_sum:
            return ReduceOp.AVG
        return premul_sum(1.0 / (factor or self.sharding.total))

    def _out(self) -> Any:
        """The reduced block: last time's memory where no gradient lies in it any more."""
        if not self.places.use.on_host:
            return self.places.use.empty(self.layout.flagged, self.kind)
        if self._own is None or self._lent() is not None:
            self._own = bytes_of(np.empty(self.layout.flagged, self.kind))
        out, self._lent = lend(self._own, self.kind, (self.layout.flagged,))
        return out

    def settle(self) -> None:
        """Wait for the reduction, and give the memory of the full gradients back."""
        if self._flying is None or self._flying[0] is None:
            return
        buffer, out, work, mark, known = self._flying
        if work is not None:
            work.wait()
        mark.wait()
        self._flying = None, out, None, mark, known
        self.pool.give(buffer)

    def land(self) -> None:
        """Wait for the reduction, and add the shards of gradients to ``.grad``."""
        if self._flying is None:
            return
        self.settle()
        _, out, _, _, known = self._flying
        self._flying = None
        if self.sharding.replicas is not None and not self._over_replicas(out):
            return
        if self.after != 1.0:
            np.multiply(out[: self.end], self.kind.type(self.after), out=out[: self.end])
        if self.choices.all_reduce_hook is not None:
            held = self.places.use.held(out[: self.layout.numel])
            self.choices.all_reduce_hook(wrap(held))
        self._store(out, known)

    def _over_replicas(self, out: Any) -> bool:
        """Sum over the replicas; False where that is to be done by a later backward."""
        if self.partial is not None:
            np.add(out, self.partial, out=out)
            self.partial = None
        if not self.choices.all_reduce:
            self.partial = out.copy()
            return False
        plain = self.choices.divide_factor is None and not self.choices.force_sum
        self.sharding.replicas.all_reduce(out, ReduceOp.AVG if plain else ReduceOp.SUM)  # type: ignore[union-attr]
        return True

    def _used(self, out: Any, at: int, known: tuple[list[bool], bool]) -> list:
        """Which members have received a gradient on some rank. Where that is ``known`` here, it is
        not asked for: on a device that would be to wait."""
        n, (has, whole) = len(self.members), known
        return has if whole else self.places.use.numbers(out[at : at + n]).tolist()

    def _home(self, out: Any) -> Any:
        """``out`` where the shards lie."""
        places = self.places
        if not places.apart:
            return out
        host = places.use.pinned(out.shape, out.dtype)
        places.use.copy_to(host, out)
        places.use.settle()
        return host

    def _store(self, out: Any, known: tuple[list[bool], bool]) -> None:
        rank, first = self.sharding.rank, self.layout.numel
        used = self._used(out, first, known)
        out, held = self._home(out), self.places.home.held
        if self._spans is None:
            self._spans = [shard_span(p, rank) for p in self.layout.params]
        if thread.walk is not None:
            self._tell(thread.walk, used, known[0])
        for (lo, hi, shape), member, flag in zip(self._spans, self.members, used, strict=True):
            if flag:
                shard = out[lo:hi].reshape(shape)
                kind = member.kind
                shard = shard if shard.dtype == kind else shard.astype(kind)
                receive_gradient(member.sharded, held(shard))

    def _tell(self, walk: Any, used: list, has: list[bool]) -> None:
        """Which parameters get a gradient in this backward, and which have one of this rank."""
        flags = zip(self.members, used, has, strict=True)
        walk.gave([(m.sharded, bool(some), own) for m, some, own in flags if m.sharded._node])

    def discard(self) -> None:
        """Forget everything that has not reached ``.grad``. What is under way has its memory until
        it ends; it is not waited for, since the other ranks may not have come so far."""
        if self._flying is not None:
            self._flying[3].wait()  # by the device, where it is one
        self._flying = None
        if self.buffer is not None:
            self.pool.give(self.buffer)
            self.buffer = None
        self.has = [False] * len(self.members)
        self.partial = None
