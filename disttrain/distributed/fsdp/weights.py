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

from ...backends.null import NullArray
from ...comm.blocks import Blocks
from ...core import dtypes
from ...core.device import CPU
from ...errors import ConfigError
from .beside import full_array
from .layout import BlockLayout, assemble, chunks_of, own_part, shard_of
from .members import Member, Sharding
from .params import local_array, put_local


def read_only(full: np.ndarray) -> np.ndarray:
    """``full`` as it cannot be written to, nor made so that it can."""
    seen = full.reshape(-1).view(np.uint8).data.toreadonly()
    return np.asarray(seen).view(full.dtype).reshape(full.shape)


class Converted(Exception):
    """A program has given a parameter another type since its unit was made."""


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
    ) -> None:
        self.members, self.layout, self.sharding = members, layout, sharding
        self.kind, self.used = kinds
        self.blocks = blocks
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
        for array, view, m in zip(arrays, self.shards, self.members, strict=True):
            view[...] = own_part(array, m.layout, rank)
        return self.shards

    def _allocate(self) -> None:
        """Make memory for the shards."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Take up shards whose memory a program has replaced (``to_empty``, ``.data = ``)."""
        for m, shard in zip(self.members, self.shards, strict=True):
            if local_array(m.sharded) is not shard or shard.__class__ is NullArray:
                self._take_up()
                return

    def _take_up(self) -> None:
        arrays = [local_array(m.sharded) for m in self.members]
        for array, m in zip(arrays, self.members, strict=True):
            self._check(array, m)
        if self.shards[0].__class__ is NullArray:
            self._allocate()
        for array, shard, m in zip(arrays, self.shards, self.members, strict=True):
            if array is not shard:
                shard[...] = array
                put_local(m.sharded, shard)

    def _check(self, array: Any, m: Member) -> None:
        if array.__class__ is NullArray:
            raise RuntimeError(
                f"fully_shard: parameter {m.name!r} is on the meta device, so it cannot be "
                "gathered; FSDP parameters should be materialized from meta device before "
                "training: call module.to_empty(device='cpu'), then its reset_parameters()"
            )
        needed = m.layout.local_shape(self.sharding.rank)
        if array.shape == needed and array.dtype != self.kind:
            raise Converted(m.name)
        if array.shape != needed:
            raise ConfigError(
                f"fully_shard: the shard of {m.name!r} is now {array.dtype}{list(array.shape)}; "
                f"needed is {self.kind}{list(needed)}: write to the one that was there"
            )

    def start(self, async_op: bool) -> None:
        """Begin to gather."""
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
        comm, place = self.gather_with, {"dtype": dtypes.of(self.used), "device": CPU}
        given, out = comm.allocate((own.size,), **place), comm.allocate((numel,), **place)
        given.array[...] = own
        return out.array, comm(out, given, self.sharding.group, async_op)

    def _allocate(self) -> None:
        if self.folder is None:
            self.flat = np.zeros(self.layout.numel, self.kind)
        else:
            self.flat = on_disk(self.folder, self.layout.numel, self.kind)
        rank = self.sharding.rank
        self.shards = [shard_of(self.flat, m.layout, rank) for m in self.members]

    def start(self, async_op: bool) -> None:
        self.refresh()
        own = self.flat
        if self.used != self.kind:
            own = own.astype(self.used)
        if self.sharding.world == 1:
            self._landing = (own, None)
            return
        numel = self.layout.numel * self.sharding.world
        if self.gather_with is not None:
            self._landing = self._by_program(own, numel, async_op)
            return
        flat = np.empty(numel, self.used)
        self._landing = (flat, self.blocks.gather(flat, own, async_op=async_op))

    def finish(self) -> None:
        flat, work = self._landing  # type: ignore[misc]
        self._landing = None
        if work is not None:
            work.wait()
        for m in self.members:
            chunks = chunks_of(flat, m.layout, self.layout.numel)
            if self.sharding.world == 1:
                full = chunks.reshape(m.layout.shape).view()
            else:
                full = np.empty(m.layout.shape, self.used)
                assemble(chunks, m.layout, full)
            m.full.array = full_array(m, read_only(full))

    def drop(self) -> None:
        self._landing = None  # what is under way keeps its memory until it ends
        for m in self.members:
            m.full.__dict__.pop("array", None)
