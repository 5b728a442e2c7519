"""Gamma numbers and their ratios: gradients of samples by finite differences of the mean, ends."""

from __future__ import annotations

import math

import pytest

import disttrain as dt

D = dt.distributions
t = lambda *v: dt.tensor(v, dtype=dt.float64)


def test_gradients_of_samples_have_the_mean_of_the_gradient_of_the_mean():
    dt.manual_seed(0)
    for make, mean in (
        (lambda a: D.Gamma(a, 2.0), lambda a: a / 2),
        (lambda a: D.Beta(a, 2.0), lambda a: a / (a + 2)),
        (lambda a: D.Chi2(a), lambda a: a),
    ):
        a = t(1.7).requires_grad_()
        make(a).rsample((20_000,)).mean().backward()
        b = t(1.7).requires_grad_()
        mean(b).sum().backward()
        assert a.grad.item() == pytest.approx(b.grad.item(), rel=0.05)


def test_a_corner_is_the_mode_of_small_concentrations():
    d = D.Dirichlet(t(0.3, 0.2, 0.9))
    assert d.mode.sum().item() == 1 and bool(d.support.check(d.mode))
    assert D.Dirichlet(t(3.0, 2.0)).mode.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert D.Dirichlet(t(0.9, 0.8)).log_prob(t(0.0, 1.0)).item() == math.inf


def test_ends():
    for shape, want in ((0.5, math.inf), (1.0, 0.0), (2.0, -math.inf)):
        assert D.Gamma(shape, 1.0).log_prob(0).item() == want
    drawn = D.Gamma(dt.full((1000,), 1e-3), 1.0).sample()
    assert bool((drawn > 0).all())
    assert D.Gamma(t(0.5), 1.0).mode.item() == 0
    assert D.StudentT(t(0.5)).mean.isnan().item() and D.StudentT(t(1.5)).variance.item() == math.inf
    assert D.InverseGamma(t(0.5), 1.0).mean.item() == math.inf
    assert repr(D.Beta(2.0, 3.0)) == "Beta()" and D.Chi2(3.0).df.item() == 3
    with pytest.raises(ValueError, match="at least one-dimensional"):
        D.Dirichlet(dt.tensor(1.0))
