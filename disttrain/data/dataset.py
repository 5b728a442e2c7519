"""Datasets: what can be asked for a sample by its number (or, iterable ones, for the next sample).

A dataset may offer more than ``__getitem__``:

* ``__getitems__(indices)`` returns the list of those samples in one call;
* ``__getbatch__(indices)`` returns what ``default_collate`` would make of those samples. The
  DataLoader calls it in place of both, with an int64 array, when it collates by default.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ..core import Tensor, wrap
from ..core.random import Generator, default_generator
from ..errors import ConfigError, DimError, ShapeError
from ..trace import warn

T = TypeVar("T", covariant=True)


class Indexed(Protocol[T]):
    """Whatever has samples by number: a list, an array, an object of a class of any kind."""

    def __getitem__(self, index: Any, /) -> T: ...


class Dataset(Generic[T]):
    """A map from numbers to samples. Write ``__getitem__`` and ``__len__``."""

    def __getitem__(self, index: int) -> T:
        raise NotImplementedError(f"{type(self).__name__} needs a __getitem__(self, index)")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """A stream of samples. Write ``__iter__``; with worker processes, each iterates its own copy:
    ``get_worker_info()`` says which part is its own."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} needs an __iter__(self)")

    def __add__(self, other: Dataset) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


def take(source: Any, indices: np.ndarray) -> Tensor:
    """Rows of a Tensor or array as a new Tensor."""
    if source.__class__ is Tensor and source._node is None:
        array = source.__dict__.get("array")
        if array.__class__ is np.ndarray:
            source = array
    if isinstance(source, np.ndarray):
        return wrap(source.take(indices, 0))
    return source[wrap(indices)]


