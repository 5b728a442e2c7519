"""Composable functions: once a module, and names as they were."""

from __future__ import annotations

import pytest

from disttrain import nn
from disttrain.distributed._composable.contract import State, contract
from disttrain.errors import ModuleNameError


@contract()
def mark(module):
    return module


def test_each_module_has_a_state_of_its_own():
    a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    assert mark(a) is a and mark(b) is b
    assert isinstance(mark.state(a), State) and mark.state(a) is not mark.state(b)
    assert mark.state(nn.Linear(1, 1)) is None


def test_a_module_is_marked_once():
    a = mark(nn.Linear(1, 1))
    with pytest.raises(AssertionError, match="only be applied to a module once"):
        mark(a)


def test_of_several_those_inside_others_have_no_state():
    inner = nn.Linear(1, 1)
    outer, beside = nn.Sequential(inner), nn.Linear(1, 1)
    mark([inner, outer, beside])
    assert mark.state(inner) is None
    assert mark.state(outer) is mark.state(beside) is not None


def test_nothing_returned_means_the_same_module():
    a = nn.Linear(1, 1)
    assert contract()(lambda module: None)(a) is a


def test_names_must_stay():
    @contract()
    def add(module):
        module.more = nn.Linear(1, 1)

    @contract()
    def turn(module):
        module.weight = module._parameters.pop("weight")

    with pytest.raises(ModuleNameError, match="cannot modify FQNs: gone are"):
        add(nn.Linear(1, 1))
    with pytest.raises(ModuleNameError, match="cannot modify the order of FQNs"):
        turn(nn.Linear(1, 1))


def test_as_many_must_come_back():
    @contract()
    def lose(modules):
        return modules[0]

    with pytest.raises(AssertionError, match="2 were given, 1 came back"):
        lose([nn.Linear(1, 1), nn.Linear(1, 1)])
