"""Modules under another library's names: names taken, given, filled later, lacking."""

from __future__ import annotations

import email.parser  # (importlib.metadata loads it when it reads, past the finders)
import importlib
import importlib.metadata
import sys
import types

import pytest

import disttrain as dt
from disttrain.compat import publish
from disttrain.compat.publish import Finder, MissingModule, MissingName, Shim, lacking, public
from disttrain.errors import DisttrainError

pytestmark = pytest.mark.simulated


def source(**names):
    made = types.ModuleType("source")
    for name, value in names.items():
        setattr(made, name, value)
    return made


class Mine:
    pass


Mine.__module__ = "disttrain.somewhere"


class MyError(Exception):
    pass


MyError.__module__ = "disttrain.somewhere"


def test_public_names_are_ours_and_no_modules_or_errors():
    given = source(
        Mine=Mine, MyError=MyError, os=sys, loads=importlib.import_module, _hidden=Mine, n=3
    )
    assert public(given) == ["Mine"]
    given.__all__ = ["_hidden", "loads"]
    assert public(given) == ["_hidden"]
    assert "Linear" in public(dt.nn) and "annotations" not in public(publish)


def test_names_are_taken_and_given():
    made = Shim("x").take(source(Mine=Mine, n=3)).take(source(a=1, b=2), ["a"]).give(c=4)
    assert made.Mine is Mine and made.a == 1 and made.c == 4
    assert made.__path__ == [] and made.__spec__.name == "x" and "x" in made.__doc__
    for missing in ("n", "b"):
        with pytest.raises(MissingName, match=rf"x\.{missing} is not part of disttrain's stand-in"):
            getattr(made, missing)
    with pytest.raises(AttributeError) as told:
        made.__wrapped__
    assert not isinstance(told.value, DisttrainError)


def test_what_is_filled_later_is_filled_once_when_it_is_asked_for():
    calls = []

    def fill(made):
        calls.append(made)
        made.give(late=1)

    made = Shim("x").later(fill)
    assert calls == [] and made.late == 1 and made.late == 1 and calls == [made]
    assert "late" in dir(Shim("y").later(fill))
    with pytest.raises(MissingName):
        Shim("z").later(fill).other


def test_what_is_near_is_told():
    made = Shim("torch.x").give(matmul=1, matmuls=2)
    text = lacking("torch.x.matmull", made)
    assert "near it: matmul" in text and "real torch" in text
    assert "dir(torch.x) lists what there is" in lacking("torch.x.zzz", made)


def test_imports_below_a_stand_in_find_what_there_is_or_say_so(monkeypatch, tmp_path):
    runnable = tmp_path / "run.py"
    runnable.write_text("")
    monkeypatch.setitem(sys.modules, "pretend", Shim("pretend").give(near=1))
    finder = Finder("pretend", {"pretend.run": str(runnable)})
    assert finder.find_spec("pretend.run").origin == str(runnable)
    assert finder.find_spec("json.decoder") is None and finder.find_spec("unheard") is None
    with pytest.raises(MissingModule, match=r"pretend\.nears is not part of .*near it: near"):
        finder.find_spec("pretend.nears")


def test_published_modules_are_attributes_of_their_parents(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    names = ("pretend", "pretend.a", "pretend.a.b", "pretend.c")
    modules = {name: Shim(name) for name in names}
    modules["pretend"].give(c="a name of its own")
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)  # and nothing after the test
    publish.publish(modules, {})
    assert importlib.import_module("pretend.a.b") is modules["pretend.a.b"]
    assert modules["pretend"].a.b is modules["pretend.a.b"]
    assert modules["pretend"].c == "a name of its own"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pretend.a.unheard")


def test_the_import_system_is_told_a_version(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [Finder("torch", {}, "9.8.7")])
    assert email.parser and importlib.metadata.version("torch") == "9.8.7"
    found = importlib.metadata.distribution("torch")
    assert found.metadata["Name"] == "torch" and found.files is None and found.requires is None
    assert str(found.locate_file("x")).endswith("x")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("numpy")
    monkeypatch.setattr(sys, "meta_path", [Finder("torch", {})])
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("torch")


def test_a_package_is_mirrored_when_it_is_asked_for(monkeypatch):
    asked = []
    real = source(one=1, part=source(two=2), other=3)
    load = lambda: asked.append(1) or real
    made = publish.mirror("mine", ["part"], load, lambda word, name, value: (word, name, value))
    assert list(made) == ["mine", "mine.part"] and not asked
    made["mine"].give(part=made["mine.part"])
    assert made["mine.part"].two == ("part", "two", 2)
    assert made["mine"].one == ("", "one", 1) and made["mine"].part is made["mine.part"]


def test_a_value_is_replaced_wherever_it_is_named(monkeypatch):
    old, first, second = object(), source(), source()
    first.a = first.b = second.a = old
    monkeypatch.setitem(sys.modules, "replaced.first", first)
    monkeypatch.setitem(sys.modules, "elsewhere.second", second)
    publish.replace("replaced", old, 5)
    assert (first.a, first.b, second.a) == (5, 5, old)


def test_modules_of_tables_have_their_parts():
    made = publish.assembled(
        "mine", {"": {"a": 1}, "b": {"two": 2}, "b.c": {}}, publish.Absent("mine.d", "not yet")
    )
    assert list(made) == ["mine", "mine.b", "mine.b.c", "mine.d"]
    assert made["mine"].a == 1 and made["mine"].b.c is made["mine.b.c"] and made["mine"].b.two == 2
    with pytest.raises(MissingName, match=r"mine\.d\.word: not yet"):
        _ = made["mine"].d.word


def test_a_class_that_is_lacking():
    kind = publish.absent("no ragged tensors")
    assert not isinstance(3, kind) and kind[int] is kind
    with pytest.raises(MissingName, match="no ragged"):
        kind(3)
