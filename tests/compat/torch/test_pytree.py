"""Trees as programs beside PyTorch's spell them."""

from __future__ import annotations

import pytest

from disttrain.compat.torch import pytree


@pytest.mark.parametrize("whole", [1, None, [], (1, None), {"a": [1, (2,)], "b": None}])
def test_a_tree_comes_back(whole):
    leaves, spec = pytree.tree_flatten(whole)
    assert pytree.tree_unflatten(leaves, spec) == whole and spec.num_leaves == len(leaves)
    assert spec == pytree.tree_structure(whole) and spec.is_leaf() is (whole in (1, None))


def test_none_is_a_leaf():
    assert pytree.tree_leaves([1, None, (None,)]) == [1, None, None]
    assert pytree.tree_structure((1, None)) == pytree.tree_structure((2, 3))
    assert pytree.tree_structure([1]) != pytree.tree_structure((1,))


def test_map_in_step_and_by_kind():
    assert pytree.tree_map(lambda x, y: x + y, {"a": 1}, {"a": 2}) == {"a": 3}
    assert pytree.tree_map_only(int, lambda x: -x, [1, "b", (2,)]) == [-1, "b", (-2,)]
    assert pytree.tree_all(bool, [1, [2]]) and not pytree.tree_any(bool, [0, None])


def test_what_the_caller_calls_a_leaf_is_one():
    pair = (1, 2)
    assert pytree.tree_leaves([pair, 3], is_leaf=lambda x: x is pair) == [pair, 3]
    assert pytree.tree_map(len, [pair], is_leaf=lambda x: x is pair) == [2]


class Box:
    def __init__(self, inside, name):
        self.inside, self.name = inside, name


def test_a_kind_of_the_program_becomes_a_container():
    pytree.register_pytree_node(
        Box, lambda b: ((b.inside,), b.name), lambda parts, name: Box(*parts, name)
    )
    back = pytree.tree_map(lambda x: x + 1, [Box(1, "n")])
    assert back[0].inside == 2 and back[0].name == "n"
