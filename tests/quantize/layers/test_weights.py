"""Weights as integers: their grids, and how they are kept."""

from __future__ import annotations

import copy
import pickle

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError
from disttrain.quantize import qint8
from disttrain.quantize.layers import weights


def test_rows_around_zero():
    w = dt.tensor([[1.0, -2.0], [0.0, 0.0]])
    q = weights.around_zero(w)
    assert q.q_per_channel_scales()[0].item() == pytest.approx(2 / 127.5)
    assert q.dequantize()[1].equal(w[1]) and (q.dequantize() - w).abs().max().item() < 0.01
    assert weights.around_zero(dt.ones(2, 0)).shape == (2, 0)


def test_a_module_keeps_them_and_their_sums():
    holder = weights.Int8Weight()
    holder.hold(weights.observed(dt.tensor([[1.0, 2.0]]), quantize.default_weight_observer()))
    assert holder.weight_sums.tolist() == [holder.int8_weight.int().sum().item()]
    assert "weight_sums" not in holder.state_dict()
    other = weights.Int8Weight()
    other.hold(weights.pretend((1, 2)))
    other.load_state_dict(holder.state_dict())  # one scale, where there was one a row
    assert other.held().equal(holder.held()) and other.weight_sums.equal(holder.weight_sums)
    assigned = weights.Int8Weight()
    assigned.hold(weights.pretend((1, 2)))
    assigned.load_state_dict(holder.state_dict(), assign=True)
    assert assigned.held().equal(holder.held())


def test_sums_are_those_of_the_weight_as_it_is():
    dt.manual_seed(0)
    one, other = (quantize.quantize_dynamic(nn.Linear(8, 4)) for _ in range(2))
    x = dt.randn(3, 8)
    state = dict(other.state_dict())
    assert dt.func.functional_call(one, state, (x,)).equal(other(x))
    assert copy.deepcopy(one)(x).equal(one(x))
    with dt.no_grad():
        for name, tensor in one.state_dict().items():
            tensor.copy_(state[name])
    assert one(x).equal(other(x)) and pickle.loads(pickle.dumps(one))(x).equal(other(x))


def test_what_is_wrong_is_told():
    holder = weights.Int8Weight()
    moved = quantize.quantize_per_tensor(dt.ones(2, 2), 0.1, 3, qint8)
    with pytest.raises(ConfigError, match="symmetric qscheme"):
        holder.hold(moved)
    with pytest.raises(ConfigError, match="needed a weight of qint8"):
        holder.hold(quantize.quantize_per_tensor(dt.ones(2, 2), 0.1, 0, quantize.quint8))
    with pytest.raises(ConfigError, match="Linear has no qconfig"):
        weights.qconfig_of(nn.Linear(1, 1), "Here")
