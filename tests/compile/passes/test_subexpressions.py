"""The same operation on the same values runs once, where nobody can tell."""

from __future__ import annotations

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import merge_subexpressions


def merged(fn, *args):
    graph = capture(fn)(*args)[1]
    return merge_subexpressions(graph), graph


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


def test_the_first_of_two_stands_for_both():
    lean, _ = merged(lambda x: (x * 2).exp() + (x * 2).exp(), dt.ones(3))
    assert names(lean) == ["mul", "exp", "add"]


def test_operands_that_only_look_equal_are_apart():
    lean, _ = merged(lambda x: (x * 0.0) + (x * -0.0) + (x * 2).sum(0) + (x * 3).sum(0), dt.ones(3))
    assert names(lean).count("mul") == 4


def test_draws_are_not_merged():
    lean, _ = merged(lambda x: x * dt.rand(3) + x * dt.rand(3), dt.ones(3))
    assert len([n for n in names(lean) if n == "mul"]) == 2


def test_what_is_written_to_is_computed_again():
    def fn(x):
        a = x * 2
        a.add_(1.0)
        return a + x * 2

    lean, _ = merged(fn, dt.ones(3))
    assert lean.run(dt.ones(3))[0].tolist() == [5.0] * 3


def test_results_are_objects_of_their_own():
    lean, _ = merged(lambda x: (x * 2, x * 2), dt.ones(3))
    first, second = lean.run(dt.ones(3))
    first.add_(1.0)
    assert second.tolist() == [2.0] * 3
