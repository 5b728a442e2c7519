"""Gradients of biases are operations of their own where a kernel can add them up, in the same
order."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes.rows.sums import column_sums, joined, lines_of, summed, take_sums
from disttrain.core.types.wide import total
from disttrain.nn.functional import gelu, linear


def step(x, w, b, v):
    y = linear(gelu(linear(x, w, b)), v)
    return dt.autograd.grad(y.sum(), (w, b, v))


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


def given(*shapes):
    return [dt.randn(*shape, requires_grad=True) for shape in shapes]


def test_the_sum_stands_behind_what_makes_what_is_summed():
    graph = take_sums(capture(step)(*given((5, 6), (4, 6), (4,), (3, 4)))[1])
    found = names(graph)
    at = found.index("column_sums")
    assert found[at - 1] == "gelu_backward"
    assert summed(graph.instructions[at], graph.metas) == graph.instructions[at - 1].outputs[0]


def test_what_a_product_gives_is_summed_by_the_product():
    def two(x, w, b, v):
        y = linear(linear(x, w, b), v)
        return dt.autograd.grad(y.sum(), (w, b, v))

    graph = capture(two)(*given((5, 6), (4, 6), (4,), (3, 4)))[1]
    assert names(take_sums(graph)) == names(graph)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(5, 6), (33, 7), (65, 40), (1030, 3), (2, 40, 60)], ids=str)
def test_lines_are_joined_in_the_order_of_an_eager_sum(shape, kind):
    a = np.random.default_rng(0).normal(size=shape).astype(kind)
    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    flat, every = a.reshape(rows, columns), lines_of(rows, columns)
    lines = np.full((-(-rows // every), columns), -0.0, kind)
    for i in range(rows):
        lines[i // every] += flat[i]
    assert joined(lines).tobytes() == total(flat, (0,), False).tobytes()
    assert joined(lines).tobytes() == column_sums.forward(a).tobytes()
