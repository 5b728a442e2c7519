"""Names of dimensions for broadcasting, and where elementwise operations are linear."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain.ops.layouts.layout import (
    Layout,
    aligned,
    each,
    elementwise,
    names,
    shape_of,
    together,
)


def arrays(*shapes):
    return [s if s is None or isinstance(s, (int, float)) else np.zeros(s) for s in shapes]


@pytest.mark.parametrize(
    ("shapes", "ins", "outs"),
    [
        ([(2, 3), (2, 3)], ((0, 1), (0, 1)), (0, 1)),
        ([(2, 3), (3,)], ((0, 1), (1,)), (0, 1)),
        ([(2, 3), (2, 1)], ((0, 1), (0, None)), (0, 1)),
        ([(1, 3), (2, 1)], ((None, 1), (0, None)), (0, 1)),
        ([(1,), (1, 1)], ((1,), (0, 1)), (0, 1)),
        ([(), (2,)], ((), (0,)), (0,)),
        ([2.0, (2,)], (None, (0,)), (0,)),
        ([(0, 2), (1, 2)], ((0, 1), (None, 1)), (0, 1)),
    ],
    ids=str,
)
def test_dimensions_are_counted_from_the_last_one(shapes, ins, outs):
    assert aligned(arrays(*shapes)) == (ins, outs)


def test_what_cannot_be_broadcast_is_told_with_all_shapes():
    with pytest.raises(ValueError, match=r"shapes \[2, 3\], \[2\], \[3\] cannot be broadcast"):
        aligned(arrays((2, 3), (2,), (3,)))
    with pytest.raises(ValueError, match="cannot be broadcast"):
        aligned(arrays((2, 0), (2, 3)))


def test_more_dimensions_than_any_array_has():
    assert aligned(arrays((3,)), 3) == (((2,),), (0, 1, 2))


def test_shapes_of_arrays_alone():
    assert shape_of(np.zeros((2, 3))) == (2, 3) and shape_of(np.zeros(())) == ()
    assert shape_of(2.0) is None and shape_of(np.float32(1)) is None and shape_of("x") is None
    assert names(np.zeros((2, 3, 4)), 1) == (0, None, 2)
    assert together(0, 2) == (frozenset({0, 2}),) and each(0, 2) == (frozenset({0}), frozenset({2}))


X, Y = np.zeros((2, 3)), np.ones((2, 3))


@pytest.mark.parametrize(
    ("name", "args", "linear"),
    [
        ("add", [X, Y], together(0, 1)),
        ("add", [X, 1.0], ()),  # the number would count on each rank
        ("neg", [X], together(0)),
        ("mul", [X, Y], each(0, 1)),
        ("mul", [X, 2.0], each(0)),
        ("mul", [2.0, X], each(1)),
        ("mul", [X, math.inf], ()),  # zeros of a part would give nan
        ("mul", [X, math.nan], ()),
        ("div", [X, 2.0], each(0)),
        ("div", [X, 0.0], ()),
        ("div", [X, Y], ()),
        ("div", [2.0, X], ()),
        ("relu_backward", [X, Y], each(0)),
        ("where", [X, X, Y], together(1, 2)),
        ("where", [X, X, 0.0], together(1)),
        ("where", [X, 0, Y], together(2)),
        ("where", [X, X, 1.0], ()),
        ("where", [X, 0.0, 0.0], ()),
        ("exp", [X], ()),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_parts_of_sums_go_through_what_is_linear(name, args, linear):
    found = elementwise(name, args)
    assert found == Layout(found.ins, ((0, 1),), linear=linear) and found.reduce is None
    if not linear or name == "neg":
        return
    # held against numbers: f of a sum of parts is the sum of f of the parts
    run = {"add": np.add, "mul": np.multiply, "div": np.divide, "where": np.where,
           "relu_backward": lambda g, a: g * (a > 0)}[name]  # fmt: skip
    rng = np.random.default_rng(0)
    for places in linear:
        first, second = list(args), list(args)
        for i in places:
            first[i], second[i] = rng.standard_normal((2, 2, 3))
        whole = [a + b if i in places else a for i, (a, b) in enumerate(zip(first, second))]
        np.testing.assert_allclose(run(*whole), run(*first) + run(*second), atol=1e-12)
