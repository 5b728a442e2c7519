"""Attributes of shared modules that each simulated rank has for itself."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from disttrain_launcher.simulated.overlay import Overlay, Overlays

pytestmark = pytest.mark.simulated


class Process:
    """Two ranks, of which one is in the process at a time."""

    def __init__(self):
        self.now = None
        self.overlays = Overlays(lambda: self.now)
        self.ranks = [Overlay(lambda name: name == __name__) for _ in range(2)]
        self.module = ModuleType("shared")
        self.module.x = "base"
        self.overlays.adopt([self.module])

    def enter(self, rank):
        if self.now is not None:
            self.overlays.leave(self.now)
        self.now = None if rank is None else self.ranks[rank]
        if self.now is not None:
            self.overlays.enter(self.now)


@pytest.fixture
def process():
    return Process()


def test_each_rank_finds_what_it_has_set_and_the_process_what_was_there(process):
    module = process.module
    process.enter(0)
    module.x = "of 0"
    process.enter(1)
    assert module.x == "base"
    module.x = "of 1"
    process.enter(0)
    assert module.x == "of 0"
    module.x = "of 0 again"
    process.enter(1)
    assert module.x == "of 1"
    process.enter(None)
    assert module.x == "base"
    process.enter(0)
    assert module.x == "of 0 again"


def test_new_names_and_deleted_ones_are_a_rank_s_own(process):
    module = process.module
    process.enter(0)
    module.new = 1
    del module.x
    process.enter(1)
    assert not hasattr(module, "new") and module.x == "base"
    process.enter(0)
    assert module.new == 1 and not hasattr(module, "x")
    del module.new
    process.enter(1)
    process.enter(0)
    assert not hasattr(module, "new")


def test_what_the_process_itself_sets_belongs_to_all(process):
    process.module.x = "of all"
    process.enter(0)
    assert process.module.x == "of all" and not process.ranks[0].values


def test_a_value_that_is_given_is_there_from_the_beginning(process):
    process.ranks[1].give(process.module, "stdout", "own")
    process.enter(1)
    assert process.module.stdout == "own"
    process.enter(0)
    assert not hasattr(process.module, "stdout")


def run_as(name, text, **names):
    space = {"__name__": name, **names}
    exec(compile(text, f"{name}.py", "exec"), space)
    return space


def test_what_is_set_while_a_shared_module_is_made_belongs_to_all(process):
    process.enter(0)
    run_as("library", "module.x = 'of all'", module=process.module)
    lazy = run_as("library", "def __getattr__(n):\n    module.y = n", module=process.module)
    lazy["__getattr__"]("late")
    process.enter(1)
    assert (process.module.x, process.module.y) == ("of all", "late")
    process.enter(0)
    called = run_as("library", "def f():\n    module.x = 'called'", module=process.module)
    called["f"]()  # by the rank's program
    process.enter(1)
    assert process.module.x == "of all"


def test_submodules_and_names_of_python_s_own_belong_to_all(process):
    process.enter(0)
    child = ModuleType("shared.child")
    process.module.child = child
    process.module.__path__ = ["here"]
    process.module.other = ModuleType("elsewhere")
    process.enter(1)
    assert process.module.child is child and process.module.__path__ == ["here"]
    assert not hasattr(process.module, "other")


def test_a_module_that_is_imported_later_is_adopted_too(process, tmp_path):
    (tmp_path / "later.py").write_text("value = 1\n")
    spec = importlib.util.spec_from_file_location("later", tmp_path / "later.py")
    process.overlays.adopt_when_made(spec)
    process.enter(0)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    made.value = 2
    process.enter(1)
    assert made.value == 1 and isinstance(made, ModuleType)
    assert "later" not in sys.modules


def test_classes_of_modules_are_made_once_and_odd_ones_stay(process):
    class Own(ModuleType):
        pass

    own, again = Own("own"), Own("again")
    process.overlays.adopt([own, again, own, "no module"])
    assert type(own) is type(again) and isinstance(own, Own) and type(own) is not Own
    kind = type(own)
    process.overlays.adopt([own])
    assert type(own) is kind
    assert type(process.module).__name__ == "module"
