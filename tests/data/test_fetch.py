"""From what a sampler gives to a batch."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.data import TensorDataset, default_collate
from disttrain.data.fetch import Plan, fetcher


def test_samples_one_by_one():
    fetch = fetcher(Plan([10, 20, 30], lambda x: ("made", x), iterable=False, batched=False))
    assert fetch(2) == ("made", 30)


def test_samples_in_batches():
    fetch = fetcher(Plan([10, 20, 30], list, iterable=False, batched=True))
    assert fetch([2, 0]) == [30, 10]
    fetch = fetcher(Plan([1.0, 2.0], default_collate, iterable=False, batched=True))
    assert fetch([1, 0]).tolist() == [2.0, 1.0]


def test_datasets_of_tensors_give_whole_batches_at_once():
    data = TensorDataset(dt.arange(8.0), dt.arange(16).reshape(8, 2))
    fetch = fetcher(Plan(data, default_collate, iterable=False, batched=True))
    x, y = fetch([3, 1])
    assert x.tolist() == [3.0, 1.0] and y.tolist() == [[6, 7], [2, 3]]
    x, _ = fetch(np.array([7]))
    assert x.tolist() == [7.0]


@pytest.mark.parametrize(("drop", "sizes"), [(False, [2, 2, 1]), (True, [2, 2])])
def test_streams_are_cut_into_batches(drop, sizes):
    fetch = fetcher(Plan(range(5), list, True, True, batch_size=2, drop_last=drop))
    assert [len(fetch(None)) for _ in sizes] == sizes
    with pytest.raises(StopIteration):
        fetch(None)


def test_streams_of_samples_end():
    fetch = fetcher(Plan(iter("ab"), str.upper, iterable=True, batched=False))
    assert [fetch(None), fetch(None)] == ["A", "B"]
    with pytest.raises(StopIteration):
        fetch(None)
