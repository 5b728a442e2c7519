"""``deterministic="global"``: what a data-parallel wrapper does with each virtual shard.

The program runs forward and backward once per shard (``shards.each`` times on this rank, with
the batches of ``VirtualShardSampler``), then the optimizer. Nothing is sent before the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import context, settings
from ...backends import blas, threads
from ...comm.group.group import ProcessGroup
from ...context import thread
from ...core.backward.engine import on_finish
from ...core.random import get_rng_state, initial_seed, manual_seed, set_rng_state
from ...core.tensor import Tensor
from ...errors import AutogradError, ConfigError
from ...nn.module import Module
from ...trace import warn
from .buffers import ShardedBuffers
from .gradients import Bucket, ShardedGradients
from .shards import DEFAULT_COUNT, VirtualShards
from .weights import ShardWeights


def check_mode(mode: str | None) -> bool:
    """Is ``mode`` the invariant one? It is None or ``"global"``."""
    if mode not in (None, "global"):
        raise ConfigError(
            f"deterministic: {mode!r} given; needed is None or 'global' (bitwise the same weights "
            "on any number of ranks)"
        )
    return mode == "global"


def pin_threads(first: bool = False) -> None:
    """The order in which a BLAS sums depends on how many threads it takes, and that on the machine
    and on how many ranks it has: so one, in this process. Asked before every forward and backward,
    since a program may have set another count; ``first``: say so where it cannot be had. Products
    of float32 matrices do without a BLAS from now on."""
    thread.rank.fixed_products = True
    count = blas.num_threads()
    if count == 1 or (count is not None and threads.set_count(1)):
        return
    if first and settings.environment().get(blas.VARIABLES[0]) != "1":
        warn(
            "deterministic='global': numpy's BLAS cannot be told how many threads to take, and its "
            "sums may depend on that; start all ranks with OMP_NUM_THREADS=1",
        )


class ShardRun:
    """What is around every forward and backward of a virtual shard, whatever the strategy.

    Random numbers that a forward draws (dropout) depend on the run's seed, the step and the shard
    alone; buffers begin as the step began.
    """

    def __init__(self, module: Module, shards: VirtualShards, join: Callable) -> None:
        """``join(array)`` sums an array over all ranks, in place and in their order."""
        pin_threads(first=True)
        self.shards, self.weights = shards, ShardWeights(shards, join)
        self.buffers = ShardedBuffers(module, shards, join)
        self._attempt = 0  # forwards of the current shard so far
        self._before: Any = None  # the program's own random stream, while a forward runs
        self._running = False  # a backward has begun, and not ended

    def enter(self) -> None:
        """A forward begins."""
        pin_threads()
        if not thread.grad_enabled:
            return
        if self._running and thread.walk is None:
            raise AutogradError(
                f"deterministic='global' on rank {context.current().rank}: the backward of virtual "
                f"shard {self.shards.current} of step {self.shards.step} ended in the middle (an "
                "error in a hook or in an operation), so sums of gradients are incomplete; end the "
                "program, or wrap the module again on every rank and go on from a checkpoint"
            )
        if self._attempt == 0:
            self.buffers.begin()
        self._before = get_rng_state()
        manual_seed(self.shards.stream(self._attempt))
        self._attempt += 1

    def leave(self) -> None:
        """A forward has ended, or raised."""
        before, self._before = self._before, None
        if before is not None:
            set_rng_state(before)

    def begin(self) -> None:
        """The first gradient of a backward has come."""
        pin_threads()
        self._running = True
        self.weights.begin()
        on_finish(self._finish)

    def _finish(self) -> None:
        try:
            self.deliver()
        except AutogradError:  # on all ranks: the step is over, and without gradients
            self._next()
            raise
        self._next()

    def _next(self) -> None:
        self.buffers.finish()
        self._attempt, self._running = 0, False
        self.shards.advance()

    def deliver(self) -> None:
        """All gradients of a shard have come."""
        raise NotImplementedError


class GlobalDeterminism(ShardRun):
    """The invariant mode of one wrapped ``module`` whose parameters are whole on every rank.

    ``shards`` says which virtual shards this rank computes and where the run is: save its
    ``state_dict`` with a checkpoint.
    """

    def __init__(
        self,
        module: Module,
        params: Sequence[Tensor],
        buckets: Sequence[Bucket],
        group: ProcessGroup,
        virtual_shards: int = DEFAULT_COUNT,
        **taking: Callable,
    ) -> None:
        """``taking``: as of ``ShardedGradients``."""
        shards = VirtualShards(virtual_shards, group.rank, group.size, common_seed([group]))
        super().__init__(module, shards, group.all_reduce)
        self.gradients = ShardedGradients(
            params, buckets, group, shards, self.begin, self.weights, **taking
        )

    def forward(self, module: Module, inputs: tuple, kwargs: dict) -> Any:
        """One forward of the current shard."""
        self.enter()
        try:
            return module(*inputs, **kwargs)
        finally:
            self.leave()

    def deliver(self) -> None:
        self.gradients.finish()

    def detach(self) -> None:
        """Give the module's gradients back their ordinary accumulation."""
        self.gradients.detach()


def common_seed(groups: Sequence[Any]) -> int:
    """The seed of the first rank's random stream, on every rank of these nested groups."""
    seed = np.array([initial_seed()], np.uint64)
    for group in groups:
        group.broadcast(seed, 0)
    return int(seed[0])
