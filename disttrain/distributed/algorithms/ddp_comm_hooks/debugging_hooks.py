"""A communication hook that communicates nothing."""

from __future__ import annotations

from ....core.tensor import Tensor
from ....futures import Future
from ...ddp import GradBucket


def noop_hook(_: object, bucket: GradBucket) -> Future[Tensor]:
    """Leave every rank its own gradients. To see what communication costs; not to train."""
    future: Future[Tensor] = Future()
    future.set_result(bucket.buffer())
    return future


__all__ = ["noop_hook"]
