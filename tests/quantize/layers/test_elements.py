"""Stubs, sums and products of quantized tensors, and layers that go through floating point."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.quantize import quint8
from disttrain.quantize.layers import elements


@pytest.fixture
def pair():
    dt.manual_seed(0)
    x, y = dt.randn(3, 4), dt.randn(3, 4)
    return [quantize.quantize_per_tensor(t, 0.02, 120, quint8) for t in (x, y)]


def test_over_and_back():
    x = dt.tensor([0.1, 0.26])
    over = elements.Quantize(0.1, 3)
    q = over(x)
    assert q.int_repr().tolist() == [4, 6] and over.dtype is quint8 and "dtype=" in repr(over)
    assert elements.DeQuantize()(q).equal(q.dequantize()) and elements.DeQuantize()(x) is x
    for stub in (quantize.QuantStub(), quantize.DeQuantStub("a config")):
        assert stub(x) is x


def test_sums_and_products(pair):
    plain, own = quantize.FloatFunctional(), quantize.QFunctional()
    own.set_grid(0.05, 128, quint8)
    a, b = pair
    numbers = a.dequantize(), b.dequantize()
    for name in ("add", "mul", "add_relu"):
        found, wanted = getattr(own, name)(a, b), getattr(plain, name)(*numbers)
        assert found.q_scale() == 0.05
        assert (found.dequantize() - wanted).abs().max().item() <= 0.0251
    found = own.cat([a, b], 1)
    assert found.shape == (3, 8) and own.matmul(a, b.T).shape == (3, 3)
    for name in ("add_scalar", "mul_scalar"):
        for number in (1.5, -0.3):
            found, wanted = getattr(own, name)(a, number), getattr(plain, name)(numbers[0], number)
            assert (found.dequantize() - wanted).abs().max().item() <= 0.6 * found.q_scale()
    for one in (plain, own):
        with pytest.raises(RuntimeError, match="not intended to use the 'forward'"):
            one(a)


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(3), nn.GroupNorm(3, 3), nn.Hardswish(), nn.LeakyReLU(), nn.ELU(),
              nn.ConvTranspose2d(3, 2, 2), nn.PReLU(3)], ids=repr,
)  # fmt: skip
def test_layers_through_floating_point(layer):
    dt.manual_seed(0)
    model = quantize.QuantWrapper(nn.Sequential(layer)).eval()
    model.qconfig = quantize.get_default_qconfig("onednn")
    prepared, x = quantize.prepare(model), dt.randn(2, 3, 4, 4)
    wanted = prepared(x)
    converted = quantize.convert(prepared)
    assert isinstance(converted.module[0], elements.Through)
    assert (converted(x) - wanted).abs().max().item() < 4 * converted.module[0].scale
