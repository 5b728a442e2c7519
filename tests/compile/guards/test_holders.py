"""Content compared by identity: what changed, in words."""

from __future__ import annotations

import types

import pytest

from disttrain.compile.guards.holders import (
    ABSENT,
    CELL,
    DICT,
    FACT,
    NAMES,
    OBJECT,
    SEQUENCE,
    Guard,
    Holder,
)


def cell(value):
    return types.CellType(value)


def replaced(d, **new):
    d.update(new)


CASES = {
    "a dict's value": (
        DICT,
        {"a": 1, "b": 2},
        (),
        lambda d: replaced(d, a=5),
        "d['a']: 1 became 5",
    ),
    "a dict's entries": (DICT, {"a": 1}, (), lambda d: replaced(d, c=1), "d has other entries"),
    "a name": (NAMES, {"a": 1, "b": 2}, ("a",), lambda d: replaced(d, a="x"), "d.a: 1 became 'x'"),
    "a name that is gone": (NAMES, {"a": [1]}, ("a",), lambda d: d.pop("a"), "d.a was replaced"),
    "an object's names": (OBJECT, {"a": 1}, ("a",), lambda d: replaced(d, z=1), "other entries"),
    "a list's": (SEQUENCE, [1, 2], (), lambda x: x.append(3), "d has other entries"),
    "a list's item": (SEQUENCE, [[], []], (), lambda x: x.__setitem__(1, []), "d was replaced"),
    "a name that comes": (ABSENT, {}, ("a",), lambda d: replaced(d, a=1), "d"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_told(name):
    kind, thing, names, change, message = CASES[name]
    guard = Guard([Holder(kind, thing, "d", names), Holder(SEQUENCE, [1], "other")])
    assert guard.stale() is None
    change(thing)
    assert message in guard.stale()


def test_what_does_not_count_may_change():
    space = {"a": 1, "b": 2}
    guard = Guard([Holder(NAMES, space, "d", ("a",))])
    space.update(b=3, c=4)
    assert guard.stale() is None


def test_cells_are_filled_and_emptied():
    c = cell(1)
    guard = Guard([Holder(CELL, c, "free")])
    del c.cell_contents
    assert "free" in guard.stale()
    c.cell_contents = 1
    assert guard.stale() is None


def test_equal_constants_stand_for_each_other_and_are_taken_up():
    space = {"a": 10**20}
    guard = Guard([Holder(DICT, space, "d")])
    space["a"] = int("1" + "0" * 20)  # another object
    assert guard.stale() is None and guard.then[0] is space["a"]
    space["a"] = float(10**20)
    assert "became" in guard.stale()


def test_a_reader_says_what_counts():
    box = [(1,)]
    guard = Guard([Holder(FACT, box, "fact", reader=lambda: box[0])])
    box[0] = (2,)
    assert guard.stale() == "fact: 1 became 2"
