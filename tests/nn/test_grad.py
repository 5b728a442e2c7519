"""Gradients of convolutions asked for by name are those that autograd finds."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ConfigError, ShapeError

HOWS = [{}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"stride": 3, "groups": 2, "padding": 2}]


def drawn(*shape):
    return dt.tensor(np.random.default_rng(sum(shape)).normal(size=shape))


@pytest.mark.parametrize("how", HOWS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_are_autograds(n, how):
    x = drawn(2, 4, *(8, 7, 9)[:n]).requires_grad_()
    w = drawn(6, 4 // how.get("groups", 1), *(3, 2, 3)[:n]).requires_grad_()
    out = getattr(nn.functional, f"conv{n}d")(x, w, **how)
    g = drawn(*out.shape)
    by_x, by_w = dt.autograd.grad(out, (x, w), g)
    got_x = getattr(nn.grad, f"conv{n}d_input")(x.shape, w, g, **how)
    got_w = getattr(nn.grad, f"conv{n}d_weight")(x, w.shape, g, **how)
    np.testing.assert_allclose(got_x.detach().numpy(), by_x.numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got_w.detach().numpy(), by_w.numpy(), rtol=1e-12, atol=1e-12)


def test_they_are_differentiable():
    w, g = drawn(2, 2, 3).requires_grad_(), drawn(1, 2, 4).requires_grad_()
    assert dt.autograd.gradcheck(lambda w, g: nn.grad.conv1d_input((1, 2, 6), w, g), (w, g))
    x = drawn(1, 2, 6).requires_grad_()
    assert dt.autograd.gradcheck(lambda x, g: nn.grad.conv1d_weight(x, (2, 2, 3), g), (x, g))


def test_shapes_of_no_convolution_are_refused():
    w, g = drawn(2, 2, 3), drawn(1, 2, 4)
    with pytest.raises(ShapeError, match=r"conv1d_input: grad_output .* needed"):
        nn.grad.conv1d_input((1, 2, 9), w, g)
    with pytest.raises(ShapeError, match="needed 4 dimensions"):
        nn.grad.conv2d_input((1, 2, 6, 6), w, g)
    with pytest.raises(ConfigError, match="groups=2"):
        nn.grad.conv1d_weight(drawn(1, 2, 6), (2, 2, 3), g, groups=2)
