"""What the reducer asks the graph: nodes of nested results, and what a walk comes to."""

from __future__ import annotations

import weakref

import pytest

import disttrain as dt
from disttrain.distributed.ddp.reducer.graph import below, nodes_of, reached

pytestmark = pytest.mark.simulated


def test_nodes_are_found_once_in_any_nesting():
    x = dt.ones(2, requires_grad=True)
    y, z = x * 2, x + 1
    assert nodes_of(y) == [y.grad_fn] and nodes_of(dt.ones(1)) == [] and nodes_of("text") == []
    assert nodes_of({"a": (y, [z, 3, None]), "b": y}) == [y.grad_fn, z.grad_fn]
    low, high = x.reshape(1, 2).unbind(1)  # two results of one node
    assert len(nodes_of([low, high])) == 1 and nodes_of(low) == nodes_of([high])


def test_all_that_a_backward_would_come_to():
    x, other = dt.ones(2, requires_grad=True), dt.ones(2, requires_grad=True)
    y = (x * 2).sin()
    z = y + other.exp()
    seen = below(nodes_of(y))
    assert {x.graph_node(), y.grad_fn} <= seen and other.graph_node() not in seen
    assert other.graph_node() in below(nodes_of(z)) and below([None]) == set()
    low, _ = x.unbind(0)
    assert x.graph_node() in below([low.graph_node()])


def test_a_deep_graph_is_no_recursion():
    y = x = dt.ones(1, requires_grad=True)
    for _ in range(5000):
        y = y + 1
    assert len(below(nodes_of(y))) == 5001 and x.graph_node() in below(nodes_of(y))


def test_only_while_backward_runs_something_is_reached():
    x = dt.ones(1, requires_grad=True)
    y, beside = x * 2, x * 3
    refs = [[weakref.ref(t.grad_fn)] for t in (y, beside)]
    assert not reached(refs[0])
    seen = []
    x.register_hook(lambda g: seen.extend(map(reached, refs)))
    (y * 2).sum().backward()
    assert seen == [True, False] and not reached(refs[0])
    gone = (x * 4).grad_fn
    ref = weakref.ref(gone)
    del gone
    assert not reached([ref])
