"""Shards that are the full weights: on one host they lie side by side in memory that all ranks see.

Every rank's rows of a parameter are its part of one array, so the full weights exist once, without
a copy and without a gather: what is left is taking turns (``Turns``): nobody writes its shard, as
an optimizer does, before all ranks are through with the weights. A program's reads and writes of a
shard go through its ``DistArray``, which waits where it must.

Knows arrays and members; when a turn begins and ends is the root's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends.device.memory import HOST, bytes_of, lend
from ....comm.group.blocks import Blocks
from ....core.effects import aside
from .dtensor_params import full_array
from .lanes import Line
from .layout import ALIGN, BlockLayout, own_part
from .members import Member, Sharding
from .places import Places
from .weights import Weights, read_only


class SharedWeights(Weights):
    """The parameters of one unit that have one type, cut along dimension 0 and used in it."""

    def __init__(
        self,
        members: list[Member],
        layout: BlockLayout,
        sharding: Sharding,
        kind: np.dtype,
        blocks: Blocks,
    ) -> None:
        super().__init__(members, layout, sharding, (kind, kind), blocks, Places(HOST, HOST))
        self.shared: Any = None
        self.fulls: list[np.ndarray] = []
        self._parts: list[tuple] = []  # what ``lend`` wants for each shard
        self._lent: list[Any] = []  # dead when nobody has the shard
        self.placed = False  # whether the full weights have their memory, which they keep

    def _allocate(self) -> None:
        offsets, end = [], 0
        for m in self.members:
            offsets.append(end)
            end += -(-m.layout.numel * self.kind.itemsize // ALIGN) * ALIGN
        shared = self.blocks.share(max(end, ALIGN))
        self.shared, rank = shared, self.sharding.rank
        self._parts, self.fulls, self.placed = [], [], False
        for m, at in zip(self.members, offsets, strict=True):
            flat = shared.bytes[at : at + m.layout.numel * self.kind.itemsize].view(self.kind)
            full = flat.reshape(m.layout.shape)
            part = own_part(full, m.layout, rank)
            self._parts.append((bytes_of(part), part.dtype, part.shape))
            self.fulls.append(read_only(full))
        pairs = [lend(*part) for part in self._parts]
        self.shards, self._lent = [array for array, _ in pairs], [ref for _, ref in pairs]

    def put_away(self, regain: Callable[[], None]) -> list[Any]:
        """Take the shards from the arrays of their parameters, which these are; who needs one
        before it is given back calls ``regain``."""
        self.shards = []
        arrays = [m.sharded.array for m in self.members]
        for array in arrays:
            array.away = regain
            del array.local
        return arrays

    @property
    def is_aliased(self) -> bool:
        """Whether a program looks into shards that were put away, to which it could write without
        asking for them."""
        return any(ref() is not None for ref in self._lent)

    def give_back(self, arrays: list[Any]) -> None:
        """Let ``arrays`` have their shards."""
        for i, array in enumerate(arrays):
            array.away, array.local = None, self._shard(i)
            self.shards.append(array.local)

    def _shard(self, i: int) -> np.ndarray:
        whole = self._lent[i]()
        if whole is not None:
            return whole.reshape(self._parts[i][-1])
        shard, self._lent[i] = lend(*self._parts[i])
        return shard

    def start(self, async_op: bool, line: Line) -> None:
        """The weights are there already; a turn's beginning has looked at the shards."""
        if not self.fulls:
            self.refresh()

    def finish(self) -> None:
        if self.placed:
            return
        self.placed = True
        for m, full in zip(self.members, self.fulls, strict=True):
            m.full.array = full_array(m, full)

    def drop(self) -> None:
        """They stay: it is the shards that they consist of."""


class Turns:
    """The turns of a root's shared weights, one count per group."""

    def __init__(self, shared: list[SharedWeights]) -> None:
        self._shared = shared
        self._counts: list[Any] = []
        self._held: list[list] | None = None  # how each one's shards lie, while they are away
        self._readers = 0

    def begin(self) -> None:
        """This rank reads full weights from here on; all shards are valid."""
        if self._readers:
            self._readers += 1
            return
        self.regain(wait=False)
        for w in self._shared:
            w.refresh()
        self._readers = 1
        if not self._counts:
            groups = {
                id(w.sharding.group): w.shared
                for w in reversed(self._shared)
                if w.sharding.world > 1
            }
            self._counts = list(groups.values())
        for shared in self._counts:
            shared.open()

    def end(self, failed: bool = False) -> None:
        """This rank reads none any more, for now. ``failed``: since it broke off, so that the
        others may not come to their ends."""
        self._readers -= 1
        if self._readers == 0:
            self.close(failed=failed)

    def close(self, through: bool = False, failed: bool = False) -> None:
        """Tell the others, and wait for them when a program next asks for a shard. ``through``:
        they are known to be through with the weights (all have reduced their gradients)."""
        for shared in self._counts:
            shared.close()
        if self._held is not None or through or not self._counts:
            return
        self._held = [w.put_away(self.regain) for w in self._shared]
        if not failed and any(w.is_aliased for w in self._shared):
            self.regain()

    def regain(self, wait: bool = True) -> None:
        """Give the shards their memory back; with ``wait`` not before all ranks are through."""
        if self._held is not None:
            aside(self._give_back, self._held, wait)

    def _give_back(self, held: list[list], wait: bool) -> None:
        if wait:
            for shared in self._counts:
                shared.wait_closed()
        self._held = None
        for w, arrays in zip(self._shared, held, strict=True):
            w.give_back(arrays)

    def reset(self, reading: bool, through: bool) -> None:
        """A step was broken off, in backward where it was still ``reading``."""
        reading = reading or self._readers > 0
        self._readers = 0
        if reading:
            self.close(through, failed=True)


def is_plain(member: Member, kind: np.dtype, used: np.dtype) -> bool:
    """Whether a shard of ``member`` can be a part of its full weight."""
    return kind == used and member.dim == 0
