"""Pytrees under JAX's names."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple

import pytest

from disttrain.compat.jax import tree

Pair = namedtuple("Pair", "left right")


@tree.register_dataclass
@dataclasses.dataclass
class Model:
    weight: int
    name: str = dataclasses.field(default="m", metadata={"static": True})


def test_forms_print_as_jaxs():
    shown = [
        ({"b": 1, "a": (2, None)}, "PyTreeDef({'a': (*, None), 'b': *})"),
        (Pair(1, [2]), "PyTreeDef(CustomNode(namedtuple[Pair], [*, [*]]))"),
        (OrderedDict(b=1, a=2), "PyTreeDef(CustomNode(OrderedDict[('b', 'a')], [*, *]))"),
        (Model(3), "PyTreeDef(CustomNode(Model[('m',)], [*]))"),
    ]
    for value, text in shown:
        assert str(tree.tree_structure(value)) == text


def test_maps_over_trees_of_one_form():
    assert tree.tree_map(lambda a, b: a + b, {"a": 1}, {"a": 2}) == {"a": 3}
    assert tree.map(lambda x: x + 1, Model(1)).weight == 2
    with pytest.raises(ValueError, match="different lengths of tuple at key path"):
        tree.tree_map(lambda a, b: 0, (1, 2), (1, 2, 3))
    with pytest.raises(ValueError, match="different pytree metadata"):
        tree.tree_map(lambda a, b: 0, {"a": 1}, {"b": 1})


def test_paths_and_transposes():
    texts = tree.tree_map_with_path(lambda p, x: tree.keystr(p), {"a": [1, Pair(2, 3)]})
    assert texts == {"a": ["['a'][0]", Pair("['a'][1].left", "['a'][1].right")]}
    outer, inner = tree.tree_structure((1, 2)), tree.tree_structure([1, 2])
    assert tree.tree_transpose(outer, inner, ([1, 2], [3, 4])) == [(1, 3), (2, 4)]
    assert tree.tree_broadcast(1, (1, {"a": 2})) == (1, {"a": 1})


def test_partials_are_nodes():
    leaves, form = tree.tree_flatten(tree.Partial(max, 1, key=2))
    assert leaves == [1, 2] and form.unflatten([5, 6]).keywords == {"key": 6}
