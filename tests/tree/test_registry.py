"""Trees: leaves, structures that are kept, and trees in step."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest

from disttrain import tree

Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "given", [1, None, [], (1, 2), [1, (2, {"x": 3})], Pair(1, [2]), {"b": 1, "a": None}]
)
def test_a_tree_comes_back(given):
    leaves, build = tree.flatten(given)
    assert None not in leaves
    back = build(leaves)
    assert back == given and type(back) is type(given)


def test_leaves_stand_in_the_order_of_keys_given():
    assert tree.leaves({"b": 1, "a": [2, 3], "c": Pair(4, 5)}) == [1, 2, 3, 4, 5]


def test_ordered_dicts_stay_ordered():
    back = tree.map(lambda x: x + 1, OrderedDict(b=1, a=2))
    assert isinstance(back, OrderedDict) and list(back.items()) == [("b", 2), ("a", 3)]


def test_map_takes_trees_in_step():
    assert tree.map(lambda x, y: x + y, {"a": [1, 2]}, {"a": [10, 20]}) == {"a": [11, 22]}


def test_trees_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tree.map(lambda x, y: x, [1, 2], [1])
    _, build = tree.flatten([1, 2])
    with pytest.raises(ValueError, match="1 leaves given, 2 needed"):
        build([1])


def test_none_may_be_a_leaf():
    leaves, build = tree.flatten((1, None, [None]), with_none=True)
    assert leaves == [1, None, None] and build([1, 2, 3]) == (1, 2, [3])


def test_structures_are_equal_where_forms_are():
    assert tree.structure((1, [2], {"a": Pair(3, None)})) == "(*, [*], {'a': Pair(*, None)})"
    assert tree.structure((1,)) == tree.structure((2,)) != tree.structure([1])
    assert tree.structure({"a": 1, "b": 2}) != tree.structure({"b": 1, "a": 2})


# --- registries -----------------------------------------------------------------------------------
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y


def registry():
    made = tree.Registry()
    made.register(
        Point,
        tree.Rule(
            lambda p: ((p.x, p.y), "aux"),
            lambda _, xs: Point(*xs),
            lambda p: [tree.GetAttrKey("x"), tree.GetAttrKey("y")],
        ),
    )
    return made


def test_a_registry_takes_trees_apart_and_puts_them_together():
    nested = {"b": (1, None), "a": [Point(2, 3)]}
    leaves, form = registry().flatten(nested)
    assert leaves == [2, 3, 1]  # dicts go by their keys
    assert str(form) == "{'a': [CustomNode(Point[aux], [*, *])], 'b': (*, None)}"
    again = form.unflatten([x * 10 for x in leaves])
    assert (again["a"][0].y, again["b"]) == (30, (10, None))
    assert form == registry().flatten(again)[1] and form.num_nodes == 8
    assert hash(form) == hash(registry().flatten(again)[1])
    with pytest.raises(ValueError, match="Too few leaves"):
        form.unflatten([1])


def test_paths_lead_to_leaves():
    paths = [("".join(map(str, p)), x) for p, x in registry().paths({"a": [1, Point(2, 3)]})]
    assert paths == [("['a'][0]", 1), ("['a'][1].x", 2), ("['a'][1].y", 3)]
    stopped = list(registry().paths([1, (2, 3)], lambda x: isinstance(x, tuple)))
    assert stopped[1] == ((tree.SequenceKey(1),), (2, 3))


def test_keys_that_have_no_order_are_refused():
    with pytest.raises(ValueError, match="sorting"):
        registry().flatten({1: 1, "a": 2})
    with pytest.raises(ValueError, match="Duplicate"):
        registry().register(tuple, tree.Rule(list, tuple))


def test_dicts_by_key_and_none_as_a_leaf():
    found = tree.by_key({"b": [1, {"d": 2, "c": 3}], "a": (None,)})
    assert list(found) == ["a", "b"] and list(found["b"][1]) == ["c", "d"]
    assert tree.map(lambda a, b: (a, b), [None, 1], [2, None], with_none=True) == [
        (None, 2), (1, None)]  # fmt: skip


def test_what_lies_below():
    inner = ["x"]
    parts = lambda v: v if isinstance(v, list) else []
    whole = [inner, "y", inner, ["z"]]
    inner.append(whole)
    assert [v for v in tree.below(whole, parts) if isinstance(v, str)] == ["x", "y", "z"]


def test_trees_that_are_not_alike_are_told():
    tree.assert_alike([1, {"a": None}], (2, [3]))
    with pytest.raises(ValueError, match="same nested structure"):
        tree.assert_alike([1, 2], [1, 2], [1])
