"""A captured walk back, laid out for running."""

from __future__ import annotations

import weakref

import numpy as np

import disttrain as dt
from disttrain import nn
from disttrain.compile import Instruction, Var
from disttrain.compile.sweep import Backward, Sweep
from disttrain.core.gate import Primitive
from disttrain.ops.declare import REGISTRY


def laid_out(instructions, ends, names=()):
    g = Var("v", 0)
    return Backward(Sweep((0,), instructions, (g,), ends), list(names))


def test_values_reach_the_ends():
    g, w = Var("v", 0), Var("c", 0)
    double = Instruction(REGISTRY["mul"], (g, 2.0), {}, (Var("v", 1),))
    times = Instruction(REGISTRY["mul"], (Var("v", 1), w), {}, (Var("v", 2),))
    run = laid_out([double, times], (Var("v", 2), None, Var("v", 1)), [w])
    found = run.run([np.full(2, 3.0)], [np.ones(2)])
    assert found[1] is None and found[0].tolist() == [6.0, 6.0] and found[2].tolist() == [2.0, 2.0]
    assert run.reads == [0]


def test_what_no_later_step_uses_is_let_go():
    held = []

    def look(x):
        held.append([ref() is not None for ref in refs])
        out = x + 1
        refs.append(weakref.ref(out))
        return out

    refs = []
    prim = Primitive("look", look, ("x",))
    chain = [Instruction(prim, (Var("v", i),), {}, (Var("v", i + 1),)) for i in range(4)]
    laid_out(chain, (Var("v", 4),)).run([], [np.ones(2)])
    assert held == [[], [True], [False, True], [False, False, True]]


def test_a_compiled_module_gives_the_gradients_of_its_eager_self():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    run, x = dt.compile(model), dt.ones(3, 4)
    for _ in range(3):
        found = []
        for each in (model, run):
            model.zero_grad()
            each(x).square().sum().backward()
            found.append([p.grad.tolist() for p in model.parameters()])
        assert found[0] == found[1]
