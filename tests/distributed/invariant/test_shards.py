"""Virtual shards: who computes which, in which order, with which random numbers."""

from __future__ import annotations

import pytest

from disttrain.distributed.invariant.shards import VirtualShards
from disttrain.errors import ConfigError


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_every_shard_is_of_one_rank(size, strided):
    ranks = [VirtualShards(8, r, size, strided=strided) for r in range(size)]
    assert sorted(i for s in ranks for i in s.ids) == list(range(8))
    together = [s.ids[0] for s in ranks]
    assert together == (list(range(size)) if strided else list(range(0, 8, 8 // size)))


def test_steps_go_on_when_all_shards_are_done():
    shards = VirtualShards(4, 1, 2)
    seen = []
    for _ in range(4):
        seen.append((shards.step, shards.current, shards.last, shards.step_complete))
        shards.advance()
    first, last = (False, True), (True, False)
    assert seen == [(0, 2, *first), (0, 3, *last), (1, 2, *first), (1, 3, *last)]


def test_streams_are_the_shards_whoever_computes_them():
    def streams(size):
        found = {}
        for rank in range(size):
            shards = VirtualShards(8, rank, size, seed=5)
            for _ in range(2 * shards.each):
                found[shards.step, shards.current] = shards.stream(), shards.stream(attempt=1)
                shards.advance()
        return found

    assert streams(1) == streams(2) == streams(8) and len(set(streams(1).values())) == 16


def test_state_is_taken_between_steps_and_fits_any_number_of_ranks():
    shards = VirtualShards(8, 0, 2, seed=3)
    for _ in range(4):
        shards.advance()
    other = VirtualShards(8, 3, 8)
    other.load_state_dict(shards.state_dict())
    assert (other.step, other.seed) == (1, 3)
    shards.advance()
    with pytest.raises(ConfigError, match="after 1 of 4 shards"):
        shards.state_dict()
    with pytest.raises(ConfigError, match="the run that is resumed has 8"):
        VirtualShards(4, 0, 1).load_state_dict(other.state_dict())


@pytest.mark.parametrize(("count", "size"), [(8, 3), (0, 1), (6, 2)])
def test_counts_that_do_not_make_a_tree(count, size):
    with pytest.raises(ConfigError, match="virtual_shards"):
        VirtualShards(count, 0, size)
