"""Which values of a graph are written to, and which the program hands on."""

from __future__ import annotations

import disttrain as dt
from disttrain.compile import Var, capture
from disttrain.compile.passes.values import Values


def values_of(fn, *args):
    graph = capture(fn)(*args)[1]
    return Values(graph), graph


def test_a_view_lies_in_the_memory_of_its_base():
    values, graph = values_of(lambda x: (x * 2).reshape(4)[1:] + 1, dt.ones(2, 2))
    product, flat, part, total = (ins.outputs[0] for ins in graph.instructions)
    assert values.root(part) == values.root(flat) == values.root(product) == product
    assert values.seen(total) and not values.seen(product)
    assert values.replaceable(product) and not values.replaceable(flat)


def test_what_is_written_through_a_view_is_not_steady():
    def fn(x):
        y = x * 2
        y[0].add_(1.0)
        return y.sum()

    values, graph = values_of(fn, dt.ones(2, 2))
    product = graph.instructions[0].outputs[0]
    assert not values.steady(product) and not values.replaceable(product)


def test_arguments_may_be_the_memory_that_is_written_to():
    def fn(x, y):
        x.add_(1.0)
        return y * 2 + 1

    values, graph = values_of(fn, dt.ones(3), dt.ones(3))
    assert not any(map(values.steady, graph.inputs))


def test_tensors_from_outside_are_steady_unless_their_memory_is_written_to():
    whole, other = dt.zeros(8), dt.zeros(4)

    def fn():
        whole[:4].add_(1.0)
        return whole[2:6] * other

    values, graph = values_of(fn)
    of = {name: values.steady(v) for v, name in zip(graph.outside(), graph.names, strict=True)}
    assert list(of.values()).count(True) == 1  # ``other``
    assert values.steady(Var("c", next(i for i, t in enumerate(graph.captured) if t is other)))
