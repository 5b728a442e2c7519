"""Signs are kept in place of values that backward asks for nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture
from disttrain.compile.passes import keep_signs, masks, part_products, products
from disttrain.compile.passes.liveness import Liveness


def stepped(model):
    def fn(x):
        for p in model.parameters():
            p.grad = None
        y = model(x)
        y.square().sum().backward()
        return y

    return fn


def lean_of(model, x):
    fn = stepped(model)
    fn(x)
    graph = capture(fn)(x).graph
    return graph, keep_signs(part_products(graph))


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


def grads(graph, model, x):
    out = graph.run(x)
    return [t.numpy().tobytes() for t in (*out, *(p.grad for p in model.parameters()))]


def wide(*more):
    return nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 8), *more)


def test_less_is_held_and_gradients_have_the_same_bits():
    model, x = wide(), dt.randn(512, 8)
    graph, lean = lean_of(model, x)
    assert names(lean).count("not_zero") == names(lean).count("masked_scale") == 1
    assert names(lean).index("not_zero") < names(lean).index("masked_scale") - 1
    assert Liveness(lean).peak < Liveness(graph).peak
    odd = dt.from_numpy(np.where(np.arange(512 * 8).reshape(512, 8) % 97, 1.0, np.nan))
    for given in (x, -x, odd.float(), dt.full((512, 8), float("inf"))):
        found = [np.frombuffer(b, np.float32) for b in grads(graph, model, given)]
        again = [np.frombuffer(b, np.float32) for b in grads(lean, model, given)]
        for a, b in zip(found, again, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(np.signbit(a)[a == 0], np.signbit(b)[b == 0])


@pytest.mark.parametrize(
    "model",
    [nn.Sequential(nn.Linear(8, 256), nn.ReLU()), nn.Sequential(nn.Linear(8, 256), nn.Tanh())],
    ids=["that is handed on", "that backward needs"],
)
def test_a_value_stays(model):
    assert "not_zero" not in names(lean_of(model, dt.randn(512, 8))[1])


def test_what_is_small_stays(monkeypatch):
    assert "not_zero" not in names(lean_of(wide(), dt.randn(4, 8))[1])
    for module in (masks, products):
        monkeypatch.setattr(module, "LEAST", 0)
    assert "not_zero" in names(lean_of(wide(), dt.randn(4, 8))[1])


def test_what_is_in_a_kernel_anyway_stays():
    w = dt.randn(1 << 15, requires_grad=True)

    def fn():
        w.grad = None
        ((w * 2).relu() * w).sum().backward()

    fn()
    graph = capture(fn)().graph
    assert "not_zero" not in names(keep_signs(graph))
