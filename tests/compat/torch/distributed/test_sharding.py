"""Modules that stand for project modules: what programs set there is set here, and comes back."""

from __future__ import annotations

import importlib
import sys
import types

import pytest

from disttrain.compat.publish import MissingName
from disttrain.compat.torch.distributed import sharding
from disttrain.compat.torch.distributed.sharding import Function, Same

pytestmark = pytest.mark.simulated


@pytest.fixture
def sources(monkeypatch):
    """Two modules of the project's, made up."""
    one, two = (types.ModuleType(f"disttrain_made_up_{n}") for n in ("one", "two"))
    one.value, one._private, two.value, two.other = 1, 2, 10, 20
    one.f = lambda: one.value
    for module in (one, two):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return one, two


def same(sources):
    return Same("torch.x", *(m.__name__ for m in sources))


def test_names_come_from_the_first_module_that_has_them(sources):
    made = same(sources)
    assert (made.value, made._private, made.other) == (1, 2, 20)
    with pytest.raises(MissingName, match=r"torch\.x\.valeu .*near it: value"):
        made.valeu
    with pytest.raises(AttributeError):
        made.__wrapped__


def test_what_is_set_is_seen_by_the_module_itself_and_can_be_taken_back(sources):
    one, two = sources
    made = same(sources)
    made.value = 5
    assert one.value == 5 and one.f() == 5 and two.value == 10
    made.value = 6
    del made.value
    assert one.value == 1  # what was there before anything was set
    made.other = 21
    assert two.other == 21 and not hasattr(one, "other")
    made.fresh = 3
    assert one.fresh == 3
    del made.fresh
    assert not hasattr(one, "fresh")
    made.__special__ = 1
    assert not hasattr(one, "__special__")
    del made.__special__


def test_patches_of_tests_come_and_go(sources, monkeypatch):
    one, _ = sources
    made = same(sources)
    with monkeypatch.context() as patch:
        patch.setattr(made, "value", 99)
        assert one.f() == 99
    assert one.f() == 1


def test_public_names_are_those_of_the_first_module(sources):
    one, two = sources
    one.__all__, two.__all__ = ["f"], ["other"]
    one.f.__module__ = "disttrain.made_up"
    assert same(sources).__all__ == dir(same(sources)) == ["f"]


def test_a_function_in_the_place_of_its_module(monkeypatch):
    module = types.ModuleType("disttrain_made_up")
    module.fully = lambda a, b=1: (a, b)
    module.fully.extra = 7
    monkeypatch.setitem(sys.modules, "disttrain_made_up", module)
    found = Function("disttrain_made_up", "fully")
    assert found(1, b=2) == (1, 2) and found.extra == 7
    module.fully = lambda a: "another"
    assert found(1) == "another"


@pytest.mark.parametrize("make", ["fsdp_modules", "mesh_modules", "checkpoint_modules"])
def test_every_module_has_its_names(make):
    for name, module in getattr(sharding, make)().items():
        assert name.startswith("torch.distributed."), name
        assert module.__name__ == name and dir(module) is not None
        for public in getattr(module, "__all__", []):
            assert hasattr(module, public), (name, public)


def test_parents_stand_before_children():
    names = list(sharding.fsdp_modules())
    for name in names:
        parent = name.rpartition(".")[0]
        assert parent not in names or names.index(parent) < names.index(name), name


def test_fsdp_by_its_names():
    found = sharding.fsdp_modules()
    ours = importlib.import_module("disttrain.distributed.fsdp")
    fsdp = found["torch.distributed.fsdp"]
    assert fsdp.FullyShardedDataParallel is ours.FullyShardedDataParallel
    assert found["torch.distributed.fsdp.wrap"].ModuleWrapPolicy is ours.wrap.ModuleWrapPolicy
    hooks = found["torch.distributed.algorithms._comm_hooks"]
    assert len(hooks.LOW_PRECISION_HOOKS) == 2
