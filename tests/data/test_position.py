"""A DataLoader that goes on in the middle of an epoch gives what the other would have given."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest

import disttrain as dt
from disttrain.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler
from disttrain.distributed.invariant import VirtualShards, VirtualShardSampler
from disttrain.errors import ConfigError


class Noisy(Dataset):
    """Samples with random numbers of every stream."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        drawn = random.random(), np.random.randn(), dt.rand(1).item()
        return np.array([index, *drawn])


class Shuffled(Sampler):
    def __len__(self):
        return 23

    def __iter__(self):
        order = list(range(23))
        random.shuffle(order)
        yield from order


class Stream(IterableDataset):
    def __iter__(self):
        info = dt.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for i in range(first, 29, step):
            yield np.array([i])


class Place(IterableDataset):
    """Keeps its own place, and says what was read again."""

    def __init__(self):
        self.at, self.reads = 0, 0

    def __iter__(self):
        while self.at < 29:
            self.at, self.reads = self.at + 1, self.reads + 1
            yield np.array([self.at])

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


ORDERS = {
    "shuffle": lambda: {"shuffle": True},
    "own generator": lambda: {"shuffle": True, "generator": dt.Generator().manual_seed(4)},
    "numpy's generator": lambda: {"shuffle": True, "generator": np.random.default_rng(3)},
    "SFC64": lambda: {
        "shuffle": True,
        "generator": np.random.Generator(np.random.SFC64(3)),
    },
    "own sampler": lambda: {"sampler": Shuffled()},
    "ranks": lambda: {"sampler": DistributedSampler(range(23), 2, 1)},
    "stream": lambda: {"dataset": Stream()},
    "place": lambda: {"dataset": Place()},
}


def make(order: str, workers: int, **how) -> DataLoader:
    return DataLoader(
        **{"dataset": Noisy(), "batch_size": 3, "num_workers": workers, **ORDERS[order](), **how}
    )


def seed(number: int) -> None:
    dt.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def streams():
    return dt.get_rng_state(), random.getstate(), np.random.get_state()


def go_to(states) -> None:
    dt.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def rest(batches) -> list:
    """What is left, with draws of the program in between."""
    found = []
    for batch in batches:
        found.append(batch.tolist())
        dt.rand(2)
    return found


def saved(state):
    """Through a file, as a checkpoint does it."""
    file = io.BytesIO()
    dt.save(state, file)
    file.seek(0)
    return dt.load(file)


def check(order: str, workers: int, epochs: int, cut: int, **how) -> None:
    seed(1)
    whole = make(order, workers, **how)
    for _ in range(epochs):
        rest(whole)
    it = iter(whole)
    for _ in range(cut):
        next(it, None)
        dt.rand(2)
    state, then = saved(whole.state_dict()), streams()
    expected, after = rest(it), rest(whole)
    seed(99)
    other = make(order, workers, **how)
    go_to(then)
    other.load_state_dict(state)
    found = [] if state["finished"] else rest(other)
    assert found == expected, (order, workers, epochs, cut)
    if not workers:
        assert rest(other) == after


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cut", [0, 1, 5, 8, 9])
def test_here(order, cut):
    check(order, 0, 0, cut)
    if order != "place":
        check(order, 0, 1, cut)


@pytest.mark.parametrize("order", ["shuffle", "own generator", "ranks", "stream"])
def test_with_workers(order):
    """Also what the workers draw at random is the same."""
    check(order, 2, 0, 0)
    check(order, 2, 0, 5)


def test_workers_that_stay():
    check("shuffle", 2, 1, 1, persistent_workers=True)


def test_batches_out_of_turn_are_not_given_twice():
    seed(1)
    whole = make("shuffle", 2, in_order=False)
    it = iter(whole)
    first = [next(it).tolist() for _ in range(4)]
    other = make("shuffle", 2, in_order=False)
    other.load_state_dict(whole.state_dict())
    again = iter(other)
    second = [next(again).tolist()]
    third = make("shuffle", 2, in_order=False)
    third.load_state_dict(other.state_dict())
    given = [row[0] for batch in first + second + rest(third) for row in batch]
    assert sorted(given) == list(range(23))


def test_a_dataset_that_keeps_its_place_is_not_read_again():
    whole = make("place", 0)
    it = iter(whole)
    next(it), next(it)
    other = make("place", 0)
    other.load_state_dict(whole.state_dict())
    assert next(iter(other)).tolist() == next(it).tolist() == [[7], [8], [9]]
    assert other.dataset.reads == 3


@pytest.mark.parametrize("then", [1, 2, 3, 4])
def test_other_ranks_take_what_is_left(then):
    """Global batches of 12 samples: the same ones on any number of ranks."""

    def loaders(size):
        samplers = [DistributedSampler(range(61), size, r, seed=5, drop_last=True)
                    for r in range(size)]  # fmt: skip
        return [DataLoader(range(61), 12 // size, sampler=s, drop_last=True) for s in samplers]

    def steps(its):
        return [sorted(v for b in step for v in b.tolist()) for step in zip(*its, strict=False)]

    first = loaders(2)
    its = [iter(x) for x in first]
    for it in its:
        next(it), next(it)
    state = first[0].state_dict()
    others = loaders(then)
    for other in others:
        other.load_state_dict(state)
    assert steps(others) == steps(its)
    assert steps(others)[:3] != steps(its)  # a whole epoch again


def test_virtual_shards_take_what_is_left():
    def sampler(rank, size):
        return VirtualShardSampler(range(50), VirtualShards(4, rank, size), 8, seed=3)

    first = DataLoader(range(50), batch_sampler=sampler(0, 1))
    it = iter(first)
    for _ in range(8):
        next(it)
    others = [DataLoader(range(50), batch_sampler=sampler(r, 2)) for r in range(2)]
    for other in others:
        other.load_state_dict(first.state_dict())
    found = [[b.tolist() for b in other] for other in others]
    joined = [b for i in range(0, len(found[0]), 2) for f in found for b in f[i : i + 2]]
    assert joined == [b.tolist() for b in it] and len(joined) == 16
    it = iter(first)
    next(it)
    lone = DataLoader(range(50), batch_sampler=sampler(0, 2))
    next(iter(lone))
    with pytest.raises(ConfigError, match="between two steps"):
        lone.state_dict()


def test_another_epoch_begins_at_its_start():
    sampler = DistributedSampler(range(10), 2, 0)
    sampler.load_state_dict({"epoch": 3, "taken": 4})
    sampler.set_epoch(3)
    assert len(list(sampler)) == 3 and len(list(sampler)) == 5
    sampler.load_state_dict({"epoch": 3, "taken": 4})
    sampler.set_epoch(4)
    assert len(list(sampler)) == 5


def test_what_is_no_state_is_refused():
    with pytest.raises(ConfigError, match="without fetched, finished"):
        make("shuffle", 0).load_state_dict({"epoch": 1})


def test_a_loader_that_was_not_asked_yet():
    seed(1)
    whole = make("shuffle", 0)
    state = whole.state_dict()
    then = streams()
    expected = rest(whole)
    go_to(then)
    other = make("shuffle", 0)
    other.load_state_dict(state)
    assert rest(other) == expected


@pytest.mark.simulated
def test_numbers_of_ranks_can_be_saved():
    def body():
        dt.distributed.init_process_group()
        file = io.BytesIO()
        dt.save({"size": dt.distributed.get_world_size(), "step": 3}, file)
        file.seek(0)
        return dt.load(file)

    assert dt.distributed.simulate(body, 2, seed=1).results == [{"size": 2, "step": 3}] * 2
