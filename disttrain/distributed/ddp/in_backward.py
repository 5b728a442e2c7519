"""Parameters that have optimizers of their own, which step inside backward: here, once their
gradients are averaged. Knows no wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import no_grad
from ...core.tensor import Tensor
from ...futures import Future
from ..collectives.tensors import all_reduce
from .reducer.grad_bucket import GradBucket

OPTIMIZERS, HANDLES = "_in_backward_optimizers", "_in_backward_handles"


def take_over(params: Sequence[Tensor]) -> bool:
    """Keep the optimizers of ``params`` from stepping by gradients of one rank; whether there were
    any."""
    found = False
    for p in params:
        if getattr(p, OPTIMIZERS, None):
            found = True
            for handle in getattr(p, HANDLES):
                handle.remove()
            getattr(p, HANDLES).clear()
    return found


def hook(group: Any, bucket: GradBucket) -> Future[Tensor]:
    """A communication hook: average the gradients, step the optimizers, drop what they used."""
    buffer: Any = bucket.buffer()
    with no_grad():
        buffer.mul_(1.0 / group.size)
    work: Any = all_reduce(buffer, group=group, async_op=True)

    def step(future: Future) -> Tensor:
        future.value()
        for p, g in zip(bucket.parameters(), bucket.gradients(), strict=True):
            optimizers = getattr(p, OPTIMIZERS, ())
            if optimizers:
                p._grad = g
                for optimizer in optimizers:
                    optimizer.step()
                p._grad = None
        return buffer

    return work.get_future().then(step)
