"""Matrices: Wishart's moments and densities, factors of correlations."""

from __future__ import annotations

import math

import pytest

import disttrain as dt

D = dt.distributions
V = dt.tensor([[2.0, 0.3], [0.3, 0.5]], dtype=dt.float64)


def test_wishart_of_one_number_is_a_gamma_number():
    d = D.Wishart(dt.tensor(5.0, dtype=dt.float64), dt.tensor([[2.0]], dtype=dt.float64))
    x = dt.tensor(3.0, dtype=dt.float64)
    want = D.Gamma(dt.tensor(2.5, dtype=dt.float64), 0.25).log_prob(x)
    assert d.log_prob(x.reshape(1, 1)).item() == pytest.approx(want.item())


def test_wishart_moments():
    dt.manual_seed(0)
    d = D.Wishart(dt.tensor(6.0, dtype=dt.float64), V)
    drawn = d.sample((20_000,))
    assert dt.allclose(drawn.mean(0), d.mean, rtol=0.05, atol=0.1)
    assert dt.allclose(drawn.var(0), d.variance, rtol=0.1, atol=0.2)
    assert -d.log_prob(drawn).mean().item() == pytest.approx(d.entropy().item(), abs=0.05)
    assert dt.allclose(d.mode, 3 * V) and d.rsample().shape == (2, 2)
    with pytest.raises(ValueError, match="ndim - 1"):
        D.Wishart(dt.tensor(1.0), V)
    with pytest.raises(AssertionError, match="Exactly one"):
        D.Wishart(dt.tensor(3.0))
    with pytest.warns(UserWarning, match="Low df"):
        D.Wishart(dt.tensor(1.5), V)


def test_correlations_of_two():
    """Of dimension 2 and concentration 1 the correlation is uniform."""
    dt.manual_seed(0)
    d = D.LKJCholesky(2, dt.tensor(1.0, dtype=dt.float64))
    r = d.sample((4000,))[:, 1, 0]
    at = ((r + 1) / 2).sort().values
    assert (at - dt.linspace(0, 1, 4000, dtype=dt.float64)).abs().max().item() < 0.035
    assert bool(d.support.check(d.sample((9,))).all())
    factor = dt.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=dt.float64)
    assert d.log_prob(factor).item() == pytest.approx(math.log(0.5))
    assert d.expand((3,)).sample().shape == (3, 2, 2)
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        D.LKJCholesky(1)
