"""Exponential families: entropies and divergences by the log-normalizer are those by formulas."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributions.kl.formulas import _exponential_family

D = dt.distributions
t = lambda *v: dt.tensor(v, dtype=dt.float64)
PAIRS = [
    (D.Normal(t(0.5, 1.0), t(1.0, 2.0)), D.Normal(t(0.0, -1.0), t(0.7, 1.0))),
    (D.Gamma(t(0.5, 3.0), t(1.0, 2.0)), D.Gamma(t(1.5, 1.0), t(0.7, 1.0))),
    (D.Exponential(t(0.5, 3.0)), D.Exponential(t(1.5, 1.0))),
    (D.Bernoulli(t(0.5, 0.3)), D.Bernoulli(t(0.1, 0.9))),
    (D.Beta(t(0.5, 3.0), t(1.0, 2.0)), D.Beta(t(1.5, 1.0), t(0.7, 1.0))),
    (D.Dirichlet(t(0.5, 3.0)), D.Dirichlet(t(1.5, 1.0))),
    (D.Poisson(t(0.5, 3.0)), D.Poisson(t(1.5, 1.0))),
    (D.ContinuousBernoulli(t(0.2, 0.7)), D.ContinuousBernoulli(t(0.4, 0.9))),
]


@pytest.mark.parametrize(("p", "q"), PAIRS, ids=lambda d: type(d).__name__)
def test_divergences_and_entropies(p, q):
    found = _exponential_family(p, q).detach()
    assert dt.allclose(found, D.kl_divergence(p, q), rtol=1e-6, atol=1e-9)
    if type(p) in (D.Normal, D.Gamma, D.Exponential, D.Bernoulli, D.ContinuousBernoulli):
        if not isinstance(p, D.Normal):  # (whose carrier counts in another way)
            assert dt.allclose(D.ExponentialFamily.entropy(p).detach(), p.entropy(), rtol=1e-6)


def test_of_two_families_there_is_none():
    with pytest.raises(NotImplementedError, match="different exponential families"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0))
