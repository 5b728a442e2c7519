"""Rules that hold for every number, and no others."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import dead_code, simplify

ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -3.5, 7.0], np.float32)


def simplified(fn, *args):
    graph = capture(fn)(*args)[1]
    return dead_code(simplify(graph)), graph


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


GONE = {
    "x * 1": lambda y: y * 1.0,
    "x / 1": lambda y: y / 1,
    "x - 0": lambda y: y - 0.0,
    "x + -0": lambda y: y + -0.0,
    "x ** 1": lambda y: y**1,
    "-(-x)": lambda y: y.neg().neg(),
    "cast to what it is": lambda y: y.to(dt.float64).to(dt.float32),
}
STAY = {
    "x + 0": lambda y: y + 0.0,  # 0.0 of -0.0
    "x - -0": lambda y: y - -0.0,
    "x * 0": lambda y: y * 0.0,  # nan of inf
    "x - x": lambda y: y - y,
    "through half": lambda y: y.to(dt.float16).to(dt.float32),
}


@pytest.mark.parametrize("what", [*GONE, *STAY])
@np.errstate(all="ignore")
def test_a_rule_gives_the_same_bits(what):
    rule = {**GONE, **STAY}[what]

    def fn(x):
        return rule(x.abs() * x.sign()) * 2

    x = dt.tensor(ODD)
    lean, graph = simplified(fn, x)
    assert (len(names(lean)) < len(names(graph))) == (what in GONE)
    got, expected = lean.run(x)[0].numpy(), fn(x).numpy()
    assert got.tobytes() == expected.tobytes()


def test_a_result_is_an_object_of_its_own():
    """The program may tell it from the operand."""
    lean, _ = simplified(lambda x: x * 1.0, dt.ones(3))
    x = dt.ones(3)
    lean.run(x)[0].add_(1.0)
    assert x.tolist() == [1.0] * 3


def test_gradients_that_are_handed_through_are_those_that_came():
    def fn(x, y):
        return dt.autograd.grad(((x + y) * 2).exp().sum(), (x, y))

    x, y = (dt.ones(3, requires_grad=True) for _ in range(2))
    lean, graph = simplified(lambda a, b: [g * 3 for g in fn(a, b)], x, y)
    assert "add_backward" in names(graph) and "add_backward" not in names(lean)
    assert [o.tolist() for o in lean.run(x, y)] == [o.tolist() for o in graph.run(x, y)]


def test_an_operand_that_is_written_to_later_does_not_stand_for_the_result():
    def fn(x):
        y = x + 1
        z = y * 1.0
        y.add_(5.0)
        return z + y

    lean, _ = simplified(fn, dt.ones(3))
    assert lean.run(dt.ones(3))[0].tolist() == [9.0] * 3
