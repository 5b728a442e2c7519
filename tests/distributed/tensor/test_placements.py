"""Placements as data: who holds what, and which steps lead from one to another."""

from __future__ import annotations

import itertools

import pytest

from disttrain.distributed.tensor.movement import plan
from disttrain.distributed.tensor.placements import (
    Partial,
    Replicate,
    Shard,
    _StridedShard,
    cuts,
    local_offset,
    local_shape,
    normalized,
    piece,
)


@pytest.mark.parametrize("size", range(9))
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_pieces_cover_a_dimension_as_chunk_does(size, parts):
    found = [piece(size, parts, i) for i in range(parts)]
    assert sum(n for n, _ in found) == size
    assert all(start == sum(n for n, _ in found[:i]) for i, (_, start) in enumerate(found))
    assert all(n <= -(-size // parts) for n, _ in found)


@pytest.mark.parametrize("shape", [(7, 5), (2, 9), (1, 1), (0, 3)])
def test_local_parts_tile_the_whole_once(shape):
    grid = (2, 3)
    kinds = [Shard(0), Shard(1)]
    for placements in itertools.product(kinds, repeat=2):
        seen: dict = {}
        for place in itertools.product(*map(range, grid)):
            n = local_shape(shape, grid, place, placements)
            at = local_offset(shape, grid, place, placements)
            for index in itertools.product(*(range(a, a + k) for a, k in zip(at, n, strict=True))):
                seen[index] = seen.get(index, 0) + 1
        assert seen == dict.fromkeys(itertools.product(*map(range, shape)), 1)


def test_a_strided_shard_cuts_after_the_axes_right_of_it():
    placements = (_StridedShard(0, split_factor=2), Shard(0))
    assert cuts(placements, 0) == [1, 0]
    assert local_offset((8,), (2, 2), (0, 1), placements) == (4,)
    assert local_offset((8,), (2, 2), (1, 0), placements) == (2,)


def test_every_plan_ends_at_its_target_and_never_cuts_under_a_later_cut():
    kinds = [Shard(0), Shard(1), Replicate(), Partial()]
    for source in itertools.product(kinds, repeat=3):
        for target in itertools.product(kinds, repeat=3):
            now = source
            for step in plan(source, target):
                assert step.before == now and now[step.axis] == step.source
                for p in (step.source, step.target):
                    if isinstance(p, Shard):
                        later = [a for a in range(step.axis + 1, 3) if now[a] == p]
                        assert not later, (source, target, step)
                now = (*now[: step.axis], step.target, *now[step.axis + 1 :])
            assert now == target


def test_a_shard_goes_to_another_in_one_step():
    assert len(plan((Shard(0), Replicate()), (Shard(1), Replicate()))) == 1
    assert len(plan((Partial(), Shard(1)), (Shard(0), Shard(1)))) == 1
    assert plan((Shard(0), Shard(1)), (Shard(0), Shard(1))) == []


def test_wrong_placements_are_refused():
    assert normalized([Shard(-1)], 2, 1, "here") == (Shard(1),)
    with pytest.raises(ValueError, match=r"here.*same length"):
        normalized([Shard(0)], 2, 2, "here")
    with pytest.raises(IndexError, match="dim=2"):
        normalized([Shard(2)], 2, 1, "here")
    with pytest.raises(TypeError, match="placement 3"):
        normalized([3], 2, 1, "here")
    with pytest.raises(ValueError, match="Partial"):
        Partial("sun")
