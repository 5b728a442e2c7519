"""Batches by virtual shard: the same samples on any number of ranks."""

from __future__ import annotations

import pytest

from disttrain.distributed.invariant.sampler import VirtualShardSampler
from disttrain.distributed.invariant.shards import VirtualShards
from disttrain.errors import ConfigError


def batches(size, length=26, epoch=0, **words):
    """Per step and shard, its samples."""
    found = {}
    for rank in range(size):
        shards = VirtualShards(4, rank, size)
        sampler = VirtualShardSampler(range(length), shards, 8, **words)
        sampler.set_epoch(epoch)
        for i, batch in enumerate(sampler):
            step, k = divmod(i, shards.each)
            found[step, shards.ids[k]] = batch
    return found


def test_shards_get_the_same_whoever_computes_them():
    assert batches(1) == batches(2) == batches(4) != batches(1, epoch=1)
    flat = [i for batch in batches(1).values() for i in batch]
    assert len(flat) == len(set(flat)) == 24 and all(len(b) == 2 for b in batches(1).values())
    assert batches(1, shuffle=False)[0, 0] == [0, 1]


def test_what_does_not_fill_a_step_is_left_out_or_filled_up():
    filled = batches(2, shuffle=False, drop_last=False)
    assert len(filled) == 16 and filled[3, 0] == [24, 25] and filled[3, 1] == [0, 1]


def test_a_pass_goes_on_where_it_was():
    shards = VirtualShards(4, 0, 2)
    sampler = VirtualShardSampler(range(26), shards, 8)
    whole = list(sampler)
    sampler.load_state_dict(sampler.state_at(4))
    assert list(sampler) == whole[4:] and list(sampler) == whole
    with pytest.raises(ConfigError, match="between two steps"):
        sampler.state_at(3)


def test_batches_divide_by_shards():
    with pytest.raises(ConfigError, match="a multiple of the 4 virtual shards"):
        VirtualShardSampler(range(10), VirtualShards(4, 0, 1), 6)
