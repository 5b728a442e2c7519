"""Layers as one: the same numbers, in evaluation; one layer, in training."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError
from disttrain.quantize.layers import fused

LAYERS = {
    "conv bn": (lambda d: [getattr(nn, f"Conv{d}d")(2, 3, 2), getattr(nn, f"BatchNorm{d}d")(3)]),
    "conv bn relu": lambda d: [*LAYERS["conv bn"](d), nn.ReLU()],
    "conv relu": lambda d: [getattr(nn, f"Conv{d}d")(2, 3, 2), nn.ReLU()],
}


def made(layers):
    dt.manual_seed(0)
    net = nn.Sequential(*layers)
    for layer in net:
        if hasattr(layer, "running_mean"):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            layer.weight.data.uniform_(0.5, 2)
    return net


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", LAYERS)
def test_convolutions(kind, dims):
    net = made(LAYERS[kind](dims)).eval()
    names = [str(k) for k in range(len(net))]
    x = dt.randn(2, 2, *[4] * dims)
    one = quantize.fuse_modules(net, names)
    assert (one(x) - net(x)).abs().max().item() < 1e-5 and type(net[0]) is not type(one[-1])
    assert all(type(layer) is nn.Identity for layer in one[1:])
    if kind != "conv relu":
        trained = quantize.fuse_modules_qat(net.train(), [names])
        assert isinstance(trained[0], fused._Fused) and len(trained[0]) == len(names)


def test_linear_and_normalisation():
    net = made([nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()]).eval()
    x = dt.randn(5, 3)
    one = quantize.fuse_modules(net, [["0", "1", "2"]])
    assert type(one[0]) is fused.LinearReLU and (one(x) - net(x)).abs().max().item() < 1e-5
    net = made([nn.BatchNorm2d(3), nn.ReLU()]).eval()
    assert type(quantize.fuse_modules(net, ["0", "1"])[0]) is fused.BNReLU2d
    assert quantize.fuse_modules(net, ["0", "1"], inplace=True) is net


def test_what_is_wrong_is_told():
    net = made([nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Tanh()])
    with pytest.raises(NotImplementedError, match=r"Cannot fuse modules: .*Tanh"):
        quantize.fuse_modules(net.eval(), ["0", "2"])
    with pytest.raises(AssertionError, match="eval"):
        quantize.fuse_modules(net.train(), ["0", "1"])
    net[0].eval()
    with pytest.raises(AssertionError, match="same mode"):
        quantize.fuse_modules_qat(net, ["0", "1"])
    with pytest.raises(ConfigError, match="needed lists of names"):
        quantize.fuse_modules(net, "0")
    with pytest.raises(AttributeError):
        quantize.fuse_modules(net, ["0", "nothing"])
