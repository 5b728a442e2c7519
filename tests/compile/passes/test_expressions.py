"""What instructions compute as expressions, and which have none."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes.expressions import evaluate, expressions_of, named
from disttrain.compile.passes.symbol import Unfit


def instructions(fn, *args):
    graph = capture(fn)(*args)[1]
    return graph.instructions, graph.metas


def test_an_expression_names_the_values_of_the_graph():
    (ins,), metas = instructions(lambda x, y: x - y, dt.ones(2, 3), dt.ones(3))
    (found,) = expressions_of(ins, metas)
    assert repr(found.expr) == "sub(%0, %1)" and found.shape == (2, 3)


def test_derivatives_are_expressions_of_what_their_rules_do():
    def fn(x, y):
        return dt.autograd.grad((x * y).sqrt().sum(), (x, y))

    found, metas = instructions(
        fn, dt.ones(3, requires_grad=True), dt.full((3,), 4.0, requires_grad=True)
    )
    rules = [i for i in found if i.prim.name in ("mul_backward", "sqrt_backward")]
    texts = [[repr(r.expr) for r in expressions_of(i, metas)] for i in rules]
    assert [len(t) for t in texts] == [1, 2] and texts[0][0].startswith("div(mul(")


def test_some_have_none():
    def fn(x):
        kept.fill_(1.0)
        return x[1:], x.sum(), x.sin(), x.to(dt.float16), dt.rand(3)

    kept = dt.zeros(3)
    found, metas = instructions(fn, dt.ones(3))
    fits = {i.prim.name for i in found if expressions_of(i, metas) is not None}
    assert fits == set()
    with pytest.raises(Unfit):
        evaluate(next(i for i in found if i.prim.name == "sin"),
                 {a: named(str(a), metas[a], False) for a in metas})  # fmt: skip
