"""Fills buckets from gradient hooks, reduces them in order, and waits at the end of backward.

Each leaf's accumulator stores its gradient straight into its slot (``.grad`` is a view of the
bucket, which lies in memory that peers can read), so nothing is copied before or after the
collective. Buckets are launched strictly in index order, so every rank issues the same sequence.
Knows no module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import context
from ...core.engine import on_finish
from ...core.node import AccumulateGrad, Output
from ...core.tensor import Tensor, wrap
from ...errors import AutogradError
from .buckets import Bucket, ParamMeta


class Reducer:
    """Averages the gradients of ``params`` over ``group`` during backward."""

    def __init__(
        self,
        params: Sequence[Tensor],
        metas: Sequence[ParamMeta],
        buckets: Sequence[Bucket],
        group: Any,
        find_unused: bool,
        sync_wanted: Callable[[], bool],
    ) -> None:
        self.params, self.metas, self.buckets = list(params), list(metas), list(buckets)
        self.group, self.find_unused, self.sync_wanted = group, find_unused, sync_wanted
        self.scale = 1.0 / group.size
        self.flats = [_allocate(group, b) for b in buckets]
        self.place: list[tuple[int, Tensor]] = [(-1, None)] * len(self.params)  # type: ignore[list-item]
        for b, bucket in enumerate(self.buckets):
            for s in bucket.slots:
                view = self.flats[b][s.offset : s.offset + s.numel]
                self.place[s.param] = (b, wrap(view.reshape(self.metas[s.param].shape)))
        self.syncing = True
        self.expecting = False
        self.begun = False  # a synced backward, and not ended
        self.missing: set[int] = set()
        self.left: list[int] = []
        self.works: list[Any] = []
        self.locally_unused: set[int] = set()
        self.accumulated: set[int] = set()  # with gradients of backwards that were not synced
        for i, p in enumerate(self.params):
            p._node.store = self._store(i)

    def detach(self) -> None:
        """Give the leaves back their ordinary accumulation."""
        for p in self.params:
            if p._node.__class__ is AccumulateGrad:
                p._node.store = None

    # --- one iteration --------------------------------------------------------------------------

    def prepare(self, outputs: Sequence[Tensor], syncing: bool) -> None:
        """Called after forward: the next backward will fill the buckets."""
        self.syncing = syncing
        self.missing = set(range(len(self.params)))
        self.left = [len(b.slots) for b in self.buckets]
        self.works = []
        self.expecting = True
        self.locally_unused = set()
        if syncing and self.find_unused:
            used = _reachable(outputs)
            self.locally_unused = {i for i, p in enumerate(self.params) if p._node not in used}

    def _store(self, i: int) -> Callable[[Tensor, Any], None]:
        _, view = self.place[i]
        slot = view.array

        def store(leaf: Tensor, g: Any) -> None:
            sync = self.expecting and self.syncing
            array = g.array if isinstance(g, Tensor) else g
            old = leaf._grad
            if old is None:
                if sync:
                    np.multiply(array, slot.dtype.type(self.scale), out=slot)
                else:
                    slot[...] = array
            else:
                if old is view or old.array is slot:
                    np.add(slot, array, out=slot)
                else:
                    np.add(old.array, array, out=slot)
                if sync:
                    np.multiply(slot, slot.dtype.type(self.scale), out=slot)
            leaf._grad = view
            if view._st is not None:
                view._st.version += 1
            if sync:
                self._ready(i)
            else:
                self.accumulated.add(i)

        return store

    def _ready(self, i: int) -> None:
        if len(self.missing) == len(self.params):
            if not self.sync_wanted():
                raise AutogradError(
                    f"DistributedDataParallel on rank {context.current().rank}: backward runs "
                    "under no_sync(), but its forward did not, so the gradients would be averaged "
                    "all the same; put the forward inside the no_sync() block too"
                )
            on_finish(self._finish)
            self.begun = True
            for j in sorted(self.locally_unused):
                self._fill_unused(j)
        if i not in self.missing:
            raise AutogradError(
                f"DistributedDataParallel on rank {context.current().rank}: parameter "
                f"{self.metas[i].name!r} received its gradient twice in one backward; it is used "
                "by two graphs (two forwards before one backward, or re-entrant checkpointing); "
                "run one forward per backward, or use checkpoint(..., use_reentrant=False)"
            )
        self._mark(i)

    def _mark(self, i: int) -> None:
        self.missing.discard(i)
        b = self.place[i][0]
        self.left[b] -= 1
        while len(self.works) < len(self.buckets) and self.left[len(self.works)] == 0:
            self._launch(len(self.works))

    def _launch(self, b: int) -> None:
        self.works.append(self.group.all_reduce(self.flats[b], async_op=True))

    def _fill_unused(self, i: int) -> None:
        """A parameter without a gradient here still takes part: with zeros, or with what it has."""
        slot = self.place[i][1].array
        old = self.params[i]._grad
        if old is None:
            slot.fill(0)
        else:
            np.multiply(old.array, slot.dtype.type(self.scale), out=slot)
        self._mark(i)

    def _finish(self) -> None:
        self.expecting = False
        if self.missing:
            raise self._unfinished()
        used = self._used_anywhere() if self.find_unused else None
        for work in self.works:
            work.wait()
        for i in self.locally_unused:
            if used is not None and used[i]:
                self.params[i]._grad = self.place[i][1]
        self.accumulated.clear()
        self.begun = False

    def _used_anywhere(self) -> np.ndarray:
        """How many ranks have used each parameter since the last synced backward."""
        kept = {i for i in self.accumulated if self.params[i]._grad is not None}
        used = np.ones(len(self.params), np.int32)
        used[list(self.locally_unused - kept)] = 0
        self.group.all_reduce(used)
        return used

    def broken_off(self) -> AutogradError:
        """The error of going on after a backward that raised in the middle: its reductions may
        still run, and the other ranks may have had another number of them."""
        return AutogradError(
            f"DistributedDataParallel on rank {context.current().rank}: the last backward ended in "
            f"the middle (an error in a hook or in an operation), after {len(self.works)} of "
            f"{len(self.buckets)} reductions, so the ranks may no longer be in step; end the "
            "program, or wrap the module again on every rank"
        )

    def _unfinished(self) -> AutogradError:
        names = [self.metas[i].name for i in sorted(self.missing)]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return AutogradError(
            f"DistributedDataParallel on rank {context.current().rank}: backward ended, but "
            f"{len(names)} of {len(self.params)} parameters received no gradient: {shown}. Every "
            "rank must use the same parameters in each iteration; use them all in the loss, freeze "
            "those that are not trained (requires_grad_(False)) before wrapping, or pass "
            "find_unused_parameters=True"
        )


def _allocate(group: Any, bucket: Bucket) -> np.ndarray:
    """The bucket's memory, which peers can read."""
    flat = group.empty(bucket.numel, bucket.dtype)
    flat.fill(0)
    return flat


def _reachable(outputs: Sequence[Tensor]) -> set:
    """The accumulators that a backward from ``outputs`` would reach."""
    seen: set = set()
    stack = [t.graph_node() for t in outputs if t.graph_node() is not None]
    while stack:
        node = stack.pop()
        node = node.node if node.__class__ is Output else node
        if node in seen:
            continue
        seen.add(node)
        stack.extend(e for e in node.edges if e is not None)
    return seen
