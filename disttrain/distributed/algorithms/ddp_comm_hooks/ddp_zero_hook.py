"""Communication hooks that step a ``ZeroRedundancyOptimizer`` while gradients are reduced."""

from __future__ import annotations

from typing import Any

from ....core import no_grad
from ....core.tensor import Tensor
from ....errors import ConfigError
from ....futures import Future
from ...ddp import DistributedDataParallel, GradBucket
from ...optim import ZeroRedundancyOptimizer
from .default_hooks import Hook


def hook_with_zero_step(
    hook: Hook, ddp: DistributedDataParallel, zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Hook:  # fmt: skip
    """``hook``, and after the last bucket of an iteration the steps of all parameters.

    ``zero`` is made with ``overlap_with_ddp=True`` from the parameters of ``ddp``. Every iteration
    steps, from the first one on. Each rank steps the parameters that it owns, of any bucket, so
    that ``shard_buckets`` changes nothing.
    """
    return _Stepping(hook, ddp, zero, interleaved=False)


def hook_with_zero_step_interleaved(
    hook: Hook, ddp: DistributedDataParallel, zero: ZeroRedundancyOptimizer,
    shard_buckets: bool = False,
) -> Hook:  # fmt: skip
    """As ``hook_with_zero_step``, with each bucket's steps as soon as it is reduced."""
    return _Stepping(hook, ddp, zero, interleaved=True)


class _Stepping:
    """A hook with the steps behind it."""

    def __init__(
        self,
        hook: Hook,
        ddp: DistributedDataParallel,
        zero: ZeroRedundancyOptimizer,
        interleaved: bool,
    ) -> None:
        if not zero.overlap_with_ddp:
            raise ConfigError(
                "ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use "
                "this hook properly"
            )
        known = {p for r in range(zero.world_size) for params in zero.owned_by(r) for p in params}
        lacking = [n for n, p in ddp.named_parameters() if p.requires_grad and p not in known]
        if lacking:
            raise ConfigError(
                f"hook_with_zero_step: {len(lacking)} trained parameters of the module are not "
                f"among the optimizer's, the first is {lacking[0]}; make it of ddp.parameters()"
            )
        self.hook, self.zero, self.interleaved = hook, zero, interleaved
        self.pending: list[tuple[GradBucket, Future]] = []
        self.__name__ = self.__qualname__ = getattr(hook, "__name__", "hook") + "_with_zero_step"

    def __call__(self, state: Any, bucket: GradBucket) -> Future[Tensor]:
        if bucket.index() == 0:
            self.pending = []
        future = self.hook(state, bucket)
        if self.interleaved:
            return future.then(lambda done: self._step([bucket], done))
        self.pending.append((bucket, future))
        if not bucket.is_last():
            return future
        return future.then(self._step_all)

    def _step_all(self, done: Future) -> Tensor:
        pending, self.pending = self.pending, []
        for bucket, future in pending[:-1]:
            bucket.set_buffer(future.wait())
        return self._step([bucket for bucket, _ in pending], done)

    def _step(self, buckets: list[GradBucket], done: Future) -> Tensor:
        reduced = done.value()
        buckets[-1].set_buffer(reduced)
        with no_grad():
            for bucket in buckets:
                self.zero.step_some(dict(zip(bucket.parameters(), bucket.gradients(), strict=True)))
        return reduced


__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]
