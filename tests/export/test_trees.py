"""Structures of arguments and results as data."""

from __future__ import annotations

import collections

import pytest

import disttrain as dt
from disttrain.errors import CaptureError, SerializationError, ShapeError
from disttrain.export import trees
from disttrain.export.sizes import Size

Point = collections.namedtuple("Point", "u v")


def test_apart_and_together():
    x = {"a": [1, (2.5, None)], "b": collections.OrderedDict(c="t"), "p": Point(dt.ones(1), True)}
    x["a"].append(dt.ones(2))
    spec = trees.spec_of(x, "x", trees.is_tensor)
    assert trees.checked(spec, "f", Size) == spec and trees.count(spec) == 2
    assert trees.names(spec, "x") == ["x_a_2", "x_p_u"]
    found: list = []
    trees.take_apart(spec, x, "x", found)
    assert [where for where, _ in found] == ["x['a'][2]", "x['p'][0]"]
    again = trees.put_together(spec, iter([t for _, t in found]), {})
    assert list(again) == ["a", "b", "p"] and again["p"].u is x["p"].u
    assert type(again["b"]) is collections.OrderedDict and type(again["p"]).__name__ == "Point"


@pytest.mark.parametrize(("value", "told"), [
    ({"a": 1}, "keys"), ({"a": [1], "b": 2}, "2 is needed|made with"), (3, "a int given"),
    ({"a": [1, 2, 3], "b": 2}, "list of 3"), ({"a": [2, 2], "b": 2}, r"\['a'\]\[0\]: 2 given"),
    ({"a": [True, 2], "b": 2}, "made with 1"),
])  # fmt: skip
def test_other_structures(value, told):
    spec = trees.spec_of({"a": [1, 2], "b": 2}, "x", trees.is_tensor)
    with pytest.raises(ShapeError, match=told):
        trees.take_apart(spec, value, "x", [])


def test_what_no_file_holds():
    for value in (object(), {(1, 2): 3}, {1.5: 2}, b"x", 1j):
        with pytest.raises(CaptureError, match="export: x"):
            trees.spec_of(value, "x", trees.is_tensor)


@pytest.mark.parametrize("spec", [
    None, {}, {"kind": "list"}, {"kind": "odd", "parts": []}, {"kind": "list", "parts": [3]},
    {"kind": "dict", "keys": [1], "parts": []},
    {"kind": "dict", "keys": [[1]], "parts": [trees.TENSOR]},
    {"kind": "plain", "value": [1]}, {"kind": "tensor", "x": 1},
    {"kind": "dict", "keys": 3, "parts": []},
    {"kind": "named", "name": "a b", "keys": [], "parts": []},
    {"kind": "named", "name": "A", "keys": ["_x"], "parts": [trees.TENSOR]},
])  # fmt: skip
def test_damaged_ones(spec):
    with pytest.raises(SerializationError, match="where: "):
        trees.checked(spec, "where", Size)
    deep = trees.TENSOR
    for _ in range(100):
        deep = {"kind": "list", "parts": [deep]}
    with pytest.raises(SerializationError, match="where: "):
        trees.checked(deep, "where", Size)
