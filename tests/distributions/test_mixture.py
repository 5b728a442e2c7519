"""Mixtures: weighted densities and moments, and what does not fit together."""

from __future__ import annotations

import pytest

import disttrain as dt

D = dt.distributions
W = dt.tensor([0.2, 0.8], dtype=dt.float64)
PARTS = D.Normal(dt.tensor([-1.0, 2.0], dtype=dt.float64), dt.tensor([0.5, 1.5], dtype=dt.float64))


def test_densities_and_moments_are_weighted():
    m = D.MixtureSameFamily(D.Categorical(W), PARTS)
    x = dt.tensor([-0.5, 0.0, 3.0], dtype=dt.float64)
    want = (W * PARTS.log_prob(x[:, None]).exp()).sum(-1)
    assert dt.allclose(m.log_prob(x).exp(), want)
    assert dt.allclose(m.cdf(x), (W * PARTS.cdf(x[:, None])).sum(-1))
    assert m.mean.item() == pytest.approx(1.4)
    dt.manual_seed(0)
    drawn = m.sample((20_000,))
    assert drawn.mean().item() == pytest.approx(1.4, abs=0.06)
    assert drawn.var().item() == pytest.approx(m.variance.item(), rel=0.06)
    assert repr(m).startswith("MixtureSameFamily(\n  Categorical(probs: ")


def test_vectors():
    parts = D.MultivariateNormal(dt.zeros(3, 2, 4), dt.eye(4))
    m = D.MixtureSameFamily(D.Categorical(dt.ones(3, 2)), parts)
    assert m.batch_shape == (3,) and m.event_shape == (4,) and m.mean.shape == (3, 4)
    assert m.sample((5,)).shape == (5, 3, 4) and m.log_prob(m.sample((5,))).shape == (5, 3)
    assert m.expand((6, 3)).sample().shape == (6, 3, 4) and m.support.event_dim == 1


def test_what_is_refused():
    with pytest.raises(ValueError, match="Categorical"):
        D.MixtureSameFamily(3, PARTS)
    with pytest.raises(ValueError, match="Component"):
        D.MixtureSameFamily(D.Categorical(W), 3)
    with pytest.raises(ValueError, match="does not equal"):
        D.MixtureSameFamily(D.Categorical(dt.ones(3)), PARTS)
    with pytest.raises(ValueError, match="is not compatible"):
        D.MixtureSameFamily(D.Categorical(dt.ones(3, 2)), D.Normal(dt.zeros(4, 2), 1.0))
    with pytest.raises(IndexError):
        D.MixtureSameFamily(D.Categorical(W), D.Normal(0.0, 1.0))
