"""Samplers: orders, their seeds, and the share of each rank."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest

from disttrain import context
from disttrain.core import wrap
from disttrain.core.random import Generator, get_rng_state, manual_seed
from disttrain.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from disttrain.errors import ConfigError


def seeded(seed=0):
    return Generator().manual_seed(seed)


def test_sequential():
    assert list(SequentialSampler("abc")) == [0, 1, 2] and len(SequentialSampler("abc")) == 3


def test_random_is_a_permutation_that_the_seed_decides():
    data = range(1000)
    a = list(RandomSampler(data, generator=seeded()))
    assert sorted(a) == list(data) and a != list(data)
    assert a == list(RandomSampler(data, generator=seeded()))
    assert a != list(RandomSampler(data, generator=seeded(1)))
    assert {type(i) for i in a} == {int}


def test_random_under_the_ranks_seed():
    orders = []
    for _ in range(2):
        manual_seed(3)
        sampler = RandomSampler(range(50))
        orders.append((list(sampler), list(sampler)))
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]


def test_draws_in_between_do_not_change_the_order():
    manual_seed(3)
    whole = list(RandomSampler(range(200_000)))
    manual_seed(3)
    mixed = []
    for i in RandomSampler(range(200_000)):
        mixed.append(i)
        if len(mixed) % 50_000 == 1:
            manual_seed(len(mixed))
    assert mixed == whole


@pytest.mark.parametrize("n", [1, 7, 10, 25, 150_000])
def test_random_num_samples(n):
    drawn = list(RandomSampler(range(10), num_samples=n, generator=seeded()))
    assert len(drawn) == n == len(RandomSampler(range(10), num_samples=n))
    for start in range(0, n - 9, 10)[:50]:
        assert sorted(drawn[start : start + 10]) == list(range(10))
    with_repeats = list(RandomSampler(range(10), True, n, seeded()))
    assert len(with_repeats) == n and set(with_repeats) <= set(range(10))


def test_random_refuses():
    for options in ({"num_samples": 0}, {"num_samples": 1.5}, {"num_samples": True}):
        with pytest.raises(ConfigError, match="num_samples"):
            RandomSampler(range(3), **options)
    with pytest.raises(ConfigError, match="0 samples"):
        RandomSampler([])
    with pytest.raises(ConfigError, match="replacement"):
        RandomSampler(range(3), replacement=2)
    with pytest.raises(ConfigError, match="Generator"):
        list(RandomSampler(range(3), generator=3))
    assert sorted(RandomSampler(range(3), generator=np.random.default_rng(0))) == [0, 1, 2]


def test_subset_random():
    sampler = SubsetRandomSampler([5, 7, 9], seeded())
    assert sorted(sampler) == [5, 7, 9] and len(sampler) == 3


def test_weighted():
    weights = wrap(np.array([0.0, 1.0, 3.0, 0.0]))
    counts = collections.Counter(WeightedRandomSampler(weights, 8000, True, seeded()))
    assert set(counts) == {1, 2} and 2.5 < counts[2] / counts[1] < 3.6
    without = [tuple(WeightedRandomSampler([1, 0, 2, 1], 3, False, seeded(s))) for s in range(50)]
    assert all(sorted(w) == [0, 2, 3] for w in without) and len(set(without)) > 3
    assert len(WeightedRandomSampler([1], 5)) == 5


@pytest.mark.parametrize(
    "args",
    [([], 1), ([0, 0], 1), ([1, -1], 1), ([1, float("nan")], 1), ([[1]], 1), ([1], 0),
     ([1, 0], 2, False), ([1], True)],
)  # fmt: skip
def test_weighted_refuses(args):
    with pytest.raises(ConfigError, match="WeightedRandomSampler"):
        WeightedRandomSampler(*args)


def test_batches():
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    for n, size, drop in itertools.product(range(7), range(1, 4), (True, False)):
        batches = BatchSampler(range(n), size, drop)
        assert len(list(batches)) == len(batches)
    for bad in (0, -1, 1.5, True, None):
        with pytest.raises(ConfigError, match="batch_size"):
            BatchSampler(range(3), bad, False)
    with pytest.raises(ConfigError, match="drop_last"):
        BatchSampler(range(3), 1, 1)


def test_sampler_needs_iter():
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(Sampler())


# --- ranks ----------------------------------------------------------------------------------------


def shares(n, ranks, epoch=0, **options):
    out = []
    for r in range(ranks):
        sampler = DistributedSampler(range(n), ranks, r, **options)
        sampler.set_epoch(epoch)
        out.append(list(sampler))
        assert len(out[-1]) == len(sampler)
    return out


def test_distributed_without_shuffle_deals_in_turn():
    assert shares(7, 3, shuffle=False) == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert shares(7, 3, shuffle=False, drop_last=True) == [[0, 3], [1, 4], [2, 5]]
    assert shares(6, 3, shuffle=False) == shares(6, 3, shuffle=False, drop_last=True)


def test_distributed_shuffles_by_seed_and_epoch():
    a = shares(100, 4)
    assert sorted(itertools.chain(*a)) == list(range(100))
    assert a == shares(100, 4) != shares(100, 4, epoch=1)
    assert shares(100, 4, epoch=3, seed=2) == shares(100, 4, epoch=2, seed=3)


def test_distributed_leaves_the_ranks_generator_alone():
    before = get_rng_state().array.tolist()
    shares(10, 2)
    assert get_rng_state().array.tolist() == before


@pytest.mark.parametrize("n", [4, 5, 7, 8, 9])
@pytest.mark.parametrize("drop", [True, False])
def test_distributed_sizes(n, drop):
    got = shares(n, 4, drop_last=drop)
    assert len({len(s) for s in got}) == 1
    sampler = DistributedSampler(range(n), 4, 0, drop_last=drop)
    assert sum(map(len, got)) == sampler.total_size == 4 * sampler.num_samples
    seen = set(itertools.chain(*got))
    assert seen <= set(range(n)) and (drop or seen == set(range(n)))


def test_distributed_takes_the_calling_ranks_numbers():
    with context.attach(context.Rank(rank=2, world_size=3)):
        sampler = DistributedSampler(range(7), shuffle=False)
    assert (sampler.rank, sampler.num_replicas) == (2, 3) and list(sampler) == [2, 5, 1]


def test_distributed_refuses():
    for ranks, rank in ((2, 2), (2, -1), (0, 0)):
        with pytest.raises(ConfigError, match="replicas"):
            DistributedSampler(range(10), ranks, rank)


def test_distributed_shares_fewer_samples_than_ranks():
    assert shares(3, 4, shuffle=False) == [[0], [1], [2], [0]]
    assert shares(3, 4, drop_last=True) == shares(0, 4) == [[]] * 4


@pytest.mark.parametrize("options", [{}, {"replacement": False}])
def test_weighted_draws_when_the_first_is_asked_for(options):
    """... as all others do, so that a seed set after iter() counts."""
    for sampler in (WeightedRandomSampler([1, 2, 3, 4], 4, **options), RandomSampler(range(9))):
        passes = []
        for it in (iter(sampler), iter(sampler)):
            manual_seed(3)
            passes.append(list(it))
        manual_seed(3)
        late = iter(sampler)
        manual_seed(4)
        assert passes[0] == passes[1] != list(late)


def test_replacement_draws_independently():
    """Every pass draws anew from the generator, which goes on; all are equally likely."""
    sampler = RandomSampler(range(4), True, 40_000, seeded())
    first, second = list(sampler), list(sampler)
    assert first != second and first == list(RandomSampler(range(4), True, 40_000, seeded()))
    counts, pairs = collections.Counter(first), collections.Counter(itertools.pairwise(first))
    assert all(abs(counts[i] - 10_000) < 500 for i in range(4))
    assert len(pairs) == 16 and all(abs(n - 2_500) < 300 for n in pairs.values())


@pytest.mark.peer
def test_distributed_as_in_pytorch():
    import torch.utils.data

    for n, ranks, drop in itertools.product((4, 5, 11, 16), (1, 2, 3, 4), (True, False)):
        for r in range(ranks):
            options = {"shuffle": False, "drop_last": drop}
            theirs = torch.utils.data.DistributedSampler(range(n), ranks, r, **options)
            assert list(DistributedSampler(range(n), ranks, r, **options)) == list(theirs)
