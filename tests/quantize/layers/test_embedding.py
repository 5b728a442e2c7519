"""Tables of 8-bit rows."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError
from disttrain.quantize.layers import embedding


def made(table):
    return quantize.quantize_dynamic(nn.Sequential(table), dtype=quantize.quint8)[0]


def test_rows_are_near():
    dt.manual_seed(0)
    table, index = nn.Embedding(30, 8, padding_idx=2), dt.tensor([[0, 29], [2, 5]])
    one = made(table)
    assert (one(index) - table(index)).abs().max().item() < 0.01 and one.padding_idx == 2
    other = embedding.Embedding(30, 8)
    other.load_state_dict(one.state_dict())
    assert other(index).equal(one(index)) and other.weight().dequantize()[5].equal(one(index)[1, 1])
    assert 4 * sum(v.nbytes for v in one.state_dict().values()) < 2.1 * table.weight.nbytes


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    dt.manual_seed(0)
    table = nn.EmbeddingBag(30, 8, mode=mode)
    index, offsets = dt.tensor([1, 2, 3, 29, 4]), dt.tensor([0, 3])
    one = made(table)
    assert (one(index, offsets) - table(index, offsets)).abs().max().item() < 0.05
    square = index[:4].reshape(2, 2)
    assert (one(square) - table(square)).abs().max().item() < 0.05


def test_what_is_wrong_is_told():
    one = embedding.Embedding(3, 4)
    with pytest.raises(IndexError):
        one(dt.tensor([3]))
    with pytest.raises(ConfigError, match="quint8 with a grid for each row"):
        one.set_weight(quantize.quantize_per_tensor(dt.ones(3, 4), 1.0, 0, quantize.quint8))
    with pytest.raises(ConfigError, match="needed quint8"):
        embedding.Embedding(3, 4, dtype=quantize.qint8)
    bag = embedding.EmbeddingBag(3, 4, mode="mean", padding_idx=0)
    with pytest.raises(ConfigError, match="for mode='sum'"):
        bag(dt.tensor([[1, 2]]))
