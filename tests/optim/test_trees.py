"""Optimizers of trees of tensors: steps go down, states are packed and taken apart."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.optim import trees
from disttrain.optim.functional import RULES, piecewise_constant, schedule

MORE = {"momentum": (0.9,), "nesterov": (0.9,)}


def params():
    return {"w": dt.tensor([[1.0, -2.0], [0.5, 3.0]]), "b": [dt.tensor([0.3])]}


def gradients(p):
    return {"w": 2 * p["w"], "b": [2 * p["b"][0]]}


def size(p):
    return float((p["w"] ** 2).sum() + (p["b"][0] ** 2).sum())


@pytest.mark.parametrize("name", RULES)
def test_down(name):
    init, update, get = trees.over_trees(trees.of_rule(name))(0.05, *MORE.get(name, ()))
    state = init(params())
    for i in range(30):
        state = update(i, gradients(get(state)), state)
    assert size(get(state)) < size(params())


def test_taken_apart():
    init, _, get = trees.over_trees(trees.of_rule("adam"))(0.1)
    state = init(params())
    again = trees.repacked(trees.unpacked(state))
    assert again.tree_def == state.tree_def
    assert get(again)["w"].tolist() == get(state)["w"].tolist()


def test_wrong_tree():
    init, update, _ = trees.over_trees(trees.of_rule("sgd"))(0.1)
    with pytest.raises(TypeError, match="did not match the parameter tree"):
        update(0, {"w": dt.ones(2)}, init(params()))


def test_schedules():
    rate = piecewise_constant(dt.tensor([2, 5]), dt.tensor([1.0, 0.5, 0.1]))
    assert [round(float(rate(i)), 3) for i in (0, 3, 9)] == [1.0, 0.5, 0.1]
    assert schedule(0.5)(3) == 0.5 and schedule(rate) is rate
    with pytest.raises(TypeError):
        schedule([0.1, 0.2])
