"""Where a unit's shards lie and how its full weights come about.

``GatheredWeights``: shards in this rank's own memory, one flat block; the full weights are gathered
by the group into memory of this rank and dropped afterwards. It needs nothing of the transport but
``all_gather``. Knows arrays and members; when to gather is the unit's affair.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np

from ....backends.device.memory import common, memory_of
from ....backends.null import NullArray
from ....comm.group.blocks import Blocks
from ....core.types import dtypes
from ....core.types.device import device
from ....errors import ConfigError
from .dtensor_params import full_array
from .lanes import Line
from .layout import BlockLayout, assemble, chunks_of, own_part, shard_of
from .members import Member, Sharding
from .params import local_array, put_local
from .places import Places


def read_only(full: object) -> Any:
    """``full`` as it cannot be written to, nor made so that it can; on a device as it is."""
    if not isinstance(full, np.ndarray):
        return full
    seen = full.reshape(-1).view(np.uint8).data.toreadonly()
    return np.asarray(seen).view(full.dtype).reshape(full.shape)


def in_use(flat: Any, places: Places, kind: np.dtype) -> Any:
    """Shards where they are used, in the type in which they are; ``flat`` itself where that is so
    already."""
    if places.apart:
        own = places.use.empty(flat.shape, flat.dtype)
        places.use.copy_to(own, flat)
        flat = own
    return flat if flat.dtype == kind else flat.astype(kind)


class Converted(Exception):
    """A program has given a parameter another type, or device, since its unit was made."""


def on_disk(folder: str, numel: int, kind: np.dtype) -> np.ndarray:
    """Zeros in a file in ``folder`` that nobody else can open, and that is gone with the array. A
    full disk raises ``OSError`` here."""
    nbytes = max(numel * kind.itemsize, 1)
    with tempfile.TemporaryFile(dir=folder, prefix="shards-") as file:
        os.posix_fallocate(file.fileno(), 0, nbytes)
        mapped = mmap.mmap(file.fileno(), nbytes)
    return np.frombuffer(mapped, kind, numel)


class Weights:
    """The parameters of one unit that have one type ``kind``, used in the type ``used``."""

    def __init__(
        self,
        members: list[Member],
        layout: BlockLayout,
        sharding: Sharding,
        kinds: tuple[np.dtype, np.dtype],
        blocks: Blocks,
        places: Places,
    ) -> None:
        self.members, self.layout, self.sharding = members, layout, sharding
        self.kind, self.used = kinds
        self.blocks, self.places = blocks, places
        self.shards: list[Any] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the full weights."""
        return sum([m.layout.numel for m in self.members]) * self.used.itemsize

    def take(self, arrays: list[Any]) -> list[Any]:
        """Cut the full ``arrays`` of the members, and give the arrays of this rank's shards."""
        rank = self.sharding.rank
        if any(a.__class__ is NullArray for a in arrays):
            self.shards = [NullArray(m.layout.local_shape(rank), self.kind) for m in self.members]
            return self.shards
        self._allocate()
        for array, shard, m in zip(arrays, self.shards, self.members, strict=True):
            self._write(shard, own_part(memory_of(array).raw(array), m.layout, rank))
        self._written()
        return self.shards

    def _write(self, shard: object, values: Any) -> None:
        """Write raw ``values``, wherever they lie, to a shard."""
        self.places.use.copy_to(self.places.home.raw(shard), values)

    def _written(self) -> None:
        if self.places.apart:
            self.places.use.settle()  # the host is to read them

    def _allocate(self) -> None:
        """Make memory for the shards."""
        raise NotImplementedError

    def refresh(self) -> bool:
        """Take up shards whose memory a program has replaced (``to_empty``, ``.data = ``); whether
        there were any."""
        for m, shard in zip(self.members, self.shards, strict=True):
            if local_array(m.sharded) is not shard or shard.__class__ is NullArray:
                self._take_up()
                return True
        return False

    def _take_up(self) -> None:
        arrays = [local_array(m.sharded) for m in self.members]
        now = common(arrays)
        if now not in (self.places.home, self.places.use):
            raise Converted(self.members[0].name)
        for array, m in zip(arrays, self.members, strict=True):
            self._check(array, m)
        if self.shards[0].__class__ is NullArray:
            self._allocate()
        for array, shard, m in zip(arrays, self.shards, self.members, strict=True):
            if array is not shard:
                self._write(shard, memory_of(array).raw(array))
                put_local(m.sharded, shard)
        self._written()

    def _check(self, array: Any, m: Member) -> None:
        if array.__class__ is NullArray:
            raise RuntimeError(
                f"fully_shard: parameter {m.name!r} is on the meta device, so it cannot be "
                "gathered; FSDP parameters should be materialized from meta device before "
                f"training: call module.to_empty(device='{self.places.home.kind}'), then its "
                "reset_parameters()"
            )
        needed = m.layout.local_shape(self.sharding.rank)
        if array.shape == needed and array.dtype != self.kind:
            raise Converted(m.name)
        if array.shape != needed:
            raise ConfigError(
                f"fully_shard: the shard of {m.name!r} is now {array.dtype}{list(array.shape)}; "
                f"needed is {self.kind}{list(needed)}: write to the one that was there"
            )

    def start(self, async_op: bool, line: Line) -> None:
        """Begin to gather; on a device ``line`` does it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait until all is gathered, and give the full weights their memory."""
        raise NotImplementedError

    def drop(self) -> None:
        """The full weights are not needed any more."""
        raise NotImplementedError


