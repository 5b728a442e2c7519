"""Distributions of transformed values: densities by the change of variables, order turned."""

from __future__ import annotations

import math

import pytest

import disttrain as dt

D = dt.distributions
X = dt.tensor([0.3, 1.2, 2.5], dtype=dt.float64)
BASE = D.Normal(dt.tensor(0.5, dtype=dt.float64), 0.7)


def test_a_density_is_the_slope_of_its_distribution_function():
    for chain in ([D.ExpTransform()], [D.AffineTransform(1.0, -2.0), D.ExpTransform()]):
        d = D.TransformedDistribution(BASE, chain)
        x = X.clone().requires_grad_()
        (slope,) = dt.autograd.grad(d.cdf(x).sum(), x)
        assert dt.allclose(slope, d.log_prob(X).exp())
        assert dt.allclose(d.icdf(d.cdf(X)), X)
        assert bool((d.cdf(X).diff() > 0).all())
    assert dt.allclose(D.LogNormal(0.5, 0.7).log_prob(X), D.TransformedDistribution(
        BASE, D.ExpTransform()).log_prob(X))  # fmt: skip


def test_numbers_become_vectors():
    d = D.TransformedDistribution(D.Normal(dt.zeros(3), 1.0), [D.StickBreakingTransform()])
    assert d.batch_shape == () and d.event_shape == (4,) and d.has_rsample
    assert d.sample((5,)).shape == (5, 4) and d.log_prob(d.sample((5,))).shape == (5,)
    wide = d.expand((2,))
    assert wide.sample().shape == (2, 4) and repr(d) == "TransformedDistribution()"
    many = D.TransformedDistribution(BASE, [D.AffineTransform(dt.zeros(2, 3), 1.0)])
    assert many.batch_shape == (2, 3)


def test_what_is_refused():
    with pytest.raises(ValueError, match="Transform or list"):
        D.TransformedDistribution(BASE, 3)
    with pytest.raises(ValueError, match="a list of Transforms"):
        D.TransformedDistribution(BASE, [3])
    with pytest.raises(ValueError, match="size at least 1"):
        D.TransformedDistribution(D.Normal(0.0, 1.0), [D.StickBreakingTransform()])
    with pytest.raises(NotImplementedError):
        D.TransformedDistribution(BASE, D.AbsTransform()).cdf(X)


def test_without_transforms_it_is_the_base():
    d = D.TransformedDistribution(BASE, [])
    assert dt.allclose(d.log_prob(X), BASE.log_prob(X)) and d.support is BASE.support
    assert math.isclose(d.cdf(X)[0].item(), BASE.cdf(X)[0].item())
