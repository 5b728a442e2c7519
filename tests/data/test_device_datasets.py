"""Datasets whose tensors lie on a device, and generators of devices that order them."""

import pytest

import disttrain as dt
from disttrain.data import (
    DataLoader,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


def _rows(loader):
    got = list(loader)
    assert all(x.device == "cuda:0" and y.device == "cuda:0" for x, y in got)
    return sorted(y for _, ys in got for y in ys.tolist())


def test_every_way_to_batches(double):
    where = dt.device("cuda", 0)
    data = TensorDataset(dt.arange(24.0, device=where).reshape(12, 2), dt.arange(12, device=where))
    some = dt.tensor([1, 5, 7], device=where)
    assert _rows(DataLoader(data, 5)) == _rows(DataLoader(data, 5, shuffle=True)) == [*range(12)]
    assert _rows(DataLoader(Subset(data, some), 2)) == [1, 5, 7]
    assert _rows(DataLoader(data, 2, sampler=SubsetRandomSampler(some))) == [1, 5, 7]
    weighted = WeightedRandomSampler(dt.arange(12.0, device=where), 11, replacement=False)
    assert _rows(DataLoader(data, 4, sampler=weighted)) == [*range(1, 12)]
    double.counts.clear()
    next(iter(DataLoader(data, 4)))
    assert not double.counts.waits


def test_a_device_s_generator_orders_and_is_put_back(double):
    dt.set_default_device("cuda")
    try:
        own = dt.Generator("cuda").manual_seed(3)
        loader = DataLoader(TensorDataset(dt.arange(12), dt.arange(12)), 4, True, generator=own)
        state = own.get_state()
        first, second = ([y.tolist() for _, y in loader] for _ in range(2))
        assert first != second
        own.set_state(state)
        assert [y.tolist() for _, y in loader] == first
        iterator = iter(loader)
        next(iterator)
        position = loader.state_dict()
        rest = [y.tolist() for _, y in iterator]
        loader.load_state_dict(position)
        assert [y.tolist() for _, y in loader] == rest
        parts = random_split(range(10), [7, 3], generator=own)
        assert sorted(i for part in parts for i in part) == [*range(10)]
        assert len(list(RandomSampler(range(5), True, 7, own))) == 7
    finally:
        dt.set_default_device(None)


def test_samples_on_several_devices_are_told(double):
    mixed = [dt.ones(2), dt.ones(2, device="cuda")]
    with pytest.raises(RuntimeError, match=r"on cuda:0, .* on cpu"):
        next(iter(DataLoader(mixed, 2)))
