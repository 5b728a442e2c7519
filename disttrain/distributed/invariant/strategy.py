"""``deterministic="global"``: what a data-parallel wrapper does with each virtual shard.

The program runs forward and backward once per shard (``shards.each`` times on this rank, with
the batches of ``VirtualShardSampler``), then the optimizer. Nothing is sent before the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...context import thread
from ...core.engine import on_finish
from ...core.random import get_rng_state, initial_seed, manual_seed, set_rng_state
from ...core.tensor import Tensor
from ...errors import ConfigError
from .buffers import ShardedBuffers
from .gradients import Bucket, ShardedGradients
from .shards import DEFAULT_COUNT, VirtualShards


def check_mode(mode: Any) -> bool:
    """Is ``mode`` the invariant one? It is None or ``"global"``."""
    if mode not in (None, "global"):
        raise ConfigError(
            f"deterministic: {mode!r} given; needed is None or 'global' (bitwise the same weights "
            "on any number of ranks)"
        )
    return mode == "global"


class GlobalDeterminism:
    """The invariant mode of one wrapped ``module`` whose parameters are whole on every rank.

    ``shards`` says which virtual shards this rank computes and where the run is: save its
    ``state_dict`` with a checkpoint. Random numbers that a forward draws (dropout) depend on the
    seed of the group's first rank, the step and the shard.
    """

    def __init__(
        self,
        module: Any,
        params: Sequence[Tensor],
        buckets: Sequence[Bucket],
        group: Any,
        virtual_shards: int = DEFAULT_COUNT,
    ) -> None:
        self.shards = VirtualShards(virtual_shards, group.rank, group.size, common_seed(group))
        self.gradients = ShardedGradients(params, buckets, group, self.shards, self._begin)
        self.buffers = ShardedBuffers(module, group, self.shards)
        self.attempt = 0  # forwards of the current shard so far

    def forward(self, module: Any, inputs: tuple, kwargs: dict) -> Any:
        """One forward of the current shard, from its own random stream."""
        if not thread.grad_enabled:
            return module(*inputs, **kwargs)
        if self.attempt == 0:
            self.buffers.begin()
        before = get_rng_state()
        manual_seed(self.shards.stream(self.attempt))
        self.attempt += 1
        try:
            return module(*inputs, **kwargs)
        finally:
            set_rng_state(before)

    def _begin(self) -> None:
        on_finish(self._finish)

    def _finish(self) -> None:
        self.gradients.finish()
        self.buffers.finish()
        self.attempt = 0
        self.shards.advance()

    def detach(self) -> None:
        """Give the module's gradients back their ordinary accumulation."""
        self.gradients.detach()


def common_seed(group: Any) -> int:
    """The seed of the group's first rank's random stream, on every rank."""
    seed = np.array([initial_seed()], np.uint64)
    group.broadcast(seed, 0)
    return int(seed[0])
