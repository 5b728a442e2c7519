"""What is taken down by identity: every change is seen, and nothing else is."""

from __future__ import annotations

import collections
import gc
import weakref

import pytest

import disttrain as dt
from disttrain.backends.llvm import pointers
from disttrain.backends.llvm.native import Unavailable
from disttrain.backends.llvm.pointers import Pointers

try:
    Pointers().sealed()
except Unavailable as why:
    pytest.skip(str(why), allow_module_level=True)


class Thing:
    """An object of the program's."""

    default = None

    def __init__(self, **values):
        for name, value in values.items():
            setattr(self, name, value)


def cell(value):
    return (lambda: value).__closure__[0]


def taken(method, *args, **options):
    p = Pointers()
    assert getattr(p, method)(*args, **options) is not False
    return p.sealed()


DICTS = {
    "a value": (lambda d: d.update(a=[]), True, True),
    "an equal value": (lambda d: d.update(a=float("1.5")), True, True),
    "another value": (lambda d: d.update(b=[]), True, False),
    "one more": (lambda d: d.update(c=1), True, False),
    "one less": (lambda d: d.pop("b"), True, False),
    "the one": (lambda d: d.pop("a"), True, True),
    "all": (lambda d: d.clear(), True, True),
    "the order": (lambda d: d.update(b=1, a=d.pop("a")), True, False),
    "nothing": (lambda d: d.update(a=d["a"]), False, False),
    "nothing in the end": (lambda d: d.pop("x", d.update(x=1)), False, False),
    "another object by an attribute": (lambda d: d.__setitem__("a", Thing()), True, True),
}


@pytest.mark.parametrize("name", DICTS)
@pytest.mark.parametrize("kind", [dict, collections.defaultdict])
def test_dicts(name, kind):
    change, all_of_it, one_name = DICTS[name]
    d = kind()
    d.update(a=1.5, b="text")
    whole, named = taken("mapping", d), taken("names", d, ("a", "gone"))
    keys = taken("mapping", d, ("b",))
    assert whole() and named() and keys() and whole()
    change(d)
    assert whole() is not all_of_it and named() is not one_name
    assert whole() is not all_of_it and named() is not one_name  # and again
    if name == "a value":
        assert keys()


def test_a_name_that_comes():
    d = {"a": 1}
    named = taken("names", d, ("a", "b"))
    d["c"] = 1
    assert named()
    d["b"] = None
    assert not named()
    del d["b"]
    assert named()


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_large_and_small_dicts(count):
    d = {i: [i] for i in range(count)}
    whole = taken("mapping", d)
    d["x"] = d.pop("x", 0)
    assert not whole()
    del d["x"]
    assert whole()
    for k in list(d)[-1:]:
        d[k] = [k]
        assert not whole()


def test_lists():
    x = [1, [], "a"]
    whole, empty = taken("sequence", x), taken("sequence", [])
    assert whole() and empty()
    x.append(1)
    assert not whole()
    x.pop()
    assert whole()
    x[1] = []
    assert not whole()


def test_cells_and_classes():
    c, t = cell([1]), Thing()
    full, kind = taken("cell", c), taken("type_of", t)
    assert full() and kind()
    kept, c.cell_contents = c.cell_contents, 5
    assert not full()
    c.cell_contents = kept
    assert full()
    del c.cell_contents
    assert not full()
    t.__class__ = type("Other", (Thing,), {})
    assert not kind()


def test_the_dict_of_an_object():
    t = Thing(a=1)
    vars(t)
    own = taken("dict_of", t)
    t.b = 1
    assert own()
    t.__dict__ = dict(vars(t))
    assert not own()


@pytest.mark.parametrize("looked", [False, True])  # whether its dict was made
def test_attributes(looked):
    many = [Thing(a=[i], b=None, default=None) for i in range(40)]
    for t in many[-1:]:
        if looked:
            vars(t)
        p = Pointers()
        if not p.attributes(t, ("a", "b", "default")):
            assert looked  # an object of which it is not known where its attributes are
            continue
        there = taken("attributes", t, ("a", "b"), presence=True)
        same = p.sealed()
        assert same() and there()
        kept, t.a = t.a, []
        assert not same() and there()
        t.a = kept
        assert same() and there()
        t.default = 5
        assert not same() and there()
        t.default = None
        assert same()
        t.b = 1
        assert not same() and not there()
        del t.b
        with pytest.raises(AttributeError):
            assert t.b
        t.a = None
        assert not same() and not there()


def test_an_object_whose_dict_is_made_later_is_as_it_was_or_has_changed():
    t = [Thing(a=[i], b=None) for i in range(40)][-1]
    p = Pointers()
    if p.attributes(t, ("a",)):
        same = p.sealed()
        assert same()
        vars(t)["a"] = []
        assert not same()
        t.__dict__ = {"a": []}
        assert not same()


def test_attributes_of_classes_are_not_those_of_objects():
    class Other:
        one = 1

        @property
        def two(self):
            return 2

        def __init__(self):
            self.three = 3

    for name in ("one", "two"):
        assert not Pointers().attributes(Other(), (name,))


def test_parameters_and_their_leaves():
    p = dt.nn.Parameter(dt.ones(3))
    record = Pointers()
    if not record.attributes(p, ("array", "_node")):
        pytest.skip("it is not known where tensors have their attributes here")
    same, graded = record.sealed(), taken("attributes", p, ("_grad",), presence=True)
    with dt.no_grad():
        p.add_(1.0)
    assert same() and graded()
    p.sum().backward()
    assert same() and not graded()
    p.grad = None
    assert graded()
    p.requires_grad_(False)
    assert not same()
    p.requires_grad_(True)
    array = p.array
    p.data = dt.zeros(3)
    assert not same()
    del array


def test_it_keeps_what_it_took_down_and_lets_go_of_it():
    class Held:
        pass

    x = Held()
    gone = weakref.ref(x)
    d = {"x": x}
    same = taken("mapping", d)
    d.clear()
    del x
    gc.collect()
    assert gone() is not None and not same()
    del same
    gc.collect()
    assert gone() is None


def test_where_nothing_is_known_nothing_is_taken_down(monkeypatch):
    monkeypatch.setattr(pointers, "_ways", lambda: found)
    found = pointers._Ways()
    found.known = False
    t = Thing(a=1)
    assert not Pointers().attributes(t, ("a",)) and not Pointers().dict_of(t)
