"""``loss_parallel``: the loss of logits whose classes are cut over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..dispatch import implicit_replication


@contextmanager
def loss_parallel() -> Iterator[None]:
    """Inside the block ``cross_entropy`` takes logits that are a DTensor cut along the classes
    beside targets that are plain Tensors, the same on every rank; backward may be inside, too.

    The logits are never put together (``cut_classes``); that is so outside of the block as well,
    where targets must be DTensors. The loss is a DTensor that is whole on every rank.
    """
    with implicit_replication():
        yield
