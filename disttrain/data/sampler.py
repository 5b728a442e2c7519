"""Samplers: the order in which samples are asked for. Numbers only; they see no sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from .. import context
from ..core import Tensor
from ..core.random import Generator
from ..errors import ConfigError
from .dataset import rng_of

T = TypeVar("T", covariant=True)

_CHUNK = 1 << 16  # numbers that are turned into Python's at a time


def _numbers(array: np.ndarray) -> Iterator[int]:
    for start in range(0, len(array), _CHUNK):
        yield from array[start : start + _CHUNK].tolist()


def _is_count(value: float | None) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value > 0


def _private(generator: object) -> np.random.Generator:
    """The generator of one pass: the given one, or one seeded by a draw of the rank's, so that
    what is drawn in between (dropout, augmentation) does not change the order."""
    if generator is not None:
        return rng_of(generator)
    return np.random.Generator(np.random.SFC64(int(rng_of(None).integers(0, 1 << 63))))


class Sampler(Generic[T]):
    """Gives the indices of an epoch. Write ``__iter__``, and ``__len__`` where it is known."""

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} needs an __iter__(self)")


class SequentialSampler(Sampler[int]):
    """0, 1, 2 ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices in random order; or, with ``replacement``, ``num_samples`` independent draws."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        if not isinstance(replacement, bool):
            raise ConfigError(
                f"RandomSampler: replacement={replacement!r}; True or False is needed"
            )
        if not _is_count(self.num_samples):
            raise ConfigError(
                f"RandomSampler: num_samples is {self.num_samples!r}; 1 or more is needed. The "
                f"dataset has {len(data_source)} samples"
            )

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        rng, n, left = _private(self.generator), len(self.data_source), self.num_samples
        while left > 0:
            if self.replacement:
                part = rng.integers(0, n, min(left, _CHUNK))
            else:
                part = rng.permutation(n)[:left]
            left -= len(part)
            yield from _numbers(part)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in _numbers(_private(self.generator).permutation(len(self.indices))):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """``num_samples`` indices, drawn with probabilities in proportion to ``weights``.

    Without replacement by exponential keys (Efraimidis and Spirakis, 2006).
    """

    def __init__(
        self,
        weights: object,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        array = weights.detach().cpu().array if isinstance(weights, Tensor) else weights
        self.weights = np.asarray(array, np.float64)
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator
        w, usable = self.weights, int((self.weights > 0).sum())
        if w.ndim != 1 or not np.isfinite(w).all() or (w < 0).any() or not usable:
            raise ConfigError(
                f"WeightedRandomSampler: weights of shape {list(w.shape)} given; needed one finite "
                "number of 0 or more for each sample, not all 0"
            )
        if not _is_count(num_samples) or (not replacement and num_samples > usable):
            raise ConfigError(
                f"WeightedRandomSampler: num_samples={num_samples!r} given; 1 or more is needed, "
                f"and without replacement at most {usable} (the weights above 0)"
            )

    def __iter__(self) -> Iterator[int]:
        yield from _numbers(self._draw())  # when the first is asked for, as with every sampler

    def _draw(self) -> np.ndarray:
        rng = _private(self.generator)
        if self.replacement:
            ends = np.cumsum(self.weights)
            at = rng.random(self.num_samples) * ends[-1]
            last = np.flatnonzero(self.weights)[-1]  # rounding may reach the very end
            return np.minimum(np.searchsorted(ends, at, side="right"), last)
        with np.errstate(divide="ignore"):
            keys = rng.standard_exponential(len(self.weights)) / self.weights
        return np.argsort(keys)[: self.num_samples]

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list]):
    """Lists of ``batch_size`` indices of ``sampler``; the last one may be shorter."""

    def __init__(self, sampler: Iterable, batch_size: int, drop_last: bool) -> None:
        if not _is_count(batch_size):
            raise ConfigError(f"batch_size={batch_size!r} given; a whole number of 1 or more is "
                              "needed")  # fmt: skip
        if not isinstance(drop_last, bool):
            raise ConfigError(f"drop_last={drop_last!r} given; True or False is needed")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return whole + (rest > 0 and not self.drop_last)


class DistributedSampler(Sampler[int]):
    """Each rank's share of a dataset: every ``num_replicas``-th index, beginning at ``rank``.

    All ranks get equally many: the first indices are repeated at the end, or with ``drop_last``
    the last ones left out. Call ``set_epoch`` before each epoch, else every epoch has the same
    order. Rank and number of ranks are those of the calling rank where they are not given.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        me = context.current()
        self.num_replicas = me.world_size if num_replicas is None else num_replicas
        self.rank = me.rank if rank is None else rank
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, shuffle, seed, drop_last
        self.epoch = 0
        self._start = self._began = 0  # in the order of all ranks: of the next pass, of this one
        if not _is_count(self.num_replicas) or not 0 <= self.rank < self.num_replicas:
            raise ConfigError(
                f"DistributedSampler: Invalid rank {self.rank} of {self.num_replicas} replicas "
                "given; needed 1 or more replicas, and a rank from 0 to one less"
            )

    @property
    def num_samples(self) -> int:
        """How many indices each rank gets."""
        whole, rest = divmod(len(self.dataset), self.num_replicas)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def total_size(self) -> int:
        """How many indices all ranks get together."""
        return self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            rng = np.random.Generator(np.random.SFC64((self.seed + self.epoch) % (1 << 64)))
            order = rng.permutation(n)
        else:
            order = np.arange(n)
        order = np.resize(order, self.total_size if n else 0)  # repeats from the start, or cuts
        self._began, self._start = self._start, 0
        if self._began:
            order = self._rest(order[self._began :])
        return _numbers(order[self.rank :: self.num_replicas])

    def _rest(self, order: np.ndarray) -> np.ndarray:
        """What is left of an epoch that so many ranks did not begin may not divide by them."""
        whole, rest = divmod(len(order), self.num_replicas)
        whole += rest > 0 and not self.drop_last
        return np.resize(order, whole * self.num_replicas if len(order) else 0)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of ``epoch``: with ``shuffle`` each number gives another."""
        if epoch != self.epoch:
            self._start = 0
        self.epoch = epoch

    def state_at(self, count: int) -> dict[str, Any]:
        """For ``load_state_dict``, when ``count`` indices of this pass were used. The place counts
        those of all ranks, so any number of ranks can go on from it."""
        taken = min(self._began + count * self.num_replicas, self.total_size)
        return {"epoch": self.epoch, "taken": taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next pass goes on there: the ``state_at`` of a sampler of any number of ranks. Its
        ``len`` stays that of a whole epoch."""
        self.epoch, self._start = int(state["epoch"]), int(state["taken"])


def num_batches(num_samples: int, batch_size: int, drop_last: bool) -> int:
    """How many batches ``num_samples`` make."""
    return num_samples // batch_size if drop_last else math.ceil(num_samples / batch_size)
