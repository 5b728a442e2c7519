"""Activations, also over their input."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain.errors import ConfigError

F = nn.functional


def tensor(values, kind=np.float64):
    return core.wrap(np.array(values, kind))


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_inplace_activation_writes_to_its_input():
    x = tensor([-1.0, 2.0])
    assert nn.ReLU(inplace=True)(x) is x and x.tolist() == [0.0, 2.0]
    leaf = tensor([-1.0, 2.0]).requires_grad_()
    h = leaf * 2
    F.relu_(h)
    h.sum().backward()
    assert leaf.grad.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("kind", [nn.SiLU, nn.Hardswish, nn.Mish, nn.ReLU, nn.ELU, nn.Hardtanh])
def test_activations_in_place_can_be_trained(kind):
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    grads = []
    for inplace in (False, True):
        first.zero_grad()
        last(kind(inplace=inplace)(first(randn(5, 3)))).sum().backward()
        grads.append(first.weight.grad.numpy().copy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


@pytest.mark.parametrize(
    "name, more",
    [
        ("relu", ()), ("leaky_relu", (0.2,)), ("rrelu", (0.1, 0.5)), ("hardtanh", (-0.5, 0.5)),
        ("elu", (0.5,)), ("selu", ()), ("celu", (2.0,)), ("threshold", (0.1, 7.0)),
    ],
)  # fmt: skip
def test_activations_written_over_their_input(name, more):
    x = dt.tensor([-2.0, -0.1, 0.0, 0.3, 2.0])
    want = getattr(F, name)(x, *more)
    over = x * 1
    assert getattr(F, f"{name}_")(over, *more) is over
    assert over.tolist() == want.tolist() != x.tolist()


def test_rrelu_draws_a_slope_for_each_element():
    x = dt.linspace(-3.0, 3.0, 601).requires_grad_()
    y = F.rrelu(x, 0.2, 0.4, training=True)
    y.sum().backward()
    below, slopes = x.detach() <= 0, x.grad
    assert (slopes[~below] == 1).all() and y.detach().equal(x.detach() * slopes)
    assert 0.2 <= slopes[below].min() < 0.22 and 0.38 < slopes[below].max() < 0.4
    assert nn.RReLU(0.2, 0.4).eval()(x).equal(F.leaky_relu(x, (0.2 + 0.4) / 2))
    with pytest.raises(ConfigError, match="Lower bound"):
        F.rrelu(x, 0.4, 0.2)


@pytest.mark.parametrize("fn", [F.relu, lambda x: F.threshold(x, 0.0, 0.0)])
def test_nan_is_not_hidden(fn):
    x = dt.tensor([float("nan"), 1.0, 0.0, -1.0], requires_grad=True)
    y = fn(x)
    y.sum().backward()
    assert y.isnan().tolist() == [True, False, False, False]
    assert x.grad.tolist() == [1.0, 1.0, 0.0, 0.0]
