"""Gradients of products: the weight's first, then the input's."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture
from disttrain.compile.passes import part_products, products


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(products, "LEAST", 0)


def captured(model, x):
    def fn(x):
        for p in model.parameters():
            p.grad = None
        model(x).square().sum().backward()

    fn(x)
    return capture(fn)(x).graph


def rules(graph):
    return [
        str(ins.params["rule"]) for ins in graph.instructions if ins.prim.name == "linear_backward"
    ]


def test_both_gradients_are_two_instructions_and_the_weights_comes_first():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3, bias=False))
    graph = captured(model, dt.randn(6, 4))
    assert rules(graph) == ["110", "011"]
    lean = part_products(graph)
    assert rules(lean) == ["010", "100", "011"]
    x = dt.randn(6, 4)
    found = []
    for each in (graph, lean):
        each.run(x)
        found.append([p.grad.numpy().tobytes() for p in model.parameters()])
    assert found[0] == found[1]


def test_one_gradient_stays_one():
    model = nn.Linear(4, 5)
    graph = captured(model, dt.randn(6, 4))
    assert rules(graph) == ["011"] and part_products(graph) is graph


def test_more_dimensions():
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    x = dt.randn(2, 6, 4)
    graph = captured(model, x)
    lean = part_products(graph)
    assert rules(lean) == ["011", "100", "011"]
    found = []
    for each in (graph, lean):
        each.run(x)
        found.append([p.grad.numpy().tobytes() for p in model.parameters()])
    assert found[0] == found[1]


def test_small_ones_are_one_call(monkeypatch):
    monkeypatch.undo()
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    graph = captured(model, dt.randn(6, 4))
    assert part_products(graph) is graph
