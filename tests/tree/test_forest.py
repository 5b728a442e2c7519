"""The functions of trees over a registry."""

from __future__ import annotations

import dataclasses

import pytest

from disttrain.tree import Definition, Forest, Partial


@dataclasses.dataclass
class Point:
    x: int
    y: int


def forest():
    made = Forest()
    made.register_dataclass(Point, ["x"], ["y"])
    return made


def test_maps_reductions_and_paths():
    trees = forest()
    tree = {"b": (1, None), "a": [Point(2, 3)]}
    assert trees.map(lambda a, b: a + b, tree, tree)["a"] == [Point(4, 3)]
    assert trees.leaves(tree) == [2, 1] and trees.reduce(max, tree) == 2
    assert trees.reduce_associative(lambda a, b: a + b, [1, 2, 3]) == 6
    paths = trees.map_with_path(lambda path, x: "".join(map(str, path)), tree)
    assert paths["a"][0].x == "['a'][0].x"
    assert trees.broadcast([1, 2], [(0, 0), 0]) == [(1, 1), 2]
    assert trees.leaves(Partial(max, 1, key=2)) == [1, 2]


def test_transposes():
    trees = forest()
    outer, inner = trees.structure([0, 0]), trees.structure({"a": 0})
    assert trees.transpose(outer, inner, [{"a": 1}, {"a": 2}]) == {"a": [1, 2]}
    with pytest.raises(ValueError, match="different lengths of list"):
        trees.up_to(outer, [1, 2, 3])


def test_fields_must_fit():
    with pytest.raises(ValueError, match=r"Missing fields: \{'y'\}"):
        Forest().register_dataclass(Point, ["x"], [])


def test_forms_are_of_the_class_that_is_given():
    class Form(Definition):
        __slots__ = ()

    assert repr(Forest(Form).structure([1, (2,)])) == "Form([*, (*,)])"
