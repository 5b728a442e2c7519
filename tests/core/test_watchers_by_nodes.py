"""Interpreters that are shown whole nodes of backward: the walk goes by arrays, as ever."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import context
from disttrain.core.observers import OperationObserver

pytestmark = pytest.mark.simulated


class Seen(OperationObserver):
    by_nodes = True

    def __init__(self):
        self.nodes, self.ops = [], []

    def process(self, prim, args, params, forward):
        self.ops.append(prim.name)
        return forward(prim, args, params)

    def on_node(self, node, g, results):
        self.nodes.append((node.name(), type(g).__name__, len(results)))


def gradient(seen=None, **how):
    x = dt.arange(4.0).requires_grad_()
    y = (x * x).exp().sum()
    if seen is None:
        y.backward(**how)
    else:
        with context.interpreter(seen):
            y.backward(**how)
    return x.grad


def test_it_is_shown_every_node_and_leaf():
    seen = Seen()
    found = gradient(seen)
    names = [name for name, _, _ in seen.nodes]
    assert names[:3] == ["SumBackward0", "ExpBackward0", "MulBackward0"]
    assert names[-1] == "torch::autograd::AccumulateGrad"
    assert {kind for _, kind, _ in seen.nodes} == {"ndarray"}
    assert not seen.ops
    assert np.array_equal(found.array, gradient().array)


def test_a_recorded_backward_shows_its_operations_too():
    seen = Seen()
    gradient(seen, create_graph=True)
    assert seen.ops and seen.nodes
    assert {kind for _, kind, _ in seen.nodes} == {"Tensor"}


def test_beside_another_that_looks_at_operations_both_see_all():
    class Plain(Seen):
        by_nodes = False

    seen, plain = Seen(), Plain()
    with context.interpreter(plain):
        gradient(seen)
    assert plain.ops and seen.nodes and not plain.nodes


def test_targets_alone_are_walked():
    x, w = dt.ones(3, requires_grad=True), dt.ones(3, requires_grad=True)
    y, seen = (x * 2 + w * 3).sum(), Seen()
    with context.interpreter(seen):
        [found] = dt.autograd.grad(y, [x])
    assert found.tolist() == [2.0, 2.0, 2.0]
    assert [name for name, _, _ in seen.nodes].count("MulBackward0") == 1
