"""Buffers that a forward changes (running statistics): each virtual shard starts from the step's
first values, and the step ends with the mean over all shards, joined by the same tree.

Integer buffers (how many batches were seen) keep what every shard makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.grad_mode import no_grad
from ...nn.module import Module
from .gradients import wide
from .shards import VirtualShards
from .tree_sum import TreeSum


class ShardedBuffers:
    """The buffers of ``module``, looked up anew each time because programs replace them."""

    def __init__(self, module: Module, shards: VirtualShards, join: Callable) -> None:
        """``join(array)`` sums over all ranks, in place."""
        self.module, self.shards, self.join = module, shards, join
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
        changed = [n for n in self.sums if self._changed(n, buffers[n].array)]
        for name in self._anywhere(changed) if self.shards.strided or self.shards.last else changed:
            sums, now = self.sums[name], self._term(buffers[name].array)
            if not sums and self.shards.index:  # the shards before have left it as it was
                before = self._term(self.start[name])
                for index in range(self.shards.index):
                    sums.add(index, before)
            sums.add(self.shards.index, now)
        if self.shards.last:
            self._combine(buffers)

    def _term(self, array: np.ndarray) -> np.ndarray:
        """What one shard adds, or all that ranks compute at the same time."""
        term = array.astype(wide(array.dtype))
        if self.shards.strided:
            self.join(term)
        return term

    def _changed(self, name: str, array: np.ndarray) -> bool:
        return bool(self.sums[name]) or array.tobytes() != self.start[name].tobytes()

    def _anywhere(self, changed: list[str]) -> list[str]:
        """Those that some rank has changed, so that all ranks send the same ones."""
        flags = np.array([n in changed for n in self.sums], np.int32)
        self.join(flags)
        return [n for n, flag in zip(self.sums, flags, strict=True) if flag]

    def _combine(self, buffers: dict[str, Any]) -> None:
        with no_grad():
            for name, terms in self.sums.items():
                total = terms.total()
                if total is not None:
                    total = np.ascontiguousarray(total)
                    if not self.shards.strided:
                        self.join(total)
                    mean = total / total.dtype.type(self.shards.count)
                    _write(buffers[name], mean.astype(buffers[name].array.dtype))


def _write(buffer: Any, values: np.ndarray) -> None:
    buffer.array[...] = values
    if buffer._st is not None:
        buffer._st.version += 1
