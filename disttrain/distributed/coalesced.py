"""Many tensors from one rank to all others, in few large messages.

Knows groups and tensors; no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor

CHUNK_BYTES = 250 << 20  # of one message at least, unless that was all


def broadcast_coalesced(
    group: Any, tensors: Sequence[Tensor], chunk_bytes: int = CHUNK_BYTES, root: int = 0
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
