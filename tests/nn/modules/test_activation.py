"""Activation modules: the functions with their settings, and the text of each."""

from __future__ import annotations

import copy
import math

import pytest

import disttrain as dt
from disttrain import nn

F = nn.functional
X = dt.linspace(-4, 4, 24).reshape(4, 6)
SAME = {
    nn.ReLU: (F.relu, {}), nn.ReLU6: (F.relu6, {}), nn.SELU: (F.selu, {}), nn.SiLU: (F.silu, {}),
    nn.Mish: (F.mish, {}), nn.Hardswish: (F.hardswish, {}), nn.Hardsigmoid: (F.hardsigmoid, {}),
    nn.LeakyReLU: (F.leaky_relu, {"negative_slope": 0.2}), nn.ELU: (F.elu, {"alpha": 0.5}),
    nn.CELU: (F.celu, {"alpha": 0.7}), nn.GELU: (F.gelu, {"approximate": "tanh"}),
    nn.Tanh: (dt.tanh, {}), nn.Sigmoid: (dt.sigmoid, {}), nn.LogSigmoid: (F.logsigmoid, {}),
    nn.Softsign: (F.softsign, {}), nn.Tanhshrink: (F.tanhshrink, {}),
    nn.Softplus: (F.softplus, {"beta": 2.0, "threshold": 5.0}),
    nn.Hardtanh: (F.hardtanh, {"min_val": -0.5, "max_val": 2.0}),
    nn.Threshold: (F.threshold, {"threshold": 0.1, "value": -3.0}),
    nn.Hardshrink: (F.hardshrink, {"lambd": 1.0}), nn.Softshrink: (F.softshrink, {"lambd": 1.0}),
    nn.Softmax: (F.softmax, {"dim": 1}), nn.LogSoftmax: (F.log_softmax, {"dim": 0}),
    nn.Softmin: (F.softmin, {"dim": 1}), nn.GLU: (F.glu, {"dim": 1}),
}  # fmt: skip


@pytest.mark.parametrize("kind", SAME, ids=lambda k: k.__name__)
def test_a_module_is_its_function(kind):
    fn, words = SAME[kind]
    module = kind(**words)
    assert module(X).tolist() == fn(X, **words).tolist()
    assert copy.deepcopy(module)(X).tolist() == module(X).tolist()
    assert repr(module).startswith(kind.__name__) and not list(module.parameters())


@pytest.mark.parametrize("kind", [nn.ReLU, nn.SiLU, nn.ELU, nn.Hardtanh, nn.LeakyReLU])
def test_in_place_modules_write_to_what_they_are_given(kind):
    x = X.clone()
    out = kind(inplace=True)(x)
    assert out.data_ptr() == x.data_ptr() and x.tolist() == kind()(X).tolist()


def test_the_slope_of_prelu_is_learnt():
    module = nn.PReLU(6, init=0.5)
    module(X).sum().backward()
    assert (
        module.weight.shape == (6,)
        and module.weight.grad.tolist() == X.clamp(max=0).sum(0).tolist()
    )


def test_softmax_over_channels():
    images = dt.randn(2, 3, 4, 4)
    assert nn.Softmax2d()(images).tolist() == F.softmax(images, 1).tolist()
    with pytest.raises((ValueError, RuntimeError)):
        nn.Softmax2d()(X)


def test_random_slopes_are_drawn_in_training_alone():
    module = nn.RReLU(0.1, 0.3)
    out = module(-dt.ones(1000))
    assert out.min() >= -0.3 and out.max() <= -0.1 and out.std() > 0.01
    assert module.eval()(-dt.ones(3)).tolist() == pytest.approx([-0.2] * 3)


@pytest.mark.parametrize(("name", "slope"), [
    ("elu", 1.0), ("celu", 1.0), ("selu", 1.0507009873554805), ("hardswish", 1.0),
    ("hardsigmoid", 0.0),
])  # fmt: skip
def test_gradients_at_nan_are_those_of_pytorch(name, slope):
    x = dt.tensor([math.nan, 4.0, -4.0, 1.0], requires_grad=True)
    out = getattr(dt.nn.functional, name)(x)
    out.sum().backward()
    assert math.isnan(out[0].item()) and x.grad[0].item() == pytest.approx(slope)
    assert bool(x.grad[1:].isfinite().all())


def test_hardshrink_compares_in_the_type_of_its_input():
    x = dt.tensor([0.3, 0.5], dtype=dt.bfloat16)
    assert dt.nn.functional.hardshrink(x, 0.3).tolist() == [0.0, 0.5]
