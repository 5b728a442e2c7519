"""Collectives sent down to the level of their axis; values that vary along it, and do not."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func as F
from disttrain.autograd import Function
from disttrain.errors import UnboundAxis
from disttrain.func import named
from disttrain.func.vmap import Batch


class Shared(Function):
    """The sum over an axis, by a custom function."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return F.psum(x, "i")

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return F.psum(g, "i") * ctx.saved_tensors[0]


def test_a_custom_function_finds_the_axis():
    x = dt.arange(3.0)
    assert F.vmap(Shared.apply, axis_name="i")(x).tolist() == [3.0] * 3
    assert F.vmap(F.grad(Shared.apply), axis_name="i")(x).tolist() == [0.0, 3.0, 6.0]


def test_what_varies_is_known():
    level = Batch(3, "error", "i", varying=True)
    with level.running():
        x, w = level.wrap(dt.arange(3.0), 0), level.lift(dt.tensor(2.0))
        assert named.varies(x, level)
        assert not named.varies(w, level)
        assert named.varies(x * w, level)
        assert not named.varies(F.psum(x, "i"), level)
        assert named.varies(F.all_gather(x, "i"), level)
        assert named.varies(F.pvary(w, "i") * 2, level)
        assert not named.varies(F.pmax(x, "i"), level)
        assert named.varies(x.detach() + 0, level)


def test_gradients_of_what_is_one_for_all_are_the_sum():
    level = Batch(3, "error", "i", varying=True)
    with level.running():
        x, w = level.wrap(dt.arange(3.0), 0), level.lift(dt.tensor(2.0))
        g = F.grad(lambda w: w * x + w)(w)
        assert g.inner.tolist() == 6.0  # 3 for w itself, as it is added to what varies
        assert not named.varies(g, level)
        inside = F.vmap(F.grad(lambda w, y: w * y * x), in_dims=(None, 0))
        assert inside(w, dt.ones(2)).inner.tolist() == [3.0, 3.0]


def test_an_axis_ends():
    level = Batch(3, "error", "i")
    with level.running():
        pass
    with pytest.raises(UnboundAxis, match="psum: unbound axis name: i "):
        named.Sum(dt.ones(3), axis=level)
    assert F.vmap(lambda x: named.Sum(x, axis=level), axis_name="i")(dt.ones(3)).tolist() == [3] * 3
    assert named.bound() == ()
