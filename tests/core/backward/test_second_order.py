"""Gradients of gradients: of functions with kinks, whose slope is a step."""

import pytest

import disttrain as dt
from disttrain.autograd import grad

F = dt.nn.functional

KINKED = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "prelu": lambda x: F.prelu(x, dt.ones(1)),
    "abs": lambda x: x.abs(),
    "norm of 1": lambda x: x.norm(1),
    "max_pool1d": lambda x: F.max_pool1d(x[None], 2),
    "l1_loss": lambda x: F.l1_loss(x, dt.zeros(5)),
}


@pytest.mark.parametrize("name", KINKED)
def test_gradients_of_kinked_functions_can_be_differentiated_to_zero(name):
    x = dt.tensor([-2.0, -0.5, 0.3, 0.7, 4.0], requires_grad=True)
    (g,) = grad(KINKED[name](x).sum(), x, create_graph=True)
    assert g.requires_grad
    (second,) = grad(g.sum(), x)
    assert second.tolist() == [0.0] * 5


def test_a_gradient_penalty_through_relu():
    """The norm of the input's gradient is a loss for the weights (WGAN-GP)."""
    x, w = dt.ones(2, requires_grad=True), dt.tensor([2.0, -3.0], requires_grad=True)
    (g,) = grad((F.leaky_relu(x * w, 0.5) * 4).sum(), x, create_graph=True)
    (g * g).sum().backward()
    assert w.grad.tolist() == [2 * 8.0 * 4.0, 2 * -6.0 * 2.0]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_orders(order):
    x = dt.tensor(2.0, dtype=dt.float64, requires_grad=True)
    d = x**5
    want = 32.0
    for k in range(order):
        (d,) = grad(d, x, create_graph=True)
        want = want * (5 - k) / 2.0
    assert d.item() == want


NARROW = {
    "square": lambda x: (x**2).sum(),
    "cube": lambda x: (x**3).sum(),
    "inverse": lambda x: (x**-1).sum(),
    "power of a number": lambda x: (2**x).sum(),
    "cross entropy": lambda x: dt.nn.functional.cross_entropy(x, dt.tensor([0, 1])),
    "smoothed": lambda x: dt.nn.functional.cross_entropy(
        x, dt.tensor([0, 1]), label_smoothing=0.25
    ),
    "weighted": lambda x: dt.nn.functional.cross_entropy(
        x, dt.tensor([0, 1]), dt.tensor([1.0, 2.0, 0.5]).to(x.dtype), label_smoothing=0.25
    ),
}


@pytest.mark.parametrize("kind", [dt.bfloat16, dt.float16])
@pytest.mark.parametrize("name", NARROW)
def test_second_order_in_narrow_types(name, kind):
    found = []
    for of in (kind, dt.float64):
        x = dt.tensor([[1.0, 2.0, 0.5], [1.5, 1.0, 2.5]], dtype=of, requires_grad=True)
        (g,) = dt.autograd.grad(NARROW[name](x), x, create_graph=True)
        (g * g).sum().backward()
        assert x.grad.dtype == of
        found.append(x.grad.double())
    assert dt.allclose(found[0], found[1], rtol=0.05, atol=0.01)
