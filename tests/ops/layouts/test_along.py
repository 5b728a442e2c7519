"""Rules of what works along dimensions: which must be whole, and what joins the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.layouts.along import RULES

CUBE = np.empty((2, 3, 4))


@pytest.mark.parametrize(
    ("name", "reduce"),
    [("sum", "sum"), ("mean", "avg"), ("amax", "max"), ("amin", "min"), ("any", "max"),
     ("all", "min"), ("prod", "product")],
)  # fmt: skip
def test_reductions_of_pieces_are_joined(name, reduce):
    layout = RULES[name](CUBE, keepdim=False, dims=(1,))
    assert (layout.ins, layout.outs, layout.reduce) == (((0, 1, 2),), ((0, 2),), reduce)
    assert bool(layout.linear) == (name in ("sum", "mean"))


def test_means_need_equal_pieces():
    assert RULES["mean"](CUBE, keepdim=False, dims=(0, 2)).even == {0: 2, 2: 4}
    assert RULES["sum"](CUBE, keepdim=False, dims=(0, 2)).even == {}


def test_a_dimension_that_is_kept_has_no_name():
    assert RULES["sum"](CUBE, keepdim=True, dims=(1,)).outs == ((0, None, 2),)


@pytest.mark.parametrize("name", ["logsumexp", "argmax", "argmin"])
def test_what_cannot_be_joined_needs_its_dimension_whole(name):
    layout = RULES[name](CUBE, keepdim=False, dim=1)
    assert (layout.ins, layout.outs, layout.reduce) == (((0, None, 2),), ((0, 2),), None)


@pytest.mark.parametrize(
    "name", ["cumsum", "cumprod", "argsort", "softmax", "log_softmax", "flip", "roll"]
)
def test_what_keeps_its_shape_needs_its_dimension_whole(name):
    how = {"dims": (2,)} if name in ("flip", "roll") else {"dim": 2}
    layout = RULES[name](CUBE, **how)
    assert layout.ins == layout.outs == ((0, 1, None),)
    assert bool(layout.linear) == (name in ("cumsum", "flip", "roll"))


def test_matrices_are_whole_and_what_leads_is_not():
    assert RULES["inv"](CUBE).outs == ((0, None, None),)
    assert RULES["det"](CUBE).outs == ((0,),)
    assert RULES["svd"](CUBE).outs == ((0, None, None), (0, None), (0, None, None))
    solved = RULES["solve"](CUBE, CUBE)
    assert solved.linear == (frozenset([1]),)  # in the right side, not in the matrix


def test_norms():
    layout = RULES["layer_norm"](CUBE, np.ones(4), None, 1e-5)
    assert layout.ins == ((0, 1, None), (None,), None)
    assert layout.outs == ((0, 1, None), (0, 1), (0, 1))
    assert RULES["batch_norm"](CUBE, None, None, 1e-5).outs == ((None, 1, None), (1,), (1,))
    grouped = RULES["group_norm"](CUBE, None, None, 1, 1e-5)
    assert grouped.outs == ((0, None, None), (0, None), (0, None))
