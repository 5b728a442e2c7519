"""Normal: against closed forms and samples; numbers beside tensors, types, shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributions import Normal


def test_normal():
    n = Normal(dt.tensor([1.0, -2.0], dtype=dt.float64), 2.0)
    assert n.log_prob(dt.tensor([1.0, 0.0], dtype=dt.float64)).tolist() == pytest.approx(
        [-math.log(2 * math.sqrt(2 * math.pi)), -0.5 - math.log(2 * math.sqrt(2 * math.pi))]
    )
    assert n.entropy()[0].item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e * 4))
    middle = dt.tensor([0.1, 0.9], dtype=dt.float64)
    assert n.cdf(n.icdf(middle)).tolist() == pytest.approx([0.1, 0.9])
    dt.manual_seed(0)
    samples = n.sample((8000,))
    assert samples.shape == (8000, 2) and not samples.requires_grad
    assert np.abs(samples.numpy().mean(0) - [1.0, -2.0]).max() < 0.1
    assert np.abs(samples.numpy().std(0) - 2.0).max() < 0.1


def test_rsample_carries_gradients():
    loc, scale = dt.zeros(3, requires_grad=True), dt.ones(3, requires_grad=True)
    x = Normal(loc, scale).rsample((7,))
    x.sum().backward()
    assert loc.grad.tolist() == [7.0] * 3
    assert np.allclose(scale.grad.numpy(), x.detach().numpy().sum(0), atol=1e-5)


def test_numbers_take_the_type_of_the_tensor_beside_them():
    n = Normal(0, dt.tensor([1.0, 2.0], dtype=dt.float64))
    assert n.loc.dtype == dt.float64 and n.loc.tolist() == [0.0, 0.0]
    assert Normal(0, 1).sample().dtype == dt.float32 and Normal(0, 1).batch_shape == ()
    wide = Normal(dt.zeros(3, 1), dt.ones(2))
    assert wide.batch_shape == (3, 2) and wide.rsample((4,)).shape == (4, 3, 2)
    assert wide.expand((5, 3, 2)).scale.shape == (5, 3, 2)


def test_moments_and_the_distance_from_the_middle():
    n = Normal(dt.tensor(3.0, dtype=dt.float64), 2.0)
    assert (n.mean.item(), n.mode.item(), n.stddev.item(), n.variance.item()) == (3, 3, 2, 4)
    one = n.cdf(dt.tensor([1.0, 3.0, 5.0], dtype=dt.float64)).tolist()
    assert one == pytest.approx([0.15865525393145707, 0.5, 0.8413447460685429])
    assert n.icdf(dt.tensor([0.0, 1.0], dtype=dt.float64)).tolist() == [-math.inf, math.inf]


def test_log_prob_is_the_derivative_of_the_cdf():
    n = Normal(dt.tensor(0.5, dtype=dt.float64), 1.5)
    x = dt.tensor([-2.0, 0.5, 3.0], dtype=dt.float64, requires_grad=True)
    n.cdf(x).sum().backward()
    assert n.log_prob(x).exp().tolist() == pytest.approx(x.grad.tolist())
    highest = -math.log(1.5) - 0.5 * math.log(2 * math.pi)
    assert n.log_prob(dt.tensor(0.5)).item() == pytest.approx(highest)
    with pytest.raises(ValueError, match="Real"):
        n.log_prob(dt.tensor(math.nan))
