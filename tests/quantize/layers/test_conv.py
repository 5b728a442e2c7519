"""Convolutions of integers: near the layers that they were made of."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError, DTypeError, ShapeError
from disttrain.quantize import quint8
from disttrain.quantize.layers import conv

LAYERS = [
    (1, {"kernel_size": 3, "padding": 1, "stride": 2}),
    (2, {"kernel_size": (3, 1), "dilation": 2, "padding": "same"}),
    (2, {"kernel_size": 3, "groups": 4, "bias": False}),
    (2, {"kernel_size": 2, "groups": 2, "padding": "valid"}),
    (3, {"kernel_size": 2, "padding": (0, 1, 1)}),
]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("dims", "given"), LAYERS)
def test_layers(dims, given, relu):
    dt.manual_seed(0)
    layer = getattr(nn, f"Conv{dims}d")(4, 8, **given)
    model = quantize.QuantWrapper(nn.Sequential(layer, nn.ReLU())).eval()
    if relu:
        model = quantize.fuse_modules(model, ["module.0", "module.1"])
    model.qconfig = quantize.get_default_qconfig("onednn")
    prepared, x = quantize.prepare(model), dt.randn(3, 4, *[6] * dims)
    wanted = prepared(x)
    converted = quantize.convert(prepared)
    one = converted.module[0]
    assert type(
        one
    ).__name__ == f"Conv{'ReLU' * relu}{dims}d" and f"Conv{'ReLU' * relu}{dims}d" in repr(one)
    assert (converted(x) - wanted).abs().max().item() < 8 * one.scale
    assert converted(x[0]).equal(converted(x)[0])  # without a batch


def test_what_is_wrong_is_told():
    one = conv.Conv2d(2, 3, 3)
    with pytest.raises(DTypeError, match="put a QuantStub before it"):
        one(dt.ones(1, 2, 4, 4))
    q = quantize.quantize_per_tensor(dt.ones(1, 3, 4, 4), 1.0, 0, quint8)
    with pytest.raises(ShapeError, match="needed 2 channels"):
        one(q)
    with pytest.raises(ShapeError, match="2 dimensions given"):
        one(q[0, 0])
    with pytest.raises(ConfigError, match="needed one of zeros, reflect"):
        conv.Conv2d(2, 3, 3, padding_mode="mirror")
    with pytest.raises(ConfigError, match="even kernels"):
        conv.Conv2d(2, 3, 2, padding="same")


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_other_paddings(mode):
    dt.manual_seed(0)
    layer, x = nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode), dt.randn(2, 2, 6, 7)
    whole = quantize.QuantWrapper(layer).eval()
    whole.qconfig = quantize.get_default_qconfig("onednn")
    prepared = quantize.prepare(whole)
    wanted = prepared(x)
    converted = quantize.convert(prepared)
    assert mode in repr(converted.module)
    assert (converted(x) - wanted).abs().max().item() < 8 * converted.module.scale
    assert converted(x[0]).equal(converted(x)[0])
