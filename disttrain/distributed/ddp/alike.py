"""Replicas that begin alike: the same parameters on every rank, with rank 0's values.

Knows groups and tensors; no buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...errors import CollectiveMismatch
from .. import objects
from .buckets import ParamMeta

MIB = 1 << 20


def check_alike(group: Any, metas: Sequence[ParamMeta]) -> None:
    """Every rank holds the same parameters, or the same error goes up on every rank."""
    mine = [f"{m.name}: {m.dtype}{list(m.shape)}" for m in metas]
    everyone = objects.all_gather(group, mine)
    for rank, theirs in enumerate(everyone):
        if theirs == everyone[0]:
            continue
        pairs = zip(everyone[0], theirs, strict=False)
        first = next(((a, b) for a, b in pairs if a != b), None)
        difference = (
            f"rank 0 has {len(everyone[0])} parameters, rank {rank} has {len(theirs)}"
            if first is None
            else f"rank 0 has {first[0]}, rank {rank} has {first[1]}"
        )
        raise CollectiveMismatch(
            f"DistributedDataParallel: the ranks hold different models: {difference}; build "
            "the same module on every rank"
        )


def broadcast_coalesced(
    group: Any, tensors: Sequence[Tensor], chunk_bytes: int = 250 * MIB, root: int = 0
) -> None:
    """Give every rank of ``group`` the values of ``root``, few large messages instead of many.

    Writes are not counted in the tensors' versions: a graph that saved a buffer stays usable.
    """
    if group.size == 1:
        return
    by_type: dict[np.dtype, list[Tensor]] = {}
    for t in tensors:
        by_type.setdefault(t.array.dtype, []).append(t)
    for kind, members in by_type.items():
        batch: list[Tensor] = []
        size = 0
        for t in members:
            batch.append(t)
            size += t.array.nbytes
            if size >= chunk_bytes:
                _broadcast_batch(group, kind, batch, root)
                batch, size = [], 0
        if batch:
            _broadcast_batch(group, kind, batch, root)


def _broadcast_batch(group: Any, kind: np.dtype, batch: list[Tensor], root: int) -> None:
    flat = np.concatenate([t.array.reshape(-1) for t in batch])
    group.broadcast(flat, root)
    if group.rank == root:
        return
    start = 0
    for t in batch:
        n = t.array.size
        t.array[...] = flat[start : start + n].reshape(t.array.shape)
        start += n
