"""Recurrent networks of integers: near the networks that they were made of."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn, quantize
from disttrain.errors import ConfigError, ShapeError


def made(layer, dtype=quantize.qint8):
    return quantize.quantize_dynamic(nn.Sequential(layer), dtype=dtype)[0]


@pytest.mark.parametrize(
    "given", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}]
)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_sequences(kind, given):
    dt.manual_seed(0)
    layer, x = kind(8, 12, **given), dt.randn(5, 5, 8)
    wanted, state = layer(x)
    one = made(layer)
    found, end = one(x)
    assert (found - wanted).abs().max().item() < 0.02 and not found.requires_grad
    assert type(end) is type(state) and repr(one).startswith(f"DynamicQuantized{kind.__name__}")
    half, _ = made(layer, dt.float16)(x)
    assert (half - wanted).abs().max().item() < 1e-3
    other = made(kind(8, 12, **given))
    other.load_state_dict(one.state_dict())
    assert other(x)[0].equal(found)
    packed = nn.utils.rnn.pack_padded_sequence(
        x, [5, 3, 2, 1, 1], batch_first=bool(given), enforce_sorted=True
    )
    apart = one(packed)[0].data - layer(packed)[0].data
    assert apart.abs().max().item() < 0.02


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(kind):
    dt.manual_seed(0)
    layer, x = kind(8, 12), dt.randn(3, 8)
    found, wanted = made(layer)(x), layer(x)
    both = zip(found, wanted) if isinstance(found, tuple) else [(found, wanted)]
    assert all((a - b).abs().max().item() < 0.03 for a, b in both)


def test_what_is_wrong_is_told():
    with pytest.raises(ConfigError, match="proj_size is not known"):
        made(nn.LSTM(4, 6, proj_size=2))
    with pytest.raises(ShapeError, match="input_size=4"):
        made(nn.LSTM(4, 6))(dt.ones(2, 2, 3))
