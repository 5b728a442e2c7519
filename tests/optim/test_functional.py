"""Optimizers as functions: their steps are those of the book, and of the classes where both are."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.optim import functional as f

ARGS = {"momentum": (0.9,), "nesterov": (0.9,)}


def run(name, x, gradients, **options):
    state = f.begin(name, x)
    for i, g in enumerate(gradients):
        state = f.RULES[name].update(i, 0.1, g, state, *ARGS.get(name, ()), **options)
    return state


@pytest.mark.parametrize("name, kind, options", [
    ("sgd", dt.optim.SGD, {}), ("momentum", dt.optim.SGD, {"momentum": 0.9}),
    ("nesterov", dt.optim.SGD, {"momentum": 0.9, "nesterov": True}), ("adam", dt.optim.Adam, {}),
    ("adamax", dt.optim.Adamax, {}),
])  # fmt: skip
def test_as_the_classes(name, kind, options):
    x, gradients = dt.randn(4, 3), [dt.randn(4, 3) for _ in range(4)]
    p = x.clone().requires_grad_()
    optimizer = kind([p], lr=0.1, **options)
    for g in gradients:
        p.grad = g.clone()
        optimizer.step()
    assert dt.allclose(run(name, x, gradients)[0], p.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", f.RULES)
def test_down_a_bowl(name):
    x = dt.tensor([[3.0, -2.0]])
    state = f.begin(name, x)
    for i in range(200):
        state = f.RULES[name].update(i, 0.05, 2 * state[0], state, *ARGS.get(name, ()))
    assert float(state[0].abs().max()) < 2
    assert x.tolist() == [[3.0, -2.0]]


def test_captured_and_differentiated():
    x, g = dt.randn(3), dt.randn(3)
    step = dt.compile(lambda x, g: f.RULES["adam"].update(0, 0.1, g, f.begin("adam", x))[0])
    assert step(x, g).tolist() == run("adam", x, [g])[0].tolist()
    rate = dt.func.grad(lambda r: f.RULES["sgd"].update(0, r, g, (x,))[0].sum())(dt.tensor(0.1))
    assert np.isclose(float(rate), -float(g.sum()), rtol=1e-4)


def test_schedules():
    assert f.constant(0.1)(5) == 0.1
    assert np.isclose(f.exponential_decay(1.0, 2, 0.25)(1), 0.5)
    assert f.inverse_time_decay(1.0, 2, 1.0, staircase=True)(3) == 0.5
    assert f.polynomial_decay(1.0, 4, 0.2)(dt.tensor(9)) == pytest.approx(0.2)


def test_unknown():
    with pytest.raises(ConfigError, match="adam"):
        f.begin("adem", dt.ones(1))
