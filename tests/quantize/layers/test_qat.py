"""Layers in training with rounded weights: their gradients, and what becomes of them."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError
from disttrain.quantize.layers import fused, qat

QCONFIG = quantize.get_default_qat_qconfig("onednn")


def configured(layer):
    layer.qconfig = QCONFIG
    return layer


@pytest.mark.parametrize(
    ("layer", "kind", "x"),
    [
        (lambda: nn.Linear(5, 3), qat.Linear, (2, 5)),
        (lambda: nn.Conv1d(2, 3, 2), qat.Conv1d, (1, 2, 4)),
        (lambda: nn.Conv2d(2, 3, 2), qat.Conv2d, (1, 2, 4, 4)),
        (lambda: nn.Conv3d(2, 3, 2), qat.Conv3d, (1, 2, 4, 4, 4)),
        (lambda: fused.LinearReLU(nn.Linear(5, 3), nn.ReLU()), qat.LinearReLU, (2, 5)),
        (lambda: fused.ConvReLU2d(nn.Conv2d(2, 3, 2), nn.ReLU()), qat.ConvReLU2d, (1, 2, 4, 4)),
    ],
)
def test_layers_share_parameters_and_round(layer, kind, x):
    dt.manual_seed(0)
    plain = configured(layer())
    one, x = kind.from_float(plain), dt.randn(*x)
    weight = (plain if hasattr(plain, "weight") else plain[0]).weight
    assert one.weight is weight
    found, wanted = one(x), plain(x)
    assert 0 < (found - wanted).abs().max().item() < 0.05
    found.square().sum().backward()
    assert weight.grad.abs().sum().item() > 0
    if hasattr(one, "to_float") and "ReLU" not in kind.__name__:
        assert one.to_float()(x).equal(wanted)


@pytest.mark.parametrize("relu", [False, True])
def test_normalisation_is_learned_as_it_will_be_folded(relu):
    dt.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)] + [nn.ReLU()] * relu
    plain = configured((fused.ConvBnReLU2d if relu else fused.ConvBn2d)(*layers))
    one = (qat.ConvBnReLU2d if relu else qat.ConvBn2d).from_float(plain)
    one.weight_fake_quant.disable_fake_quant()
    x = dt.randn(5, 2, 6, 6)
    assert (one(x) - plain(x)).abs().max().item() < 1e-4
    one.eval()
    folded = one.folded()(x)
    assert ((folded.relu() if relu else folded) - plain.eval()(x)).abs().max().item() < 1e-4
    holder = nn.Sequential(one).train()
    holder.apply(qat.freeze_bn_stats)
    assert not one.bn.training and one.training
    holder.apply(qat.update_bn_stats)
    assert one.bn.training
    names = [n for n in one.state_dict() if "fake_quant" not in n]
    assert names[:3] == ["weight", "bias", "bn.weight"] and type(one.to_float()) is nn.Conv2d


def test_tables():
    one = qat.Embedding.from_float(_table())
    index = dt.tensor([1, 3])
    assert (one(index) - one.weight[index]).abs().max().item() < 0.02


def _table():
    table = nn.Embedding(5, 4)
    table.qconfig = quantize.default_embedding_qat_qconfig
    return table


def test_a_config_is_needed():
    with pytest.raises(ConfigError, match="has no qconfig"):
        qat.Linear.from_float(nn.Linear(2, 2))
