"""Branches, loops and functions of elements, as Python's and in traced functions."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.graphs import CURRENT, Function
from disttrain.graphs.structured import Structured

flow = Structured()


def add(a, b):
    graph = CURRENT.get()
    return a + b if graph is None else graph.record("Add", dt.add, [a, b])


def both(fn, *args):
    """What ``fn`` gives as Python and traced, which is the same."""
    plain, traced = fn(*args), Function(fn)(*args)
    assert plain.tolist() == traced.tolist()
    return plain.tolist()


X = dt.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_elements():
    one = dt.tensor([1.0, 1.0])
    assert both(lambda x, y: flow.map(lambda e: add(e, y), x), X, one) == (X + 1).tolist()
    assert both(lambda x: flow.scan(add, x), X) == X.cumsum(0).tolist()
    assert both(lambda x, y: flow.scan(add, x, y), X, one) == (X.cumsum(0) + 1).tolist()
    assert both(lambda x: flow.scan(add, x, reverse=True), X) == [[9.0, 12.0], [8.0, 10.0], [5, 6]]
    assert both(lambda x: flow.fold(add, x), X) == [9.0, 12.0]
    assert both(lambda x: flow.fold_back(add, x), X) == [9.0, 12.0]
    assert both(lambda x: flow.at_once(lambda e: add(e, e), x), X) == (X * 2).tolist()


def test_nested_elements():
    found = flow.map(lambda e: {"sum": e["a"] + e["b"]}, {"a": X, "b": X})
    assert found["sum"].tolist() == (X * 2).tolist()
    found = flow.at_once(lambda e: (e["a"].sum(), [e["b"]]), {"a": X, "b": X})
    assert found[0].tolist() == X.sum(1).tolist() and found[1][0].tolist() == X.tolist()


def test_branches():
    for flag, out in ((True, 1.0), (False, 2.0)):
        pick = lambda t, a, b: flow.cond(t, lambda: a, lambda: b)
        assert both(pick, dt.tensor(flag), dt.tensor(1.0), dt.tensor(2.0)) == out
    for index, out in ((0, 5.0), (1, 7.0), (9, 7.0), (-1, 7.0)):
        pick = lambda i, a, b: flow.switch(i, [lambda: a, lambda: b])
        assert both(pick, dt.tensor(index), dt.tensor(5.0), dt.tensor(7.0)) == out
    assert flow.switch(3, {3: lambda: "three"}, lambda: "other") == "three"
    assert flow.switch(2, {3: lambda: "three"}, lambda: "other") == "other"
    pairs = [(False, lambda: 1), (True, lambda: 2)]
    assert flow.case(pairs, lambda: 3) == 2 and flow.case(pairs[:1], lambda: 3) == 3


def test_loops():
    twice = lambda v: add(v, v)
    assert flow.while_loop(lambda v: v < 100, twice, (dt.tensor(3),))[0].tolist() == 192
    assert flow.while_loop(lambda v: v < 100, twice, [dt.tensor(3)], 2)[0].tolist() == 12

    def traced(x):
        less = lambda v: CURRENT.get().record("Less", lambda a: a < 100, [v])
        return flow.while_loop(less, twice, [x])[0]

    assert Function(traced)(dt.tensor(3)).tolist() == 192


def test_gradients_go_through():
    x = X.clone().requires_grad_()
    flow.scan(lambda a, b: a * b, x).sum().backward()
    assert x.grad.tolist() == [[1 + 3 + 15, 1 + 4 + 24], [1 + 5, 2 + 12], [3, 8]]


def test_unknown_counts_are_refused():
    relaxed = Function(lambda x: flow.map(lambda e: e, x), None, None, True)
    relaxed(X)
    with pytest.raises(NotImplementedError, match="not known"):
        relaxed(X[:2])
