"""Linear layers of integers: near the layers that they were made of."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import DTypeError, ShapeError
from disttrain.quantize import quint8
from disttrain.quantize.layers import linear


@pytest.fixture
def layer():
    dt.manual_seed(0)
    return nn.Linear(40, 12)


def dynamic(layer, qconfig=quantize.per_channel_dynamic_qconfig):
    layer.qconfig = qconfig
    return linear.DynamicLinear.from_float(layer)


@pytest.mark.parametrize("shape", [(40,), (1, 40), (5, 40), (2, 3, 40), (0, 40)])
def test_dynamic(layer, shape):
    x = dt.randn(*shape)
    for qconfig, most in (
        (quantize.default_dynamic_qconfig, 0.03), (quantize.per_channel_dynamic_qconfig, 0.03),
        (quantize.float16_dynamic_qconfig, 1e-3),
    ):  # fmt: skip
        found, wanted = dynamic(layer, qconfig)(x), layer(x).detach()
        assert found.shape == wanted.shape and not found.requires_grad
        assert not x.numel() or (found - wanted).abs().max().item() < most


def test_weights_and_biases_can_be_read_and_set(layer):
    one = dynamic(layer)
    assert one.weight().dtype is quantize.qint8 and one.bias().equal(layer.bias)
    other = linear.DynamicLinear(40, 12, bias_=False)
    assert other(dt.ones(40)).equal(dt.zeros(12)) and other.bias() is None
    other.set_weight_bias(one.weight(), one.bias())
    x = dt.randn(3, 40)
    assert other(x).equal(one(x)) and "DynamicQuantizedLinear" in repr(one)


def test_vmap_gives_each_example_its_grid(layer):
    one, x = dynamic(layer), dt.randn(4, 3, 40) * dt.tensor([1.0, 10, 100, 1000]).reshape(4, 1, 1)
    wanted = dt.stack([one(part) for part in x])
    assert dt.func.vmap(one)(x).equal(wanted)


@pytest.mark.parametrize("relu", [False, True])
def test_static(layer, relu):
    model = quantize.QuantWrapper(nn.Sequential(layer, nn.ReLU()) if relu else layer).eval()
    if relu:
        model = quantize.fuse_modules(model, ["module.0", "module.1"])
    model.qconfig = quantize.get_default_qconfig("onednn")
    prepared, x = quantize.prepare(model), dt.randn(50, 40)
    wanted = prepared(x)
    converted = quantize.convert(prepared)
    one = converted.module[0] if relu else converted.module
    assert type(one) is (linear.LinearReLU if relu else linear.Linear)
    assert (converted(x) - wanted).abs().max().item() < 6 * one.scale
    assert one.weight().qscheme() == "per_channel_affine" and one.bias().equal(layer.bias)
    assert not relu or converted(x).min().item() >= 0
    assert converted(x[0]).equal(converted(x)[0])


def test_what_is_wrong_is_told(layer):
    one = dynamic(layer)
    with pytest.raises(
        ShapeError, match=r"\[3, 39\] given; needed a last dimension of in_features=40"
    ):
        one(dt.ones(3, 39))
    with pytest.raises(DTypeError, match="a quantized tensor given"):
        one(quantize.quantize_per_tensor(dt.ones(40), 1.0, 0, quint8))
    static = linear.Linear(40, 12)
    with pytest.raises(DTypeError, match="put a QuantStub before it"):
        static(dt.ones(40))
    with pytest.raises(ShapeError, match="in_features=40"):
        static(quantize.quantize_per_tensor(dt.ones(39), 1.0, 0, quint8))
    with pytest.raises(DTypeError, match="needed qint8 or float16"):
        linear.DynamicLinear(2, 2, dtype=quint8)
