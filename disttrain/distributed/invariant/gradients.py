"""Sums gradients over virtual shards: a rank's own in a tree, then those of all ranks by theirs.

Each leaf's accumulator hands its gradient here. With the last shard of a step the sums go into
buckets, which are reduced while backward still runs, in index order. Bits do not depend on the
buckets. Narrow floats are summed in float32 and rounded once. Knows no module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...comm.group.group import ProcessGroup
from ...core.node import AccumulateGrad
from ...core.tensor import Tensor, wrap
from .shards import VirtualShards
from .tree_sum import TreeSum
from .weights import ShardWeights
from .weights import mean as mean_of

_NARROW = 4  # bytes
Store = Callable[[Tensor, Any], None]


def wide(kind: np.dtype) -> np.dtype:
    """The type in which values of ``kind`` are summed."""
    narrow = kind.itemsize < _NARROW and kind.kind in "fV"
    return np.dtype(np.float32) if narrow else kind


class Bucket(Protocol):
    """A plan's bucket: ``slots`` have ``param`` (an index), ``offset`` and ``numel``."""

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def slots(self) -> tuple[Any, ...]: ...

    @property
    def numel(self) -> int: ...


class _Flight:
    """A bucket's memory, and its reduction while that runs."""

    def __init__(self, group: ProcessGroup, bucket: Bucket) -> None:
        self.places = [(s.param, s.offset, s.numel) for s in bucket.slots]
        self.flat = group.empty(bucket.numel, wide(bucket.dtype))
        self.flat.fill(0)
        self.waiting = len(self.places)
        self.work: Any = None


class ShardedGradients:
    """``.grad`` of ``params`` becomes the mean over all virtual shards when a step is complete.

    ``begin`` is called with the first gradient of each backward; whoever made this calls
    ``finish`` at the end of that backward.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        buckets: Sequence[Bucket],
        group: ProcessGroup,
        shards: VirtualShards,
        begin: Callable[[], None],
        weights: ShardWeights | None = None,
        taking: Callable[[Tensor, Store], Store] = lambda param, store: store,
    ) -> None:
        """``taking(param, store)``: the store of a parameter's leaf, where ``store`` is to get this
        rank's part of the gradient."""
        self.params, self.group, self.begin = list(params), group, begin
        self.shards, self.weights = shards, weights or ShardWeights(shards, group.all_reduce)
        self.buckets = [_Flight(group, b) for b in buckets]
        self.home = {i: b for b in self.buckets for i, _, _ in b.places}
        self.sums = [TreeSum() for _ in self.params]
        self.seen: set[int] = set()  # in the backward that runs
        self.used = np.zeros(len(self.params), np.int32)  # in this step
        self.launched = 0
        for i, p in enumerate(self.params):
            p.graph_node()
            p._node.store = taking(p, self._store(i))

    def detach(self) -> None:
        """Give the leaves back their ordinary accumulation."""
        for p in self.params:
            if p._node.__class__ is AccumulateGrad:
                p._node.store = None

    def _store(self, i: int) -> Store:
        def store(leaf: Tensor, g: np.ndarray) -> None:
            if not self.seen:
                self.begin()
            array = g.array if isinstance(g, Tensor) else g
            term = self.weights.scaled(array.astype(wide(array.dtype), copy=False))
            self.sums[i].add(self.shards.index, term)
            self.used[i] = 1
            if self.shards.last and i not in self.seen:
                self._ready(i)
            self.seen.add(i)

        return store

    def _ready(self, i: int) -> None:
        self.home[i].waiting -= 1
        while self.launched < len(self.buckets) and not self.buckets[self.launched].waiting:
            self._launch(self.buckets[self.launched])
            self.launched += 1

    def _launch(self, bucket: _Flight) -> None:
        for i, offset, n in bucket.places:
            total = self.sums[i].total()
            slot = bucket.flat[offset : offset + n]
            if total is None:
                slot.fill(0)
            else:
                slot[...] = total.reshape(-1)
        bucket.work = self.group.all_reduce(bucket.flat, async_op=True)

    def finish(self) -> None:
        """The end of a backward: of a shard, or of the step."""
        if self.shards.last:
            for i in sorted(set(range(len(self.params))) - self.seen):
                self._ready(i)
            self.group.all_reduce(self.used)
            for bucket in self.buckets:
                bucket.work.wait()
                bucket.work, bucket.waiting = None, len(bucket.places)
            self.launched = 0
            self.seen.clear()
            used, self.used = self.used, np.zeros_like(self.used)
            divisor = self.weights.divisor()
            for bucket in self.buckets:
                self._deliver(bucket, used, divisor)
        self.seen.clear()

    def _deliver(self, bucket: _Flight, used: np.ndarray, divisor: float) -> None:
        """The mean of a bucket goes into ``.grad`` of what some rank has ``used``."""
        mean_of(bucket.flat, divisor)
        for i, offset, n in bucket.places:
            if not used[i]:
                continue
            p = self.params[i]
            shape, kind = p.meta()
            mean = bucket.flat[offset : offset + n].reshape(shape).astype(kind)
            if p._grad is not None:
                np.add(p._grad.array, mean, out=mean)
            p._grad = wrap(mean)
