"""Many tensors from one rank to all others, in few large messages.

Beside it PyTorch's way to start several collectives as one. Knows groups and tensors; no models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...backends.device.memory import Memory, memory_of
from ...comm.calls.work import Work
from ...comm.group.group import ProcessGroup
from ...core.annotations import DeviceLike
from ...core.tensor import Tensor
from ...errors import ConfigError
from ..groups.state import group_or_default

CHUNK_BYTES = 250 << 20  # of one message at least, unless that was all


def broadcast_coalesced(
    group: Any, tensors: Sequence[Tensor], chunk_bytes: int = CHUNK_BYTES, root: int = 0
) -> None:
    """Give every rank of ``group`` the values of ``root``, few large messages instead of many.

    Writes are not counted in the tensors' versions: a graph that saved a buffer stays usable.
    """
    if group.size == 1:
        return
    by_type: dict[tuple[np.dtype, Memory], list[Tensor]] = {}
    for t in tensors:
        by_type.setdefault((t.array.dtype, memory_of(t.array)), []).append(t)
    for (_, memory), members in by_type.items():
        batch: list[Tensor] = []
        size = 0
        for t in members:
            batch.append(t)
            size += t.array.nbytes
            if size >= chunk_bytes:
                _broadcast_batch(group, memory, batch, root)
                batch, size = [], 0
        if batch:
            _broadcast_batch(group, memory, batch, root)


def _broadcast_batch(group: ProcessGroup, memory: Memory, batch: list[Tensor], root: int) -> None:
    arrays = [memory.raw(t.array) for t in batch]
    with memory.here():
        flat = np.concatenate([a.reshape(-1) for a in arrays])
        group.broadcast(flat, root)
        if group.rank == root:
            return
        start = 0
        for a in arrays:
            a[...] = flat[start : start + a.size].reshape(a.shape)
            start += a.size


class CoalescingManager:
    """The works of the collectives that were started together."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def wait(self) -> None:
        for work in self.works:
            work.wait()


@contextlib.contextmanager
def coalescing_manager(
    group: ProcessGroup | None = None, device: DeviceLike | None = None, async_ops: bool = False
) -> Iterator[CoalescingManager]:
    """Within it ``all_reduce``, ``all_gather_into_tensor`` and ``reduce_scatter_tensor`` on
    ``group`` only start. They have ended when it is left, or with ``async_ops`` after ``wait()`` of
    what it gives."""
    g, manager = group_or_default(group), CoalescingManager()
    if g.coalescing is not None:
        raise ConfigError(
            "ProcessGroup has non-empty op list at the start of coalescing: one "
            "_coalescing_manager of a group within another one; leave the first one before"
        )
    g.coalescing = manager.works
    try:
        with g.transport.together():
            yield manager
    finally:
        g.coalescing = None
        if not async_ops:
            manager.wait()
