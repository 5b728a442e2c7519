"""Parameters as one vector in equal chunks: every element has one place, on one rank."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.distributed.fsdp.flat.layout import STEP, plan_flat, views

pytestmark = pytest.mark.simulated

SHAPES = [("a", (3, 2)), ("b", ()), ("none", (0, 4)), ("c", (5,)), ("d", (2, 2, 2))]


@pytest.mark.parametrize("world", [1, 2, 3, 7, 19, 20, 30])
def test_chunks_make_the_vector_up(world):
    layout = plan_flat(SHAPES, world)
    assert layout.numel == 20 and layout.padded == layout.chunk * world >= 20
    assert layout.padded - 20 < world
    vector = np.arange(layout.padded)
    chunks = vector.reshape(world, layout.chunk)
    for i, piece in enumerate(layout.pieces):
        own = vector[piece.start : piece.start + piece.numel]
        seen = []
        for rank in range(world):
            (lo, hi), (a, b) = layout.part(i, rank), layout.local(i, rank)
            assert 0 <= lo <= hi <= piece.numel and hi - lo == b - a
            np.testing.assert_array_equal(chunks[rank][a:b], own[lo:hi])
            seen += own[lo:hi].tolist()
        assert seen == own.tolist()


@pytest.mark.parametrize("world", [1, 2, 5, 20])
def test_cuts_name_the_ranks_that_have_something(world):
    layout = plan_flat(SHAPES, world)
    for i, piece in enumerate(layout.pieces):
        want = [
            (r, layout.local(i, r)[0], *layout.part(i, r))
            for r in range(world) if layout.part(i, r)[0] < layout.part(i, r)[1]
        ]  # fmt: skip
        assert layout.cuts(i) == want
        assert sum(hi - lo for _, _, lo, hi in want) == piece.numel


def test_views_share_the_vector():
    layout = plan_flat(SHAPES, 3)
    flat = np.arange(float(layout.padded))
    a, b, none, c, d = views(flat, layout)
    assert a.tolist() == [[0, 1], [2, 3], [4, 5]] and b == 6 and none.shape == (0, 4)
    assert c.tolist() == [7, 8, 9, 10, 11] and d.shape == (2, 2, 2)
    c[:] = -1
    assert flat[7:12].tolist() == [-1] * 5


def test_blocks_of_gradients_have_a_flag_for_each_parameter():
    for world in (1, 2, 4):
        layout = plan_flat(SHAPES, world)
        assert layout.flagged % STEP == 0
        assert layout.chunk + 5 <= layout.flagged < layout.chunk + 5 + STEP
    nothing = plan_flat([("e", (0,))], 2)
    assert (nothing.numel, nothing.chunk, nothing.padded, nothing.cuts(0)) == (0, 0, 0, [])
