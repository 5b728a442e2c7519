"""Max pools keep where the largest was, not what they saw."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture
from disttrain.compile.passes import keep_places, keep_signs, pools
from disttrain.compile.passes.liveness import Liveness


def graphs(model, x):
    def fn(x):
        for p in model.parameters():
            p.grad = None
        model(x).square().sum().backward()

    fn(x)
    graph = capture(fn)(x).graph
    return graph, keep_places(graph)


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


@pytest.mark.parametrize("how", [(2, 2, 0), (3, 2, 1), (2, 1, 0), (3, 4, 0), (2, 2, 0, 2)], ids=str)
@pytest.mark.parametrize("relu", [True, False])
def test_gradients_have_the_same_bits(how, relu):
    kernel, stride, padding, *dilation = how
    pool = nn.MaxPool2d(kernel, stride, padding, *dilation)
    model = nn.Sequential(nn.Conv2d(2, 8, 3), *[nn.ReLU()] * relu, pool)
    x = np.random.default_rng(0).normal(size=(8, 2, 32, 32)).astype(np.float32)
    x[0, 0, 4] = 0.0
    graph, lean = graphs(model, dt.from_numpy(x))
    assert {"max_pool_places", "spread_to_places"} <= {*names(lean)}
    x[1, 1, 7, 7] = np.nan
    for given in (x, -x, np.full_like(x, np.inf)):
        found = []
        for each in (graph, lean):
            each.run(dt.from_numpy(given))
            found.append([p.grad.numpy() for p in model.parameters()])
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_with_masks_less_is_held():
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 4, 3)]
    graph, lean = graphs(nn.Sequential(*layers), dt.randn(8, 1, 28, 28))
    assert Liveness(keep_signs(lean)).peak < 0.8 * Liveness(graph).peak


def test_what_is_small_or_looked_at_again_stays():
    pool = nn.Sequential(nn.Conv2d(2, 8, 3), nn.MaxPool2d(2))
    assert "max_pool_places" not in names(graphs(pool, dt.randn(1, 2, 8, 8))[1])
    tanh = nn.Sequential(nn.Conv2d(2, 8, 3), nn.Tanh(), nn.MaxPool2d(2))
    assert "max_pool_places" not in names(graphs(tanh, dt.randn(8, 2, 32, 32))[1])


def test_more_places_than_a_byte_tells():
    model = nn.Sequential(nn.Conv1d(1, 8, 3), nn.MaxPool1d(pools.MOST_TAPS + 1))
    assert "max_pool_places" not in names(graphs(model, dt.randn(8, 1, 2000))[1])
