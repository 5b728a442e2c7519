"""Walking a tree of modules: order, names, what is shared, lookup by path."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.errors import (
    ModuleError,
)


def tensor(*shape, value=1.0):
    return core.wrap(np.full(shape, value, np.float32))


class Scale(nn.Module):
    """One parameter, one buffer, one buffer that is not saved."""

    def __init__(self, value=2.0):
        super().__init__()
        self.weight = nn.Parameter(tensor(3, value=value))
        self.register_buffer("seen", tensor(1, value=0.0))
        self.register_buffer("scratch", tensor(2), persistent=False)

    def forward(self, x, shift=0.0):
        return x * self.weight + shift


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale()
        self.second = Scale(3.0)
        self.register_module("absent", None)

    def forward(self, x):
        return self.second(self.first(x))


def names(pairs):
    return [name for name, _ in pairs]


def test_shared_parameters_and_modules_are_seen_once():
    m = Pair()
    m.second.weight = m.first.weight
    assert names(m.named_parameters()) == ["first.weight"]
    assert names(m.named_parameters(remove_duplicate=False)) == ["first.weight", "second.weight"]
    m.third = m.first
    assert names(m.named_modules()) == ["", "first", "second"]
    assert names(m.named_modules(remove_duplicate=False)) == ["", "first", "second", "third"]
    assert names(m.named_parameters(prefix="net")) == ["net.first.weight"]


def test_lookup_by_path():
    m = Pair()
    assert m.get_submodule("") is m
    assert m.get_submodule("first") is m.first
    assert m.get_parameter("second.weight") is m.second.weight
    assert m.get_buffer("first.seen") is m.first.seen
    for find, path in ((m.get_submodule, "third"), (m.get_parameter, "first.w"),
                       (m.get_buffer, "first.weight")):  # fmt: skip
        with pytest.raises(AttributeError, match="it has"):
            find(path)
    other = Scale()
    m.set_submodule("second", other)
    assert m.second is other


def test_the_order_is_that_of_registration_children_after_their_parent():
    m = nn.Sequential(Pair(), Scale())
    m.register_buffer("own", tensor(1))
    assert names(m.named_modules()) == ["", "0", "0.first", "0.second", "1"]
    assert names(m.named_parameters()) == ["0.first.weight", "0.second.weight", "1.weight"]
    assert names(m.named_buffers())[:3] == ["own", "0.first.seen", "0.first.scratch"]
    assert list(m.modules())[1] is m[0] and len(list(m.parameters())) == 3
    assert names(m[0].named_children()) == ["first", "second"]  # not what is None
    assert len(list(m.buffers())) == 7


def test_without_recursion_only_what_the_module_has_itself():
    m = Pair()
    m.bias = nn.Parameter(tensor(1))
    m.register_buffer("none", None)
    assert names(m.named_parameters(recurse=False)) == ["bias"]
    assert names(m.named_parameters(prefix="x", recurse=False)) == ["x.bias"]
    assert names(m.named_buffers(recurse=False)) == [] and list(m.buffers(recurse=False)) == []
    m.second.third = m.first
    assert names(m.named_children()) == ["first", "second"]


def test_modules_that_were_seen_before_are_left_out():
    m = Pair()
    seen = {m.first}
    assert names(m.named_modules(memo=seen, prefix="net")) == ["net", "net.second"]
    m.second.back = m  # a circle ends
    assert names(m.named_modules()) == ["", "first", "second"]


def test_a_path_that_leads_nowhere_is_told_with_what_there_is():
    m = Pair()
    with pytest.raises(
        ModuleError, match=r"Pair\.get_submodule\('first\.x'\): Scale has no submod.*none"
    ):
        m.get_submodule("first.x")
    with pytest.raises(ModuleError, match=r"Pair has no submodule 'absent'; it has first, second"):
        m.get_submodule("absent")
    with pytest.raises(ModuleError, match=r"get_buffer\('second\.x'\): .* it has seen, scratch"):
        m.get_buffer("second.x")
    with pytest.raises(ModuleError, match="the path is empty"):
        m.set_submodule("", Scale())
    with pytest.raises(ModuleError, match="no submodule 'third'"):
        m.set_submodule("third.x", Scale())
    m.set_submodule("first.inner", Scale())
    assert m.get_parameter("first.inner.weight") is m.first.inner.weight


def test_apply_goes_to_children_first_and_to_shared_ones_as_often_as_parents_have_them():
    m, seen = nn.Sequential(Pair(), Scale()), []
    m[0].second = m[0].first
    assert m.apply(lambda module: seen.append(type(module).__name__)) is m
    assert seen == ["Scale", "Pair", "Scale", "Sequential"]
