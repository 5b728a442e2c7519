"""Copies of one model on all ranks: who takes which rows of a batch, how copies begin alike, and
what they add up. For loops that are not DDP's: there the gradients are at hand at once, and
backward is over. Every rank makes the same calls in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import context
from ..comm.job.worker_env import read_worker_env
from ..core.random import get_rng_state, set_rng_state
from ..core.tensor import Tensor
from ..ops import tensor, zeros_like
from .collectives import objects
from .collectives.tensors import all_reduce, all_reduce_coalesced, broadcast
from .groups.state import group_or_default, init_process_group, is_initialized


def place() -> tuple[int, int]:
    """This rank and how many there are. Where a launcher has started several and the program has
    not joined their group, it does now."""
    if not is_initialized():
        if max(context.current().world_size, read_worker_env().world_size) == 1:
            return 0, 1
        init_process_group()
    world = group_or_default()
    return world.rank, world.size


def rows(count: int) -> tuple[slice, float]:
    """Which of a batch's ``count`` rows this rank takes, and their share of all: neighbours, as
    many on each as can be. A rank that none is left for takes the first, with a share of 0."""
    rank, size = place()
    begin, end = rank * count // size, (rank + 1) * count // size
    return (slice(begin, end), (end - begin) / count) if end > begin else (slice(0, 1), 0.0)


def own_rows(count: int) -> tuple[slice, float]:
    """The same where each rank has ``count`` of its own: all, and their share of all ranks'."""
    total = tensor([float(count)])
    all_reduce(total)
    return slice(None), count / total.item()


def summed(tensors: Sequence[Any], share: float = 1.0) -> list[Any]:
    """The sums over ranks of ``share`` times each tensor, outside the graph; None stays None. With
    the shares of rows: the mean over all rows of what is a mean over each rank's; nothing of a
    share of 0."""
    found = [t for t in tensors if t is not None]
    out = [t.detach() * share if share else zeros_like(t) for t in found]
    all_reduce_coalesced(out)
    rest = iter(out)
    return [None if t is None else next(rest) for t in tensors]


def begin_alike(tensors: Sequence[Tensor]) -> None:
    """Rank 0's values in place of all others', and its generators of random numbers (ours, numpy's,
    Python's): what is drawn next is the same everywhere."""
    for t in tensors:
        broadcast(t, 0)
    states = get_rng_state(), np.random.get_state(), random.getstate()
    ours, numpys, pythons = objects.broadcast(group_or_default(), states, 0)
    set_rng_state(ours)
    np.random.set_state(numpys)
    random.setstate(pythons)


__all__ = ["begin_alike", "own_rows", "place", "rows", "summed"]
