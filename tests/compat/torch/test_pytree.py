"""Trees of containers: their leaves and structure, and what is refused."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest

import disttrain as dt
from disttrain.compat.torch import pytree

pytestmark = pytest.mark.simulated
Point = namedtuple("Point", "x y")
P = pytree.module()
TREE = {"a": [1, (2, None)], "p": Point(3, OrderedDict(k=4)), "d": deque([5], maxlen=3),
        "e": defaultdict(list, z=6)}  # fmt: skip


def test_a_tree_is_taken_apart_and_put_together():
    leaves, spec = P.tree_flatten(TREE)
    assert leaves == [1, 2, None, 3, 4, 5, 6] and spec.num_leaves == 7
    again = P.tree_unflatten(leaves, spec)
    assert again == TREE and again["d"].maxlen == 3 and again["e"].default_factory is list
    assert P.tree_structure([1, (2,)]) == P.tree_structure([3, (4,)]) != P.tree_structure([3, [4]])
    assert isinstance(P.tree_map(lambda n: n, dt.zeros(2, 3).shape), dt.Size)
    assert P.tree_structure(7).is_leaf() and P.tree_structure([7]).num_children == 1
    assert hash(P.tree_structure([1])) == hash(P.tree_structure([2]))


def test_several_trees_are_gone_over_in_step():
    assert P.tree_map(lambda a, b: a + b, [1, {"k": 2}], [3, {"k": 4}]) == [4, {"k": 6}]
    assert P.tree_map(len, [[1], [2, 3]], is_leaf=lambda v: v in ([1], [2, 3])) == [1, 2]
    assert P.tree_map(lambda a, b: (a, b), OrderedDict(a=1, b=2), {"b": 3, "a": 4}) == OrderedDict(
        a=(1, 4), b=(2, 3)
    )
    seen = []
    assert P.tree_map_(seen.append, (1, 2)) == (1, 2) and seen == [1, 2]


@pytest.mark.parametrize("other", [[1], (1, 2), [1, [2, 3]], {"a": 1}])
def test_trees_that_differ_are_refused(other):
    if other == [1, [2, 3]]:
        assert P.tree_map(lambda a, b: b, [1, 2], other) == other
        return
    with pytest.raises(ValueError, match="mismatch"):
        P.tree_map(max, [1, 2], other)
    with pytest.raises(ValueError, match="length"):
        P.tree_unflatten([1], P.tree_structure([1, 2]))
    with pytest.raises(TypeError, match="TreeSpec"):
        P.tree_unflatten([1], [1])
    with pytest.raises(ValueError, match="keys"):
        P.tree_map(max, {"b": 1}, {"a": 1})


def test_leaves_of_a_kind():
    assert P.tree_map_only(int, lambda n: n * 10, [1, "a", (2,)]) == [10, "a", (20,)]
    assert P.tree_map_only(lambda v: v == 2, str, [1, 2]) == [1, "2"]
    assert P.tree_any(lambda v: v is None, TREE) and not P.tree_all(lambda v: v is None, TREE)
    assert P.tree_all_only(int, lambda n: n > 0, TREE) and not P.tree_any_only(str, bool, TREE)


def test_paths_lead_to_leaves():
    pairs = P.tree_leaves_with_path(TREE)
    assert [P.keystr(path) for path, _ in pairs][:4] == ["['a'][0]", "['a'][1][0]", "['a'][1][1]",
                                                          "['p'].x"]  # fmt: skip
    assert all(P.key_get(TREE, path) is leaf for path, leaf in pairs)
    assert P.tree_map_with_path(lambda path, leaf: len(path), [1, [2]]) == [1, [2]]
    assert P.tree_map_with_path(lambda path, leaf: leaf, []) == []


def test_classes_become_containers():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    P.register_pytree_node(Pair, lambda p: ([p.a, p.b], "how"), lambda values, how: Pair(*values))
    assert P.tree_leaves(Pair(1, [2])) == [1, 2]
    assert P.tree_map(str, Pair(1, 2)).b == "2"
    with pytest.raises(ValueError, match="already registered"):
        P.register_pytree_node(Pair, None, None)
    with pytest.raises(ValueError, match="flatten_with_keys_fn"):
        P.tree_leaves_with_path(Pair(1, 2))

    @dataclass
    class Batch:
        x: int
        y: int = 0

    P.register_dataclass(Batch)
    assert P.tree_map(lambda n: n + 1, Batch(1, 2)) == Batch(2, 3)
    assert P.keystr(P.tree_leaves_with_path(Batch(1, 2))[1][0]) == ".y"


def test_a_leaf_may_stand_for_a_part():
    spec = P.tree_structure([(1, 2), (3,)])
    assert P._broadcast_to_and_flatten([0, (1,)], spec) == [0, 0, 1]
    assert P._broadcast_to_and_flatten([0], spec) is None
    assert P.arg_tree_leaves(1, [2], k=3) == [1, 2, 3]


def test_named_tuples_are_told_from_structures():
    assert P.is_namedtuple(Point(1, 2)) and P.is_namedtuple(Point) and not P.is_namedtuple((1,))
    assert P.is_structseq(time.gmtime()) and not P.is_structseq(Point(1, 2))
    assert P.tree_leaves(time.gmtime(0)) == [time.gmtime(0)]
