"""Iterators in traced functions."""

from __future__ import annotations

import disttrain as dt
from disttrain.graphs import CURRENT, Function, Spec, control
from disttrain.graphs.streams import drawn


class Numbers:
    """Vectors of one number each, and what they are."""

    element_spec = (Spec([None], dt.float32), Spec([], dt.int64))

    def __init__(self, *values):
        self._rest = iter(values)

    def __next__(self):
        n = next(self._rest)
        return dt.tensor([float(n)] * (n + 1)), dt.tensor(n)


def double(x):
    return CURRENT.get().record("Double", lambda v: v * 2, [x])


def test_elements_of_every_run():
    one = Numbers(1, 2, 3)
    traced = Function(lambda: double(drawn(one.__next__, one.element_spec)[0]))
    assert [traced().tolist() for _ in range(2)] == [[2.0, 2.0], [4.0, 4.0, 4.0]]
    assert traced.count == 1
    assert traced.traces[0].graph.outputs[0].sizes() == [None]


def test_iterators_that_are_arguments_share_a_trace():
    traced = Function(lambda it, k: (double(next(it)[0]), next(it)[1], k))
    one, two = Numbers(1, 2, 3, 4), Numbers(5, 6)
    assert traced(one, 0)[1].tolist() == 2
    out, n, _ = traced(two, 0)
    assert (out.tolist(), n.tolist()) == ([10.0] * 6, 6)
    assert traced(one, 0)[1].tolist() == 4
    assert traced.count == 1


def test_iterators_go_through_functions_in_functions():
    inner = Function(lambda it: double(next(it)[1]))
    outer = Function(lambda it: (inner(it), double(next(it)[1])))
    for start in (1, 7):
        assert [v.tolist() for v in outer(Numbers(start, start + 1))] == [2 * start, 2 * start + 2]
    assert outer.count == inner.count == 1


def test_loops_over_iterators():
    def total(it):
        add = lambda x, s: [CURRENT.get().record("Add", lambda s, v: s + v, [s, x[1]])]
        return control.for_loop(it, add, [dt.tensor(0)])[0]

    traced = Function(total)
    assert [traced(Numbers(*v)).tolist() for v in ((1, 2, 3), (4, 5))] == [6, 9]
    assert traced.count == 1
