"""Operations on rows are put together with what is before, between and after them."""

from __future__ import annotations

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import EVERYWHERE, optimize
from disttrain.compile.passes.rows.fusion import fuse_rows
from disttrain.nn.functional import gelu, layer_norm, softmax
from disttrain.ops.primitives.norm import layer_norm_rows


def names(fn, *args):
    graph = optimize(capture(fn)(*args)[1], EVERYWHERE)
    return [ins.prim.name for ins in fuse_rows(graph).instructions]


def test_what_is_around_softmax_joins_it():
    x, mask = dt.randn(2, 4, 4), dt.rand(4, 4) > 0.5

    def fn(x):
        return softmax((x * 0.5).masked_fill(mask, float("-inf")), -1) * 2

    assert names(fn, x) == ["fused[mul, where, softmax, mul]"]


def test_forward_and_backward_of_a_norm_are_one_region():
    x, w, b = (dt.randn(*s, requires_grad=True) for s in ((5, 6), (6,), (6,)))
    g = dt.randn(5, 6)

    def fn(x, w, b):
        y = x + gelu(layer_norm(x, (6,), w, b))
        return dt.autograd.grad(y, (x, w, b), g)

    found = names(fn, x, w, b)
    assert found[0] == "fused[layer_norm, gelu_backward, layer_norm_backward, add]"
    assert all(name == "clone" for name in found[1:])


def test_elementwise_operations_alone_are_left_to_the_other_pass():
    assert names(lambda x: (x * 2).relu() + 1, dt.randn(3, 4)) == ["mul", "relu", "add"]


def test_what_needs_the_sum_of_all_rows_comes_after():
    def fn(x):
        y = softmax(x * 2, -1)
        return y + y.sum(0)

    assert names(fn, dt.randn(3, 4)) == ["fused[mul, softmax, sum]", "add"]


def test_other_dimensions_and_half_types_are_left_alone():
    assert names(lambda x: softmax(x * 2, 0), dt.randn(3, 4)) == ["mul", "softmax"]
    half = dt.randn(3, 4).to(dt.bfloat16)
    assert not any("fused" in name for name in names(lambda x: softmax(x * 2, -1), half))


def test_a_mean_of_rows_is_no_row_of_means():
    """In a square, what is told of rows has the shape of a column's."""
    x = dt.randn(4, 4)

    def fn(x):
        y, mean, _ = layer_norm_rows(x * 2, None, None, eps=1e-5)
        return y * mean

    run = dt.compile(fn)
    for _ in range(9):
        assert run(x).numpy().tobytes() == fn(x).numpy().tobytes()
