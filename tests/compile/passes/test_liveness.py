"""How long values are held, and how many bytes at a time."""

from __future__ import annotations

import disttrain as dt
from disttrain.compile import Var, capture
from disttrain.compile.passes import EVERYWHERE, fuse, optimize, overwrite
from disttrain.compile.passes.liveness import Liveness, told


def alive(fn, *args):
    return Liveness(capture(fn)(*args).graph)


def test_values_are_held_from_their_making_to_their_last_use():
    found = alive(lambda x: ((x * 2) @ x + 1).sum(), dt.ones(4, 4))
    assert list(found.spans.values()) == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert found.profile == [64, 128, 128, 68, 4] and found.peak == 128
    assert found.held(1) == [Var("v", 1), Var("v", 2)]


def test_a_view_holds_what_it_shows():
    found = alive(lambda x: (x * 2)[:1].sum() + (x @ x).sum(), dt.ones(4, 4))
    (first, *_) = found.spans
    assert found.values.root(Var("v", 2)) == first and found.last(first) == 2


def test_what_is_given_is_nobodys_here_and_results_stay_to_the_end():
    kept = dt.ones(4)

    def fn(x):
        y = x * kept
        return y, y + 1

    found = alive(fn, dt.ones(4))
    assert len(found.spans) == 2 and {uses[-1] for uses in found.spans.values()} == {2}
    assert found.peak == 32 and told(found.graph) == "0.00 MB"


def test_results_that_are_written_over_operands_hold_no_more():
    def fn(x):
        return ((x @ x) * 2 + 1) @ x

    graph = capture(fn)(dt.ones(8, 8)).graph
    lean = optimize(graph, (*EVERYWHERE, fuse, overwrite))
    assert "over=(0,)" in str(lean)
    assert Liveness(lean).peak == 2 * 8 * 8 * 4 < Liveness(optimize(graph, (fuse,))).peak + 1
    assert Liveness(lean).profile[:2] == [256, 256]
