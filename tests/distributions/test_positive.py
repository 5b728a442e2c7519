"""Exponential and Uniform: against closed forms, against samples, and what they refuse."""

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributions import Exponential, Uniform

X = dt.tensor([0.5, 1.0, 2.5], dtype=dt.float64)


def test_exponential_closed_forms():
    d = Exponential(dt.tensor(2.0, dtype=dt.float64))
    x = X.numpy()
    assert np.allclose(d.log_prob(X).numpy(), math.log(2) - 2 * x)
    assert np.allclose(d.cdf(X).numpy(), 1 - np.exp(-2 * x))
    assert np.allclose(d.icdf(d.cdf(X)).numpy(), x)
    assert (d.mean.item(), d.stddev.item(), d.variance.item(), d.mode.item()) == (0.5, 0.5, 0.25, 0)
    assert d.entropy().item() == pytest.approx(1 - math.log(2))


def test_uniform_closed_forms():
    d = Uniform(dt.tensor(0.5, dtype=dt.float64), 2.5)
    assert np.allclose(d.log_prob(X).numpy(), [-math.log(2), -math.log(2), -math.inf])
    assert np.allclose(d.cdf(X).numpy(), [0, 0.25, 1])
    assert np.allclose(d.icdf(d.cdf(X)).numpy(), X.numpy())
    assert (d.mean.item(), d.variance.item()) == (1.5, pytest.approx(1 / 3))
    assert math.isnan(d.mode.item()) and d.entropy().item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("d", [Exponential(1.5), Uniform(-1.0, 3.0)], ids=repr)
def test_samples_follow_the_cdf(d):
    dt.manual_seed(5)
    n = 4000
    p = np.sort(d.cdf(d.sample((n,))).numpy())
    gap = np.abs(p - (np.arange(n) + 0.5) / n).max()
    assert gap < 1.63 / math.sqrt(n)  # Kolmogorov and Smirnov's bound at 1 %


def test_rsample_gives_gradients_and_expand_repeats():
    rate = dt.tensor([1.0, 4.0], requires_grad=True)
    drawn = Exponential(rate).rsample((3,))
    (slope,) = dt.autograd.grad(drawn.sum(), rate)
    assert np.allclose(slope.numpy(), (-drawn.sum(0) / rate).detach().numpy())
    assert Exponential(rate).expand((5, 2)).sample().shape == (5, 2)
    assert Uniform(dt.zeros(2), dt.ones(2)).expand((3, 2)).rsample((4,)).shape == (4, 3, 2)


def test_what_is_refused():
    with pytest.raises(ValueError, match="parameter rate"):
        Exponential(0.0)
    with pytest.raises(ValueError, match="parameter low"):
        Uniform(1.0, 1.0)
    with pytest.raises(ValueError, match="value argument"):
        Uniform(0.0, 1.0).log_prob(dt.tensor(2.0))
