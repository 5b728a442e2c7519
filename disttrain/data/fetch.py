"""How a batch is got from a dataset, in the process that loads it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import HostError
from .collate import default_collate
from .dataset import batch_getter, samples


@dataclass(frozen=True)
class Plan:
    """What to load and how. ``batched``: samples make batches; otherwise each goes by itself.
    ``batch_size`` and ``drop_last`` are for iterable datasets (others are told indices)."""

    dataset: Any
    collate: Callable[[Any], Any]
    iterable: bool
    batched: bool
    batch_size: int = 1
    drop_last: bool = False


def fetcher(plan: Plan) -> Callable[[Any], Any]:
    """A function from what the sampler gave (nothing, for iterable datasets) to a batch. For an
    iterable dataset it begins a new pass, and raises StopIteration at its end."""
    if plan.iterable:
        return _stream(plan, iter(plan.dataset))
    if not plan.batched:
        return lambda index: plan.collate(plan.dataset[index])
    if plan.collate is default_collate:
        getter = batch_getter(plan.dataset)
        if getter is not None:
            return lambda indices: _fast(plan, getter, indices)
    return lambda indices: plan.collate(samples(plan.dataset, indices))


def _fast(plan: Plan, getter: Callable[[np.ndarray], Any], indices: list) -> Any:
    try:
        numbers = np.asarray(indices)
    except HostError:  # they are on an accelerator
        numbers = None
    if numbers is not None and numbers.ndim == 1 and numbers.dtype.kind in "iu":
        return getter(numbers)
    return plan.collate(samples(plan.dataset, indices))


def _stream(plan: Plan, iterator: Iterator) -> Callable[[Any], Any]:
    def one(_: object) -> Any:
        return plan.collate(next(iterator))

    def batch(_: object) -> Any:
        found = list(itertools.islice(iterator, plan.batch_size))
        if not found or (plan.drop_last and len(found) < plan.batch_size):
            raise StopIteration
        return plan.collate(found)

    return batch if plan.batched else one
