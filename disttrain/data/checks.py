"""What a DataLoader refuses, and what it warns of. Knows arguments and counts; loads nothing."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from ..errors import ConfigError
from ..trace import warn

_METHODS = ("fork", "spawn", "forkserver")


def check_workers(
    num_workers: object,
    timeout: float,
    prefetch_factor: int | None,
    persistent_workers: bool,
    context: object,
) -> None:
    """Refuse arguments about workers that make no sense."""
    if not isinstance(num_workers, int) or num_workers < 0:
        _refuse(f"num_workers={num_workers!r} given; num_workers option should be non-negative, "
                "with 0 for loading in this process")  # fmt: skip
    if timeout < 0:
        _refuse(f"timeout={timeout} given; timeout option should be non-negative")
    if num_workers:
        ahead = 2 if prefetch_factor is None else prefetch_factor
        if not isinstance(ahead, int) or ahead < 1:
            _refuse(f"prefetch_factor={prefetch_factor!r}; 1 or more is needed")
        _check_context(context)
        _warn_of_many(num_workers)
        return
    given = {"prefetch_factor": prefetch_factor, "persistent_workers": persistent_workers,
             "multiprocessing_context": context}  # fmt: skip
    for name, value in given.items():
        if value:
            _refuse(f"{name} can only be used with multi-process loading (num_workers > 0), but "
                    "got num_workers=0; give num_workers, or leave it out")  # fmt: skip


def _check_context(context: object) -> None:
    if isinstance(context, str) and context not in _METHODS:
        _refuse("multiprocessing_context option should specify a valid start method in "
                f"{list(_METHODS)}, but got {context!r}")  # fmt: skip
    if context is not None and not isinstance(context, str) and not hasattr(context, "Process"):
        raise TypeError(
            "DataLoader: multiprocessing_context option should be a valid context object or the "
            f"name of a start method, but got {context!r}"
        )


def _warn_of_many(num_workers: int) -> None:
    processors = len(os.sched_getaffinity(0))
    if num_workers > processors:
        warn(
            f"DataLoader: num_workers={num_workers} given, and this process may use {processors} "
            "processors; excessive worker creation might get DataLoader running slow or even "
            f"freeze. At most {processors} are of use here",
        )


def check_batches(
    iterable: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: object,
    batch_sampler: object,
    drop_last: bool,
) -> None:
    """Refuse arguments about batches that contradict each other."""
    if iterable:
        given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None:
                _refuse(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                    f"{name}={value!r}; such a dataset decides its order itself"
                )
    if sampler is not None and shuffle:
        _refuse("sampler option is mutually exclusive with shuffle: the sampler decides the order")
    alone = batch_size == 1 and not shuffle and sampler is None and not drop_last
    if batch_sampler is not None and not alone:
        _refuse("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                "drop_last: it decides all of those")  # fmt: skip
    if batch_sampler is None and batch_size is None and drop_last:
        _refuse("batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last")  # fmt: skip


def _refuse(what: str) -> NoReturn:
    raise ConfigError(what if what.startswith("DataLoader") else f"DataLoader: {what}")


class Count:
    """Counts what an iterator has given. An iterable dataset that gives more than the length it
    promised is often one that every worker reads as a whole; it is warned of."""

    def __init__(self, dataset: Any, promised: int | None, num_workers: int) -> None:
        """``promised``: the length, None for one that nobody has asked for."""
        self.promised, self.fetched = promised, 0
        self._name, self._many = type(dataset).__name__, num_workers > 0

    def one_more(self) -> None:
        """Another value has been given."""
        self.fetched += 1
        if self.promised is not None and self.fetched > self.promised:
            told = (
                f"Length of IterableDataset {self._name} was reported to be {self.promised} (when "
                f"accessing len(dataloader)), but {self.fetched} samples have been fetched. "
            )
            if self._many:
                told += (
                    "For multiprocessing data-loading, this could be caused by not properly "
                    "configuring the IterableDataset replica at each worker; see get_worker_info()"
                )
            warn(told)
