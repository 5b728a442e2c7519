"""Functions of trees as functions of lists."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.flat import Flat, Taken, check_callable, numbers, picked
from tests.support.borders import BORDER


def test_trees_become_lists_and_trees_again():
    flat = Flat(BORDER, lambda d: (d["a"] * 2, d["b"]), ({"a": 1.0, "b": dt.ones(2)},))
    outs = flat(*flat.tensors)
    assert flat.tree(outs)[1].tolist() == [1, 1] and flat.places == [0, 1]
    assert [a.weak for a in flat.avals] == [True, False]


def test_what_is_no_tensor_stays():
    taken = Taken(BORDER)
    assert len(taken.values({"a": dt.ones(1), "b": "text"})) == 1
    assert taken.tree([dt.zeros(1)])["b"] == "text"


def test_arguments_by_number():
    chosen, of = picked(lambda a, b: (a, b), -1, (1, 2), {})
    assert chosen == (2,) and of(3) == (1, 3) and numbers([0, -1]) == (0, -1)
    with pytest.raises(TypeError, match="requires at least 3"):
        picked(max, 2, (1, 2), {})
    with pytest.raises(TypeError, match="callable"):
        check_callable(1)
