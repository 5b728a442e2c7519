"""Divergences of two kinds against the mean over quantiles, and what q excludes."""

from __future__ import annotations

import math

import pytest

import disttrain as dt

D = dt.distributions
t = lambda v: dt.tensor(v, dtype=dt.float64)
P = [D.Normal(t(0.3), 1.2), D.Laplace(t(0.3), 0.5), D.Exponential(t(0.7)), D.Uniform(t(0.2), 0.9),
     D.Pareto(t(1.5), 4.0), D.Gumbel(t(0.3), 0.4), D.ContinuousBernoulli(t(0.3))]  # fmt: skip
Q = [D.Normal(t(-0.5), 2.0), D.Laplace(t(0.1), 1.0), D.Exponential(t(0.4)), D.Uniform(t(0.0), 2.0),
     D.Gamma(t(1.5), 0.7), D.Gumbel(t(0.0), 1.0), D.Beta(t(1.5), 1.2), D.Pareto(t(0.1), 2.0),
     D.ContinuousBernoulli(t(0.6))]  # fmt: skip


@pytest.mark.parametrize("p", P, ids=lambda d: type(d).__name__)
def test_against_the_mean_over_quantiles(p):
    at = (dt.arange(100_000, dtype=dt.float64) + 0.5) / 100_000
    x = p.icdf(at)
    compared = 0
    for q in Q:
        try:
            found = D.kl_divergence(p, q).item()
        except NotImplementedError:
            continue
        q._validate_args = False
        inside = bool(q.support.check(x).all())
        assert (found < math.inf) == inside
        if inside:
            want = (p.log_prob(x) - q.log_prob(x)).mean().item()
            assert found == pytest.approx(want, abs=3e-3), type(q)
        compared += 1
    assert compared >= 5


def test_counts():
    k = dt.arange(60, dtype=dt.float64)
    for p, q, most in (
        (D.Poisson(t(2.0)), D.Poisson(t(3.0)), 60), (D.Bernoulli(t(0.3)), D.Poisson(t(1.5)), 2),
        (D.Binomial(5, t(0.3)), D.Binomial(5, t(0.6)), 6),
        (D.Geometric(t(0.5)), D.Geometric(t(0.3)), 60),
    ):  # fmt: skip
        each = p.log_prob(k[:most])
        want = (each.exp() * (each - q.log_prob(k[:most]))).sum().item()
        assert D.kl_divergence(p, q).item() == pytest.approx(want)
    assert D.kl_divergence(D.Binomial(5, t(0.3)), D.Binomial(4, t(0.3))).item() == math.inf
    with pytest.raises(NotImplementedError, match="total_count"):
        D.kl_divergence(D.Binomial(4, t(0.3)), D.Binomial(5, t(0.3)))
    assert D.kl_divergence(D.Poisson(t(1.0)), D.Bernoulli(t(0.3))).item() == math.inf


def test_transforms_have_to_be_equal():
    p, q = D.LogNormal(t(0.0), 1.0), D.LogNormal(t(1.0), 2.0)
    want = D.kl_divergence(p.base_dist, q.base_dist)
    assert D.kl_divergence(p, q).item() == pytest.approx(want.item())
    with pytest.raises(NotImplementedError, match="equal transforms"):
        D.kl_divergence(p, D.Weibull(t(1.0), 2.0))
