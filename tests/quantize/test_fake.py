"""Rounding in training: grids that follow, gradients that go through, switches."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import quantize
from disttrain.errors import ConfigError
from disttrain.quantize import qint8, types

ROWS = {"observer": quantize.MovingAveragePerChannelMinMaxObserver, "quant_min": -128,
        "quant_max": 127, "dtype": qint8, "qscheme": types.per_channel_symmetric}  # fmt: skip


def test_it_observes_rounds_and_lets_gradients_through():
    fake = quantize.FakeQuantize(quant_min=0, quant_max=255)
    x = dt.tensor([-1.0, 0.4, 4.1], requires_grad=True)
    y = fake(x)
    assert fake.scale.item() == pytest.approx(5.1 / 255) and fake.zero_point.item() == 50
    np.testing.assert_allclose(y.detach().numpy(), [-1, 0.4, 4.1], atol=0.011)
    fake.disable_observer()
    far = dt.tensor([1e3, 0.0], requires_grad=True)
    fake(far).sum().backward()
    assert far.grad.tolist() == [0, 1] and fake.scale.item() == pytest.approx(5.1 / 255)


def test_rows_have_grids_of_their_own():
    fake = quantize.FakeQuantize(**ROWS)
    y = fake(dt.tensor([[1.0, 0.3], [100.0, 30.0]]))
    assert fake.scale.shape == (2,) and fake.is_per_channel
    np.testing.assert_allclose(y.numpy(), [[1, 0.3], [100, 30]], 0.02)


def test_fused_grids_reach_as_far_as_their_least_number():
    fake = quantize.FusedMovingAvgObsFakeQuantize(**ROWS)
    fake(dt.tensor([[-128.0, 1.0], [127.0, 1.0], [128.0, 0.0]]))
    np.testing.assert_allclose(fake.scale.numpy(), [1.0, 1.0, 128 / 127], 1e-6)


def test_switches():
    fake, x = quantize.FakeQuantize(quant_min=0, quant_max=3), dt.tensor([0.1, 0.9])
    holder = dt.nn.Sequential(fake)
    holder.apply(quantize.disable_fake_quant)
    assert fake(x) is x and not fake.rounds
    holder.apply(quantize.enable_fake_quant)
    holder.apply(quantize.disable_observer)
    assert not fake(x).equal(x) and not fake.observes
    other = quantize.FakeQuantize(quant_min=0, quant_max=3)
    other.load_state_dict(fake.state_dict())
    assert not other.observes and other.scale.equal(fake.scale) and other(x).equal(fake(x))
    holder.apply(quantize.enable_observer)
    assert fake.observes and "observer_enabled=True" in repr(fake)


def test_state_of_rows_goes_over():
    old, new = quantize.FakeQuantize(**ROWS), quantize.FakeQuantize(**ROWS)
    x = dt.randn(3, 4)
    old(x)
    new.load_state_dict(old.state_dict())
    assert new.scale.equal(old.scale)


def test_fixed_grids():
    fake = quantize.FixedQParamsFakeQuantize(quantize.default_fixed_qparams_range_0to1_observer)
    assert fake(dt.tensor([0.5, 2.0])).tolist() == [0.5, 255 / 256]


def test_what_is_wrong_is_told():
    with pytest.raises(ConfigError, match="has no range of integers"):
        quantize.FakeQuantize(quantize.RecordingObserver)
