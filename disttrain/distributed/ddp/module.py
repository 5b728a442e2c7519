"""DistributedDataParallel: the module whose backward averages gradients over a group.

The forward only notes that a backward will come; the work is done by hooks on the leaves
(``reducer``) by a plan made beforehand (``buckets``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ... import context, nn, tree
from ...core.tensor import Tensor
from ...errors import AutogradError, CollectiveMismatch
from .. import objects
from ..state import group_or_default
from .buckets import ParamMeta, plan_buckets
from .reducer import Reducer

MIB = 1 << 20
DEFAULT_CAP_MB = 25
FIRST_CAP_MB = 1


class DistributedDataParallel(nn.Module):
    """Wrap ``module`` for data-parallel training: one replica per rank of ``process_group``.

    At construction all ranks are checked to hold the same parameters (names, shapes, types), and
    take rank 0's values of parameters and buffers. During backward gradients are averaged over the
    ranks, bucket by bucket (``bucket_cap_mb``), while the rest of backward still runs. After it
    every rank holds the same ``.grad``.

    ``find_unused_parameters``: allow parameters that a forward does not use. ``broadcast_buffers``:
    take rank 0's buffers before each forward. ``gradient_as_bucket_view`` is always so here.

    Raises ``AutogradError`` without trainable parameters, ``CollectiveMismatch`` (on every rank)
    when the ranks hold different ones.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = True,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        self.module = module
        self.process_group = group_or_default(process_group)
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.require_backward_grad_sync = True
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise AutogradError(
                "DistributedDataParallel: the module has no parameter that requires grad; there is "
                "nothing to synchronise, so use the module as it is"
            )
        metas = [ParamMeta(n, tuple(p.shape), p.array.dtype) for n, p in named]
        if init_sync:
            self._check_alike(metas)
            self._sync_state()
        cap = int((DEFAULT_CAP_MB if bucket_cap_mb is None else bucket_cap_mb) * MIB)
        first = min(cap, FIRST_CAP_MB * MIB) if bucket_cap_mb is None else cap
        plan = plan_buckets(metas, cap, first)
        self.__dict__["reducer"] = Reducer(
            [p for _, p in named], metas, plan, self.process_group, find_unused_parameters,
            lambda: self.require_backward_grad_sync,
        )  # fmt: skip

    def _check_alike(self, metas: list[ParamMeta]) -> None:
        """Every rank holds the same parameters, or the same error goes up on every rank."""
        mine = [f"{m.name}: {m.dtype}{list(m.shape)}" for m in metas]
        everyone = objects.all_gather(self.process_group, mine)
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

    def _sync_state(self) -> None:
        tensors = [*self.module.parameters(), *self.module.buffers()]
        broadcast_coalesced(self.process_group, tensors)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients locally: forward *and* backward inside the block; the next ones
        outside average what has accumulated."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        sync = self.require_backward_grad_sync
        recording = context.thread.grad_enabled
        if recording and self.reducer.begun:
            raise self.reducer.broken_off()
        if recording and sync and self.broadcast_buffers and self.process_group.size > 1:
            buffers = list(self.module.buffers())
            if buffers:
                broadcast_coalesced(self.process_group, buffers)
        outputs = self.module(*inputs, **kwargs)
        if recording:
            found = [t for t in tree.leaves(outputs) if isinstance(t, Tensor)]
            self.reducer.prepare(found, sync)
        return outputs

    def close(self) -> None:
        """Give the module's gradients back their ordinary accumulation."""
        self.reducer.detach()


def broadcast_coalesced(group: Any, tensors: list[Tensor], chunk_bytes: int = 250 * MIB) -> None:
    """Give every rank of ``group`` its first rank's values, few large messages instead of many."""
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
                _broadcast_batch(group, kind, batch)
                batch, size = [], 0
        if batch:
            _broadcast_batch(group, kind, batch)


def _broadcast_batch(group: Any, kind: np.dtype, batch: list[Tensor]) -> None:
    flat = np.concatenate([t.array.reshape(-1) for t in batch])
    group.broadcast(flat, 0)
    if group.rank == 0:
        return
    start = 0
    for t in batch:
        n = t.array.size
        t.array[...] = flat[start : start + n].reshape(t.array.shape)
        start += n