class TensorDataset(Dataset[tuple]):
    """Samples are the rows of tensors (or numpy arrays) of the same first size."""

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tuple(wrap(t) if isinstance(t, np.ndarray) else t for t in tensors)
        sizes = [tuple(t.shape)[:1] for t in self.tensors]
        if not sizes or () in sizes or len(set(sizes)) > 1:
            raise ShapeError(
                f"TensorDataset: tensors of shapes {[list(t.shape) for t in self.tensors]} given; "
                "one or more with the same first size are needed"
            )

    def __getitem__(self, index: Tensor | int) -> tuple:
        return tuple(t[index] for t in self.tensors)

    def __getbatch__(self, indices: np.ndarray) -> list[Tensor]:
        return [take(t, indices) for t in self.tensors]

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset):
    """Samples put together from several datasets: tuples, or dicts when given by keyword."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ConfigError(
                "StackDataset: Supported either datasets by position or datasets by name, one or "
                "more; not both"
            )
        self.datasets: Any = kwargs or args
        parts = list(kwargs.values()) if kwargs else list(args)
        sizes = [len(d) for d in parts]
        if len(set(sizes)) > 1:
            raise ShapeError(f"StackDataset: Size mismatch between datasets: {sizes} samples")
        self._length = sizes[0]

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: Sequence) -> list:
        if isinstance(self.datasets, dict):
            columns = [samples(d, indices) for d in self.datasets.values()]
            return [dict(zip(self.datasets, row, strict=True)) for row in zip(*columns)]
        return list(zip(*(samples(d, indices) for d in self.datasets)))

    def __len__(self) -> int:
        return self._length


def _length(dataset: Any) -> int:
    """Of a dataset that has one; others raise ``TypeError``."""
    return len(dataset)


class ConcatDataset(Dataset):
    """Datasets one after another. ``cumulative_sizes`` says where each ends."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets: list[Any] = list(datasets)
        if not self.datasets:
            raise ConfigError("ConcatDataset: no dataset given; one or more are needed")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise ConfigError("ConcatDataset: an IterableDataset given; use ChainDataset for those")
        self.cumulative_sizes = list(itertools.accumulate(map(_length, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        length = len(self)
        if not -length <= index < length:
            raise DimError(f"ConcatDataset: index {index} given; it has {length} samples")
        index %= length
        part = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[part - 1] if part else 0
        return self.datasets[part][index - before]

    @property
    def cummulative_sizes(self) -> list[int]:
        """``cumulative_sizes`` by the name that older programs use."""
        return self.cumulative_sizes


class _NotIterable(ConfigError, AssertionError):
    """The type that programs written for PyTorch expect."""


class ChainDataset(IterableDataset):
    """Iterable datasets one after another."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets: Iterable[Any] = datasets

    def __iter__(self) -> Iterator:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise _NotIterable(
                    "ChainDataset only supports IterableDataset; this one has a "
                    f"{type(d).__name__}. Use ConcatDataset for datasets with indices"
                )
            yield from d

    def __len__(self) -> int:
        return sum(map(_length, self.datasets))


class Subset(Dataset):
    """The samples of ``dataset`` at ``indices``."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int | list) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list:
        return samples(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def _offers(dataset: object, name: str) -> bool:
    """Does the class have method ``name``, and not below it another ``__getitem__``? A class that
    changes that one means other samples than the ``name`` it inherits would give."""
    for kind in type(dataset).__mro__:
        if vars(kind).get(name) is not None:
            return True
        if "__getitem__" in vars(kind):
            return False
    return False


def samples(dataset: Any, indices: Sequence) -> list:
    """The samples at ``indices``, in one call where the dataset has one."""
    if _offers(dataset, "__getitems__"):
        return dataset.__getitems__(indices)
    return [dataset[i] for i in indices]


def batch_getter(dataset: Any) -> Callable[[np.ndarray], Any] | None:
    """A function that gives the default batch at an int64 array of indices, or None."""
    if isinstance(dataset, Tensor):
        return lambda indices: take(dataset, indices)
    if type(dataset) is np.ndarray and dataset.dtype.kind in "biufc" and dataset.ndim:
        return lambda indices: take(dataset, indices)
    if type(dataset) is Subset:
        return _subset_getter(dataset)
    return dataset.__getbatch__ if _offers(dataset, "__getbatch__") else None


def _subset_getter(subset: Subset) -> Callable[[np.ndarray], Any] | None:
    inner = batch_getter(subset.dataset)
    if inner is None or not len(subset):
        return None
    named = subset.indices
    places = np.asarray(named.cpu() if isinstance(named, Tensor) else named)
    if places.dtype.kind not in "iu":
        return None
    return lambda indices: inner(places[indices])


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset]:
    """Split ``dataset`` at random into parts of the given lengths.

    Lengths are numbers of samples, or fractions that add up to 1; what rounding leaves over goes
    to the parts in turn.
    """
    total = len(dataset)
    sizes: list[float] = list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        sizes = [*_of_fractions(sizes, total)]
    if sum(sizes) != total or any(n < 0 or n != int(n) for n in sizes):
        raise ConfigError(
            f"random_split: lengths {list(lengths)} given for a dataset of {total} samples; "
            "needed whole numbers that add up to that, or fractions that add up to 1"
        )
    order = rng_of(generator).permutation(total).tolist()
    ends = itertools.accumulate(map(int, sizes))
    return [Subset(dataset, order[end - int(n) : end]) for n, end in zip(sizes, ends, strict=True)]


def _of_fractions(fractions: list[float], total: int) -> list[int]:
    for i, part in enumerate(fractions):
        if not 0 <= part <= 1:
            raise ConfigError(f"random_split: fraction {part} at {i}; it must lie in 0 to 1")
    sizes = [math.floor(total * part) for part in fractions]
    for i in range(total - sum(sizes)):
        sizes[i % len(sizes)] += 1
    for i, n in enumerate(sizes):
        if n == 0:
            warn(f"random_split: part {i} has no samples")
    return sizes


def rng_of(generator: object) -> np.random.Generator:
    """numpy's generator behind ours, or itself; None: that of the calling rank. Orders are drawn
    on the host: behind one of an accelerator is a new one for each of its draws."""
    if generator is None:
        return default_generator.rng
    if isinstance(generator, np.random.Generator):
        return generator
    if isinstance(generator, Generator):
        if generator.device.type != "cpu":
            return np.random.Generator(np.random.SFC64(generator.take()[1]))
        return generator.rng
    raise ConfigError(
        f"generator: {type(generator).__name__} given; a Generator of this library or numpy's "
        "is needed"
    )
