"""Recurrent layers carry their state on."""

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.errors import ShapeError


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_recurrent_state_carries_on():
    net = nn.LSTM(3, 4, num_layers=2)
    x = randn(6, 2, 3)
    whole, (h, c) = net(x)
    first, state = net(x[:2])
    second, (h2, c2) = net(x[2:], state)
    np.testing.assert_allclose(whole[2:].detach().numpy(), second.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(h.detach().numpy(), h2.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(c.detach().numpy(), c2.detach().numpy(), atol=1e-6)
    assert first.shape == (2, 2, 4)
    cell = nn.LSTMCell(3, 4)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(cell, name, getattr(nn.LSTM(3, 4), name + "_l0"))
    with pytest.raises(ShapeError, match="initial state of shape"):
        net(x, (randn(1, 2, 4), randn(1, 2, 4)))
    with pytest.raises(TypeError, match=r"\(h0, c0\)"):
        net(x, randn(2, 2, 4))
    with pytest.raises(ShapeError, match="input_size=3"):
        net(randn(6, 2, 5))


def test_bases_are_public_and_cells_say_how_many_gates():
    assert isinstance(nn.GRU(2, 3), nn.RNNBase)
    assert nn.RNNBase("LSTM", 2, 3).weight_ih_l0.shape == (12, 2)
    assert nn.RNNCellBase(2, 3, True, 4).weight_hh.shape == (12, 3)
    assert isinstance(nn.LSTMCell(2, 3, False), nn.RNNCellBase)
