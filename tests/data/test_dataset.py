"""Datasets, and which of them give whole batches."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from disttrain.core import wrap
from disttrain.core.random import Generator, manual_seed
from disttrain.data import (
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from disttrain.data.dataset import batch_getter, samples
from disttrain.errors import ConfigError, ShapeError


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i * i


class Count(IterableDataset):
    def __init__(self, *numbers):
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)

    def __len__(self):
        return len(self.numbers)


def pair(n=10):
    return TensorDataset(wrap(np.arange(n * 2.0).reshape(n, 2)), np.arange(n))


def test_tensor_dataset():
    data = pair()
    assert len(data) == 10
    x, y = data[3]
    assert x.array.tolist() == [6, 7] and y.array == 3
    assert data[-1][1].array == 9
    with pytest.raises(IndexError):
        data[10]
    for bad in ((), (wrap(np.zeros(3)), wrap(np.zeros(4))), (wrap(np.zeros(())),)):
        with pytest.raises(ShapeError, match="same first size"):
            TensorDataset(*bad)


def test_missing_methods_say_what_is_missing():
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(IterableDataset())


def test_concat():
    both = Squares(3) + Squares(2)
    assert isinstance(both, ConcatDataset) and len(both) == 5
    assert [both[i] for i in range(5)] == [0, 1, 4, 0, 1] and both[-1] == 1
    assert both.cumulative_sizes == both.cummulative_sizes == [3, 5]
    for i in (5, -6):
        with pytest.raises(IndexError, match="5 samples"):
            both[i]
    for bad in ([], [Count(1)]):
        with pytest.raises(ConfigError):
            ConcatDataset(bad)


def test_chain():
    chain = Count(1, 2) + Count(3)
    assert isinstance(chain, ChainDataset) and list(chain) == [1, 2, 3] and len(chain) == 3
    with pytest.raises(ConfigError, match=r"only supports IterableDataset.*Squares"):
        list(ChainDataset([Squares(2)]))


def test_subset():
    part = Subset(Squares(10), [3, 5, 7])
    assert len(part) == 3 and part[1] == 25 and part.__getitems__([2, 0]) == [49, 9]
    assert Subset(np.arange(10) * 2, [3, 5])[[0, 1]].tolist() == [6, 10]


def test_stack():
    data = StackDataset(Squares(3), [5, 6, 7])
    assert data[1] == (1, 6) and data.__getitems__([0, 2]) == [(0, 5), (4, 7)] and len(data) == 3
    named = StackDataset(x=Squares(3), y=[5, 6, 7])
    assert named[1] == {"x": 1, "y": 6}
    assert named.__getitems__([0, 2]) == [{"x": 0, "y": 5}, {"x": 4, "y": 7}]
    with pytest.raises(ShapeError, match=r"\[3, 2\]"):
        StackDataset(Squares(3), Squares(2))
    for args, named in (((), {}), ((Squares(1),), {"a": Squares(1)})):
        with pytest.raises(ConfigError):
            StackDataset(*args, **named)


def test_whole_batches_equal_collated_samples():
    """``__getbatch__`` promises what default_collate makes of the samples."""
    data = pair()
    order = np.array([3, -1, 0, 3])
    for source in (data, Subset(data, list(range(9, -1, -1))), data.tensors[0], np.arange(10.0)):
        fast = batch_getter(source)(order)
        slow = next(iter(DataLoader(Plain(source), batch_sampler=[order.tolist()])))
        fast, slow = (v if isinstance(v, list) else [v] for v in (fast, slow))
        for a, b in zip(fast, slow, strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape
            np.testing.assert_array_equal(a.array, b.array)


class Plain(Dataset):
    """Another dataset's samples, one by one."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        return self.source[i]


class Negated(TensorDataset):
    def __getitem__(self, i):
        return tuple(t.array * -1 for t in super().__getitem__(i))


class Doubled(Subset):
    def __getitem__(self, i):
        return super().__getitem__(i) * 2


def test_changed_samples_are_not_passed_over():
    """A subclass with its own __getitem__ is asked for samples, not for inherited batches."""
    assert batch_getter(Negated(np.arange(3))) is None
    assert next(iter(DataLoader(Negated(np.arange(3)), 3)))[0].array.tolist() == [0, -1, -2]
    assert samples(Doubled(Squares(5), [1, 2]), [0, 1]) == [2, 8]
    assert batch_getter(Doubled(pair(), [0])) is None
    assert batch_getter(Subset(Squares(3), [0])) is None


def test_rows_of_a_tensor_that_requires_grad_stay_in_the_graph():
    weight = wrap(np.arange(6.0).reshape(3, 2)).requires_grad_()
    (rows,) = next(iter(DataLoader(TensorDataset(weight), 2)))
    assert rows.requires_grad


def test_random_split():
    manual_seed(1)
    parts = random_split(Squares(10), [7, 3])
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(parts[0].indices + parts[1].indices) == list(range(10))
    manual_seed(1)
    assert random_split(Squares(10), [7, 3])[0].indices == parts[0].indices
    thirds = random_split(Squares(11), [1 / 3, 1 / 3, 1 / 3], Generator().manual_seed(0))
    assert [len(p) for p in thirds] == [4, 4, 3]


def test_random_split_refuses_what_does_not_add_up():
    for bad in ([5, 4], [11, -1], [0.5, 0.4], [2.5, 7.5], [1.5, -0.5]):
        with pytest.raises(ConfigError, match="random_split"):
            random_split(Squares(10), bad)
    with pytest.warns(UserWarning, match="part 1 has no samples"):
        random_split(Squares(1), [0.9, 0.1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        random_split(Squares(2), [0.5, 0.5])
