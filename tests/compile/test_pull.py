"""Derivative rules as single steps of a graph."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain.compile.pull import Rule, accumulate, backward_of


def rule_of(out, needs, results=None):
    return Rule(out._node, 1, results, needs)


def test_a_rule_gives_the_gradients_that_are_needed():
    a, b = dt.full((2,), 3.0).requires_grad_(), dt.full((2,), 5.0).requires_grad_()
    cases = {(True, True): [5.0, 3.0], (True, False): [5.0], (False, True): [3.0]}
    for needs, wanted in cases.items():
        rule = rule_of(a * b, needs)
        given = (np.ones(2, np.float32), a.array, b.array)
        found = rule.run(given)
        assert [r is not None for r in found] == list(needs)
        assert [r[0] for r in rule.forward(*given)] == wanted
        assert str(rule) == "".join("01"[n] for n in needs)


def test_a_gradient_is_no_saved_array():
    x = dt.ones(3).requires_grad_()
    rule = rule_of(x * dt.ones(3), (True, False))
    factor = np.full(3, 2.0, np.float32)
    (found, _) = rule.run((np.ones(3, np.float32), x.array, factor))
    assert found is not factor and found.tolist() == [2.0] * 3


def test_a_rule_of_the_result_gets_it():
    x = dt.zeros(2).requires_grad_()
    rule = rule_of(x.sigmoid(), (True,), results=1)
    (found,) = rule.run((np.ones(2, np.float32), np.full(2, 0.25, np.float32)))
    assert found.tolist() == [0.1875] * 2


def test_one_primitive_stands_for_the_rules_of_another():
    prim = (dt.ones(1).requires_grad_() * 2)._node.prim
    back = backward_of(prim)
    assert back is backward_of(prim) and back.name == "mul_backward" and back.multi


def test_accumulating_writes_in_place():
    grad, more = dt.ones(2), dt.full((2,), 2.0)
    accumulate(grad, more)
    assert grad.tolist() == [3.0, 3.0]
