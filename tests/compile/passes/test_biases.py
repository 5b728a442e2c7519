"""The bias of a product joins what follows it."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import ORDER, optimize, take_biases

F = dt.nn.functional


def names(graph):
    return [ins.prim.name for ins in graph.instructions]


def weights(kind=dt.float32):
    return [dt.randn(4, 4).to(kind), dt.randn(4).to(kind)]


def test_bias_and_activation_are_one_kernel_over_the_product():
    w, b = weights()
    graph = capture(lambda x: F.linear(x, w, b).relu() @ w)(dt.ones(3, 4)).graph
    assert names(take_biases(graph)) == ["linear", "add", "relu", "matmul"]
    lean = optimize(graph, ORDER)
    assert names(lean) == ["linear", "fused[add, relu]", "matmul"] and "over=(0,)" in str(lean)
    x = dt.randn(3, 4)
    for _ in range(9):
        assert lean.run(x)[0].numpy().tobytes() == graph.run(x)[0].numpy().tobytes()


def test_a_residual_joins_too():
    w, b = weights()
    graph = capture(lambda x: x + F.linear(x, w, b))(dt.ones(2, 3, 4)).graph
    assert names(optimize(graph, ORDER)) == ["linear", "fused[add, add]"]


@pytest.mark.parametrize("kind", [dt.bfloat16, dt.float16])
def test_sums_that_are_rounded_once_stay(kind):
    w, b = weights(kind)
    graph = capture(lambda x: F.linear(x, w, b))(dt.ones(3, 4).to(kind)).graph
    assert names(take_biases(graph)) == ["linear"]


def test_products_without_a_bias_and_those_that_are_written_to_stay():
    w, b = weights()
    assert names(take_biases(capture(lambda x: F.linear(x, w))(dt.ones(3, 4)).graph)) == ["linear"]

    def fn(x):
        y = F.linear(x, w, b)
        return y.mul_(2.0)

    graph = capture(fn)(dt.ones(3, 4)).graph
    assert "add" not in names(take_biases(graph))
    assert take_biases(graph).run(dt.ones(3, 4))[0].tolist() == fn(dt.ones(3, 4)).tolist()
