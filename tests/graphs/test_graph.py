"""Lists of operations: recorded on examples, run on other values."""

from __future__ import annotations

import contextlib

import pytest

import disttrain as dt
from disttrain.graphs import Function, Graph, effect, within


def line(graph, example, twin=None):
    return graph.placeholder(example, example if twin is None else twin, "x")


def test_a_graph_is_run_on_other_values():
    graph = Graph("twice")
    with graph:
        x = line(graph, dt.ones(2))
        doubled = graph.record("Mul", dt.mul, [x, dt.tensor([2.0, 3.0])], arguments=("x", "y"))
        graph.finish([graph.record("Add", dt.add, [doubled, x])])
    assert [op.name for op in graph.operations] == ["x", "Mul/y", "Mul", "Add"]
    assert graph.symbol_named("Mul:0") is doubled and doubled.value_index == 0
    assert doubled.consumers() == [graph.operation_named("Add")]
    with pytest.raises(KeyError, match="'Div' refers to an Operation not in the graph"):
        graph.operation_named("Div")
    assert graph.listing().node[2].input == ["x", "Mul/y"]
    assert str(graph.listing()).endswith(
        'node {\n  name: "Add"\n  op: "Add"\n  input: "Mul"\n  input: "x"\n}\n'
    )
    (found,) = graph.run([dt.tensor([1.0, 5.0])])
    assert found.tolist() == [3.0, 20.0]


def test_sizes_that_differ_are_unknown():
    graph = Graph("open")
    with graph:
        x = line(graph, dt.ones(2, 3), dt.ones(3, 3))
        total = graph.record("Sum", lambda v: v.sum(1), [x])
        whole = graph.record("Sum", lambda v: v.sum(), [x])
    assert total.sizes() == [None]
    assert whole.sizes() == []
    assert total.name == "Sum:0"
    assert whole.name == "Sum_1:0"


def test_what_is_used_of_outside_is_captured():
    outer = Graph("outer")
    with outer:
        x = line(outer, dt.ones(1))
        inner = Graph("inner", outer)
        with inner:
            inner.finish([inner.record("Neg", dt.neg, [x])])
        assert [t for t, _ in inner.captured] == [x]
    assert inner.run([dt.tensor([4.0])])[0].tolist() == [-4.0]
    with pytest.raises(RuntimeError, match="used outside"):
        Graph("other").inside(x)


def test_errors_tell_the_operation():
    graph = Graph("g")
    with graph:
        x = line(graph, dt.ones(2))
        graph.finish([graph.record("Add", dt.add, [x, dt.ones(2)])])
    with pytest.raises(Exception, match="at Add of g"):
        graph.run([dt.ones(3)])


def test_examples_are_let_go():
    graph = Graph("g")
    with graph:
        x = line(graph, dt.ones(2))
        y = graph.record("Neg", dt.neg, [x])
        graph.finish([y])
    graph.forget()
    assert y._value.device.type == "meta"
    assert y.sizes() == [2]
    assert graph.run([dt.ones(2)])[0].tolist() == [-1.0, -1.0]


def test_effects_happen_at_every_run():
    seen = []

    def fn(x):
        effect("Note", lambda v: seen.append(float(v)), [x])
        return x

    fn(dt.tensor(1.0))
    traced = Function(fn)
    for n in (2.0, 3.0):
        traced(dt.tensor(n))
    assert seen == [1.0, 2.0, 3.0]


def test_what_is_recorded_runs_inside_of_a_context():
    opened = []

    @contextlib.contextmanager
    def make():
        opened.append(1)
        yield
        opened.append(-1)

    def call(x):
        assert sum(opened) == 1
        return x + 1

    one = dt.ones(1)
    with Graph("g") as graph:
        x = graph.placeholder(one, one, "x")
        with within(make):
            y = graph.record("Add", call, [x])
        graph.finish([y])
    assert opened == [1, -1] and graph.run([one])[0].item() == 2.0 and opened == [1, -1] * 2
    with within(make):
        assert sum(opened) == 1


def test_values_have_no_numbers():
    graph = Graph("g")
    with graph:
        x = line(graph, dt.ones(2))
    for question in (bool, int, float, complex, len, iter, list, lambda v: [0][v]):
        with pytest.raises(TypeError, match="x:0: a value of a traced function has no numbers"):
            question(x)
    assert x in [x] and x == x
