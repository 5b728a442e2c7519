"""``quantize_``: Linear layers changed in place."""

from __future__ import annotations

import copy

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError
from disttrain.quantize.layers.linear import DynamicRowsLinear, WeightOnlyLinear


def net():
    dt.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 4, bias=False)))


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (quantize.Int8WeightOnlyConfig(), WeightOnlyLinear),
        (quantize.Int8DynamicActivationInt8WeightConfig(), DynamicRowsLinear),
        (quantize.Int8DynamicActivationInt8WeightConfig(weight_only_decode=True), WeightOnlyLinear),
        (quantize.int8_weight_only(), WeightOnlyLinear),
        (quantize.int8_dynamic_activation_int8_weight(), DynamicRowsLinear),
    ],
)
def test_layers_are_changed_where_they_are(config, kind):
    model, x = net(), dt.randn(3, 32)
    wanted, first = model(x), model[0]
    assert quantize.quantize_(model, config) is None
    assert model[0] is first and type(first) is kind is type(model[2][0])
    assert (model(x) - wanted).abs().max().item() < 0.02
    other = net()
    quantize.quantize_(other, config)
    other.load_state_dict(model.state_dict())
    assert other(x).equal(model(x)) and copy.deepcopy(model)(x).equal(model(x))


def test_one_layer_and_a_choice():
    one = nn.Linear(8, 4)
    quantize.quantize_(one, quantize.Int8WeightOnlyConfig())
    assert type(one) is WeightOnlyLinear and one.weight.dtype is quantize.qint8
    model = net()
    quantize.quantize_(model, quantize.Int8WeightOnlyConfig(), lambda m, name: name == "2.0")
    assert type(model[0]) is nn.Linear and type(model[2][0]) is WeightOnlyLinear
    quantize.quantize_(model, quantize.Int8WeightOnlyConfig())  # what is changed stays
    assert type(model[0]) is WeightOnlyLinear


def test_gradients_reach_inputs_and_biases():
    model, x = net(), dt.randn(3, 32, requires_grad=True)
    quantize.quantize_(model, quantize.Int8WeightOnlyConfig())
    model(x).square().sum().backward()
    assert x.grad.abs().sum().item() > 0 and model[0].bias.grad is not None


def test_what_is_wrong_is_told():
    for config, said in (
        ("int8", "needed Int8WeightOnlyConfig"),
        (quantize.Int8WeightOnlyConfig(group_size=32), "group_size=32"),
        (
            quantize.Int8DynamicActivationInt8WeightConfig(act_mapping_type="asymmetric"),
            "asymmetric",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            quantize.quantize_(net(), config)
    with pytest.raises(ConfigError, match="chose 1, a ReLU"):
        quantize.quantize_(net(), quantize.Int8WeightOnlyConfig(), lambda m, name: name == "1")
    with pytest.warns(FutureWarning, match="weight_norm"):
        normed = dt.nn.utils.weight_norm(nn.Linear(4, 3))
    with pytest.raises(ConfigError, match="is computed from other parameters"):
        quantize.quantize_(normed, quantize.Int8WeightOnlyConfig())
    assert type(normed) is nn.Linear and normed(dt.ones(2, 4)).shape == (2, 3)