class GatheredWeights(Weights):
    """Shards in one block of this rank's memory, gathered into more of it."""

    _landing: tuple | None = None
    folder: str | None = None  # the shards lie in a file there
    gather_with: Any = None  # the program's own all-gather

    def _by_program(self, own: np.ndarray, numel: int, async_op: bool) -> tuple:
        comm, raw = self.gather_with, self.places.use.raw
        place = {"dtype": dtypes.of(self.used), "device": device(str(self.places.use))}
        given, out = comm.allocate((own.size,), **place), comm.allocate((numel,), **place)
        raw(given.array)[...] = own
        return raw(out.array), comm(out, given, self.sharding.group, async_op)

    def _allocate(self) -> None:
        if self.folder is None:
            self.flat = self.places.shards(self.layout.numel, self.kind)
        else:
            self.flat = on_disk(self.folder, self.layout.numel, self.kind)
        rank, held = self.sharding.rank, self.places.home.held
        self.shards = [held(shard_of(self.flat, m.layout, rank)) for m in self.members]

    def start(self, async_op: bool, line: Line) -> None:
        if self.refresh():
            line.follow()
        line.release()
        with line.gather:
            own = in_use(self.flat, self.places, self.used)
            if self.sharding.world == 1:
                flat, work = own, None
            else:
                flat, work = self._gather(own, async_op)
            self._landing = (flat, own, work, line.gather.mark(), line)

    def _gather(self, own: Any, async_op: bool) -> tuple:
        numel = self.layout.numel * self.sharding.world
        if self.gather_with is not None:
            return self._by_program(own, numel, async_op)
        flat = self.places.use.empty(numel, self.used)
        async_op = async_op and self.places.use.on_host  # else the line waits, not the thread
        return flat, self.blocks.gather(flat, own, async_op=async_op)

    def finish(self) -> None:
        flat, own, work, mark, line = self._landing  # type: ignore[misc]
        self._landing = None
        if work is not None:
            work.wait()
        mark.wait()
        use = self.places.use
        for m in self.members:
            chunks = chunks_of(flat, m.layout, self.layout.numel)
            if self.sharding.world == 1 and (own is self.flat or use.on_host):
                full = chunks.reshape(m.layout.shape).view()
            else:
                full = use.empty(m.layout.shape, self.used)
                assemble(chunks, m.layout, full)
            m.full.array = full_array(m, use.held(read_only(full)))
        line.keep(flat, own)

    def drop(self) -> None:
        if self._landing is not None:  # what is under way keeps its memory until it ends
            flat, own, _, mark, line = self._landing
            mark.wait()
            line.keep(flat, own)
            self._landing = None
        for m in self.members:
            m.full.__dict__.pop("array", None)
