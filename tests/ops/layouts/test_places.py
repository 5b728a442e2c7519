"""Rules of what reads and writes at places, and their pieces put together again."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.ops.layouts.layout import Cut, Rewrite
from disttrain.ops.layouts.places import RULES

TABLE = np.arange(20.0).reshape(5, 4)


def pieces(lengths):
    """Cuts of 5 rows."""
    starts = np.cumsum([0, *lengths[:-1]])
    return [Cut(n, int(start), 5) for n, start in zip(lengths, starts, strict=True)]


@pytest.mark.parametrize("lengths", [(3, 2), (1, 1, 3), (5, 0)])
def test_rows_taken_from_pieces_add_up(lengths):
    prim = SimpleNamespace(compute=lambda arrays, params: np.take(*arrays, axis=params["dim"]))
    index = np.array([[0, 4], [2, 3]])
    layout = RULES["take"](TABLE, index, 0)
    assert (layout.ins, layout.outs) == (((0, 1), ("i0", "i1")), (("i0", "i1", 1),))
    parts = [
        layout.local(prim, [TABLE[c.start : c.start + c.length], index], {"dim": 0}, {0: c})
        for c in pieces(lengths)
    ]
    assert layout.reduce == "sum"
    np.testing.assert_array_equal(sum(parts), TABLE[index])


@pytest.mark.parametrize("lengths", [(3, 2), (5, 0)])
def test_values_gathered_from_pieces_add_up(lengths):
    prim = SimpleNamespace(compute=lambda a, params: np.take_along_axis(*a, axis=params["dim"]))
    index = np.array([[0, 4, 1, 2], [2, 3, 0, 0]])
    layout = RULES["gather"](TABLE, index, 0)
    parts = [
        layout.local(prim, [TABLE[c.start : c.start + c.length], index], {"dim": 0}, {"from": c})
        for c in pieces(lengths)
    ]
    np.testing.assert_array_equal(sum(parts), np.take_along_axis(TABLE, index, 0))


def test_every_piece_of_a_mask_is_one_of_the_whole():
    whole = np.random.default_rng(1).random((5, 4)) < 0.5
    asked = []

    def draw(arrays, params):
        asked.append(arrays[0].shape)
        return whole

    layout = RULES["dropout_mask"](TABLE, 0.5, None)
    prim = SimpleNamespace(compute=draw)
    found = layout.local(prim, [TABLE[3:]], {}, {0: Cut(2, 3, 5)})
    np.testing.assert_array_equal(found, whole[3:])
    assert asked == [(5, 4)]


def test_the_mean_of_losses_is_a_sum_over_what_counts():
    rule = RULES["cross_entropy"]
    assert isinstance(rule(TABLE, None, None, -100, 0.0, "mean"), Rewrite)
    assert rule(TABLE, None, None, -100, 0.0, "none").outs[0] == ("n",)
    total = rule(TABLE, None, np.ones(4), -100, 0.0, "sum")
    assert (total.outs[0], total.ins[2], total.reduce) == ((), (None,), "sum")


def test_places_of_a_flattened_array_need_it_whole():
    layout = RULES["put"](TABLE, np.zeros(3, int), 1.0, False)
    assert (layout.ins, layout.outs) == (((None, None), (None,), None), ((None, None),))


def test_values_are_cut_beside_one_sequence_and_rows_with_theirs():
    rule, values = RULES["searchsorted"], np.empty((5, 7))
    assert rule(np.empty(3), values, None, "left", np.dtype(int)).ins[:2] == ((None,), (0, 1))
    own = rule(np.empty((5, 3)), values, None, "left", np.dtype(int))
    assert (own.ins[:2], own.outs) == (((0, None), (0, "v")), ((0, "v"),))


def test_draws_need_their_arguments_whole():
    layout = RULES["binomial"](TABLE, np.zeros(TABLE.shape[1]), generator=None)
    assert (layout.ins, layout.outs) == (((None, None), (None,)), ((None, None),))
    assert RULES["standard_gamma"](TABLE, generator=None).outs == ((None, None),)
