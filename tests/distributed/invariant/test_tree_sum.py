"""Sums that come term by term have the bits of the tree over all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.comm.calls.reduce_ops import ReduceOp, make_reducer
from disttrain.distributed.invariant import TreeSum, VirtualShards
from disttrain.errors import ConfigError


def terms(n):
    return list(np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32))


def tree(parts):
    out = np.empty_like(parts[0])
    make_reducer(ReduceOp.SUM, out.dtype, len(parts))(parts, out)
    return out


def summed(parts, positions):
    total = TreeSum()
    for i in positions:
        total.add(i, parts[i])
    return total.total()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 8, 12, 16])
def test_the_order_is_the_one_of_a_reduction(n):
    parts = terms(n)
    kept = [p.copy() for p in parts]
    assert summed(parts, range(n)).tobytes() == tree(parts).tobytes()
    assert all((a == b).all() for a, b in zip(parts, kept, strict=True))


def test_missing_terms_count_as_zero():
    parts = terms(8)
    for r in range(1, 8):
        for positions in itertools.combinations(range(8), r):
            with_zeros = [p if i in positions else np.zeros_like(p) for i, p in enumerate(parts)]
            assert (summed(parts, positions) == tree(with_zeros)).all(), positions
    assert summed(parts, []) is None


def test_two_terms_of_one_position_are_one():
    parts = terms(4)
    total = TreeSum()
    for i, p in enumerate(parts):
        total.add(i, p)
        if i == 2:
            total.add(i, p)
    assert total.total().tobytes() == tree([*parts[:2], parts[2] + parts[2], parts[3]]).tobytes()


def test_shards_are_divided_whole():
    for size in (1, 2, 4, 8):
        for strided in (False, True):
            ids = [list(VirtualShards(8, r, size, strided=strided).ids) for r in range(size)]
            assert sorted(itertools.chain(*ids)) == list(range(8))
    assert list(VirtualShards(8, 1, 4).ids) == [2, 3]
    assert list(VirtualShards(8, 1, 4, strided=True).ids) == [1, 5]
    assert VirtualShards(12, 0, 3).each == 4 and VirtualShards(12, 0, 1).each == 12


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ConfigError, match="virtual_shards: 8 given for 3 ranks; a multiple"):
        VirtualShards(8, 0, 3)
    with pytest.raises(
        ConfigError,
        match=r"6 given for 2 ranks\. each rank sums its own 3 shards first.*Give virtual_shards=8",
    ):
        VirtualShards(6, 0, 2)
    with pytest.raises(
        ConfigError,
        match=r"6 given for 3 ranks\. fully_shard sums the shards of all 3.*Use 1, 2, 4",
    ):
        VirtualShards(6, 0, 3, strided=True)


def test_a_stream_depends_on_step_and_shard_alone():
    def streams(size):
        found = {}
        for rank in range(size):
            shards = VirtualShards(8, rank, size, seed=5)
            for _ in range(2 * shards.each):
                found[shards.step, shards.current] = shards.stream()
                shards.advance()
        return found

    assert streams(1) == streams(2) == streams(8)
    assert len(set(streams(1).values())) == 16
    assert VirtualShards(8, 0, 1).stream(0) != VirtualShards(8, 0, 1).stream(1)


def test_progress_is_kept_between_steps_only():
    shards = VirtualShards(8, 0, 4, seed=3)
    shards.advance()
    with pytest.raises(ConfigError, match="after 1 of 2 shards"):
        shards.state_dict()
    shards.advance()
    other = VirtualShards(8, 0, 2)
    other.load_state_dict(shards.state_dict())
    assert (other.step, other.seed, other.stream()) == (1, 3, shards.stream())
    with pytest.raises(ConfigError, match="4 given; the run that is resumed has 8"):
        VirtualShards(4, 0, 2).load_state_dict(shards.state_dict())
