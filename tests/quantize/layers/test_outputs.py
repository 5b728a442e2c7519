"""The grid of a layer's results: kept, saved, loaded, checked."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ConfigError, DTypeError, StateDictError
from disttrain.quantize import quantize_per_channel, quint8
from disttrain.quantize.layers.outputs import Output


def test_grids_are_state():
    one, other = Output(), Output()
    one.set_grid(0.5, 3, quint8)
    state = one.state_dict()
    assert state["scale"].item() == 0.5 and state["zero_point"].dtype is dt.int64
    other.load_state_dict(state)
    assert (other.scale, other.zero_point) == (
        0.5,
        3,
    ) and "scale=0.5, zero_point=3" in other.grid_text()
    x = dt.tensor([-9.0, 0.0, 1.0])
    assert other.rounded(x).int_repr().tolist() == [0, 3, 5]
    assert other.rounded(x, relu=True).int_repr().tolist() == [3, 3, 5]
    other.scale = dt.tensor(1.0)
    assert other.rounded(x).int_repr().tolist() == [0, 3, 4]
    with pytest.raises(StateDictError, match="zero_point"):
        other.load_state_dict({"scale": state["scale"]})


def test_what_is_wrong_is_told():
    one = Output()
    with pytest.raises(DTypeError, match="Tensor given; needed a quantized tensor"):
        one.quantized_input(dt.ones(2))
    rows = quantize_per_channel(dt.ones(2, 2), dt.ones(2), dt.zeros(2), 0, quint8)
    with pytest.raises(DTypeError, match="needed a tensor with one grid"):
        one.quantized_input(rows)
    with pytest.raises(ConfigError, match=r"call prepare\(\)"):
        one.take_grid(nn.Linear(1, 1))
