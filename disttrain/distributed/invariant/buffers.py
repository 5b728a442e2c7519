"""Buffers that a forward changes (running statistics): each virtual shard starts from the step's
first values, and the step ends with the mean over all shards, joined by the same tree.

Integer buffers (how many batches were seen) keep what every shard makes of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.grad_mode import no_grad
from .gradients import wide
from .shards import VirtualShards
from .tree_sum import TreeSum


class ShardedBuffers:
    """The buffers of ``module``, looked up anew each time because programs replace them."""

    def __init__(self, module: Any, group: Any, shards: VirtualShards) -> None:
        self.module, self.group, self.shards = module, group, shards
        self.start: dict[str, np.ndarray] = {}
        self.sums: dict[str, TreeSum] = {}

    def begin(self) -> None:
        """Before the first forward of a shard."""
        buffers = dict(self.module.named_buffers())
        if self.shards.index == 0:
            self.start = {n: np.array(b.array) for n, b in buffers.items()}
            self.sums = {n: TreeSum() for n, b in buffers.items() if b.array.dtype.kind in "fV"}
            return
        with no_grad():
            for name, before in self.start.items():
                _write(buffers[name], before)

    def finish(self) -> None:
        """After the backward of a shard."""
        if not self.start:
            return
        buffers = dict(self.module.named_buffers())
        for name, total in self.sums.items():
            array = buffers[name].array
            total.add(self.shards.index, array.astype(wide(array.dtype), copy=False))
        if self.shards.last:
            self._combine(buffers)

    def _combine(self, buffers: dict[str, Any]) -> None:
        names = list(self.sums)
        totals = [self.sums[n].total() for n in names]
        changed = np.array(
            [buffers[n].array.tobytes() != self.start[n].tobytes() for n in names], np.int32
        )
        self.group.all_reduce(changed)  # all ranks must send the same ones
        with no_grad():
            for name, total, moved in zip(names, totals, changed, strict=True):
                if moved and total is not None:
                    flat = np.ascontiguousarray(total)
                    self.group.all_reduce(flat)
                    mean = flat / flat.dtype.type(self.shards.count)
                    _write(buffers[name], mean.astype(buffers[name].array.dtype))


def _write(buffer: Any, values: np.ndarray) -> None:
    buffer.array[...] = values
    if buffer._st is not None:
        buffer._st.version += 1
