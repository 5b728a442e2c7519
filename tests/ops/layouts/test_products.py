"""Layouts of products, convolutions and windows: which names are cut together, which are summed."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.layouts.layout import each, together
from disttrain.ops.layouts.products import RULES


def of(rule, *shapes, **params):
    args = [None if s is None else np.zeros(s) for s in shapes]
    return RULES[rule](*args, **params)


@pytest.mark.parametrize(
    ("a", "b", "ins", "outs"),
    [
        ((2, 3), (3, 4), (("m", "k"), ("k", "n")), ("m", "n")),
        ((5, 2, 3), (3, 4), ((0, "m", "k"), ("k", "n")), (0, "m", "n")),
        ((5, 2, 3), (1, 3, 4), ((0, "m", "k"), (None, "k", "n")), (0, "m", "n")),
        ((2, 3), (6, 5, 3, 4), (("m", "k"), (0, 1, "k", "n")), (0, 1, "m", "n")),
    ],
    ids=str,
)
def test_matmul(a, b, ins, outs):
    found = of("matmul", a, b)
    assert (found.ins, found.outs, found.reduce) == (ins, (outs,), "sum")
    assert found.linear == each(0, 1)


def test_linear_adds_its_bias_once():
    found = of("linear", (5, 2, 3), (4, 3), (4,))
    assert found.ins == ((0, 1, "k"), ("n", "k"), ("n",)) and found.outs == ((0, 1, "n"),)
    assert found.linear == together(0, 2) + together(1, 2) and found.once == {2}
    plain = of("linear", (3,), (4, 3))
    assert plain.ins == (("k",), ("n", "k"), None) and plain.linear == each(0, 1)


def test_products_in_parts_are_the_product():
    """What the layouts of matmul and linear say, done by hand."""
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((4, 6)), rng.standard_normal((3, 6)), rng.standard_normal(3)
    whole = x @ w.T + b
    halves = [x[:, i : i + 3] @ w[:, i : i + 3].T + (b if i == 0 else 0) for i in (0, 3)]
    np.testing.assert_allclose(sum(halves), whole)  # k is cut: a sum, the bias once
    rows = [x[i : i + 2] @ w.T + b for i in (0, 2)]
    np.testing.assert_allclose(np.concatenate(rows), whole)


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_are_cut_where_they_are_no_groups(groups):
    i, o = ("i", "o") if groups == 1 else (None, None)
    found = of("conv", (2, 4, 9, 9), (6, 4 // groups, 3, 3), (6,), groups=groups, stride=1)
    assert found.ins == (("n", i, None, None), (o, i, None, None), (o,))
    assert found.outs == (("n", o, None, None),) and found.reduce == "sum" and found.once == {2}
    back = of("conv_input_grad", (2, 6, 7, 7), (6, 4 // groups, 3, 3), groups=groups)
    assert back.ins == (("n", o, None, None), (o, i, None, None))
    assert back.outs == (("n", i, None, None),)
    weight = of("conv_weight_grad", (2, 6, 7, 7), (2, 4, 9, 9), groups=groups)
    assert weight.ins == (("n", o, None, None), ("n", i, None, None))
    assert weight.outs == ((o, i, None, None),) and weight.linear == each(0, 1)
    one = of("conv", (2, 4, 9), (6, 4 // groups, 3), None, groups=groups)
    assert one.ins[2] is None and one.linear == each(0, 1)


@pytest.mark.parametrize(
    ("rule", "linear"),
    [("max_pool", ()), ("max_pool_indices", ()), ("max_pool_spread", each(0)),
     ("max_pool_pick", each(0)), ("avg_pool", each(0)), ("avg_pool_spread", each(0))],
)  # fmt: skip
def test_windows_of_samples_and_channels_are_for_themselves(rule, linear):
    found = of(rule, (2, 3, 8, 8), (2, 3, 4, 4), kernel=(2, 2))
    own = (0, 1, None, None)
    assert (found.ins, found.outs, found.linear) == ((own, own), (own,), linear)


def test_columns_keep_their_samples():
    assert of("im2col", (2, 3, 8, 8)).ins == ((0, None, None, None),)
    assert of("im2col", (2, 3, 8)).outs == ((0, None, None),)
    found = of("col2im", (2, 12, 9), size=(8, 8))
    assert found.outs == ((0, None, None, None),) and found.linear == together(0)


def test_heads_and_batches_of_attention():
    q, k = np.zeros((2, 4, 5, 8)), np.zeros((2, 1, 7, 8))
    found = RULES["attention"](q, k, k, None, False, 1.0)
    assert found.ins == ((0, 1, None, None), (0, None, None, None), (0, None, None, None), None)
    assert found.outs[0] == (0, 1, None, None) and found.reduce is None
    masked = RULES["attention"](q, q, q, np.zeros((5, 5)), True, 1.0)
    assert masked.ins[3] == (None, None) and masked.ins[0] == (0, 1, None, None)
