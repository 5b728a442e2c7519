"""The plan of shards: whole arrays and ranks' blocks are the same elements."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.distributed.fsdp.shards.layout import (
    assemble,
    chunks_of,
    own_part,
    place,
    plan_block,
    shard_of,
)
from disttrain.errors import ShapeError

SHAPES = [("a", (7, 3), 0), ("b", (5,), 0), ("c", (2, 4, 6), 0), ("d", (1,), 0), ("e", (0, 3), 0)]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
def test_blocks_hold_every_element_once(world: int) -> None:
    block = plan_block(SHAPES, world, 8)
    flat = np.zeros(block.flagged * world)
    whole = [np.arange(p.numel, dtype=np.float64).reshape(p.shape) + 1 for p in block.params]
    for array, layout in zip(whole, block.params, strict=True):
        place(array, chunks_of(flat, layout, block.flagged), layout)
    assert np.count_nonzero(flat) == sum(a.size for a in whole)
    blocks = flat.reshape(world, block.flagged)
    for array, layout in zip(whole, block.params, strict=True):
        again = np.empty_like(array)
        assemble(chunks_of(flat, layout, block.flagged), layout, again)
        np.testing.assert_array_equal(again, array)
        for rank in range(world):
            shard = shard_of(blocks[rank], layout, rank)
            assert shard.shape == layout.local_shape(rank)
            np.testing.assert_array_equal(shard, own_part(array, layout, rank))
            parts = np.array_split(array, range(layout.chunk, array.shape[0], layout.chunk or 1))
            want = parts[rank] if rank < len(parts) else array[:0]
            np.testing.assert_array_equal(shard, want)


@pytest.mark.parametrize("dim", [1, 2])
def test_other_dimensions_are_cut_evenly(dim: int) -> None:
    block = plan_block([("w", (3, 4, 8), dim)], 4, 4)
    (layout,) = block.params
    array = np.arange(96, dtype=np.float32).reshape(3, 4, 8)
    flat = np.zeros(block.flagged * 4, np.float32)
    target = chunks_of(flat, layout, block.flagged)
    place(array, target, layout)
    place(array, target, layout, add=True)
    for rank in range(4):
        shard = shard_of(flat.reshape(4, -1)[rank], layout, rank)
        assert shard.flags.c_contiguous
        np.testing.assert_array_equal(shard, 2 * np.split(array, 4, dim)[rank])
    again = np.empty_like(array)
    assemble(target, layout, again)
    np.testing.assert_array_equal(again, 2 * array)


def test_chunks_begin_on_cache_lines() -> None:
    for itemsize in (2, 4, 8):
        block = plan_block(SHAPES, 3, itemsize)
        assert all(p.offset * itemsize % 64 == 0 for p in block.params)
        assert block.flagged >= block.numel + len(SHAPES)


@pytest.mark.parametrize(
    ("shape", "dim", "words"),
    [((), 0, "scalar"), ((4,), 1, "dimension 1"), ((4, 5), 1, "uneven sharding on dim 1")],
)
def test_what_cannot_be_cut_is_refused(shape: tuple, dim: int, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        plan_block([("w", shape, dim)], 2, 4)
