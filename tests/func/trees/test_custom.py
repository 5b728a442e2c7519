"""Rules of functions of trees of tensors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.custom import CustomJvp, CustomVjp, recomputed
from disttrain.func.trees.derivatives import Derivatives
from disttrain.func.trees.programs import Programs
from tests.support.borders import BORDER

D = Derivatives(BORDER)


class Rule(CustomVjp):
    border = BORDER


class Forward(CustomJvp):
    border = BORDER


class Native(Programs):
    border = BORDER


def test_the_rule_is_the_derivative():
    double = Rule(lambda t: t["x"] * t["y"])
    double.defvjp(lambda t: (t["x"] * t["y"], t), lambda t, g: ({"x": 7 * g, "y": t["x"] * g},))
    found = D.grad(lambda t: double(t))({"x": 2.0, "y": 3.0})
    assert float(found["x"]) == 7 and float(found["y"]) == 2
    sine = Forward(lambda x: dt.sin(x))
    sine.defjvp(lambda xs, ts: (dt.sin(xs[0]), 5 * ts[0]))
    assert float(D.grad(sine)(dt.tensor(0.0))) == 5


def test_what_rules_give_is_checked():
    wrong = Rule(lambda x: x * 2)
    wrong.defvjp(lambda x: (x * 2, None), lambda res, g: (g, g))
    with pytest.raises(TypeError, match="same container"):
        D.grad(wrong)(dt.tensor(1.0))
    with pytest.raises(AttributeError, match="No JVP defined"):
        Forward(lambda x: dt.sin(x))(dt.ones(1))


def test_functions_are_computed_once_more():
    run = recomputed(Native(lambda x: dt.sin(x) * x))
    x = dt.tensor(0.5)
    assert float(D.grad(run)(x)) == pytest.approx(float(D.grad(lambda x: dt.sin(x) * x)(x)))
