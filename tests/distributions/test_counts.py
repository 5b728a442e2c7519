"""Counts: probabilities that sum to 1, ends, numbers of trials that differ."""

from __future__ import annotations

import math

import pytest

import disttrain as dt

D = dt.distributions
t = lambda *v: dt.tensor(v, dtype=dt.float64)


@pytest.mark.parametrize(
    "d",
    [D.Binomial(7, t(0.3)), D.Poisson(t(2.5)), D.NegativeBinomial(t(2.7), t(0.4)),
     D.Geometric(t(0.4))],
    ids=lambda d: type(d).__name__,
)  # fmt: skip
def test_probabilities_sum_to_one_and_give_the_moments(d):
    most = 8 if isinstance(d, D.Binomial) else 120
    k = dt.arange(most, dtype=dt.float64)[:, None]
    p = d.log_prob(k).exp()
    assert p.sum().item() == pytest.approx(1)
    assert (p * k).sum().item() == pytest.approx(d.mean.item())
    assert (p * (k - d.mean) ** 2).sum().item() == pytest.approx(d.variance.item())
    assert p.argmax(0).item() == d.mode.item()


def test_sure_and_impossible_ones():
    assert D.Binomial(100, 0).sample().item() == 0 and D.Binomial(100, 1).sample().item() == 100
    assert D.Binomial(2, t(0.0, 1.0)).log_prob(t(0.0, 2.0)).tolist() == pytest.approx([0, 0])
    assert D.Poisson(t(0.0)).log_prob(t(0.0)).item() == 0
    assert D.Geometric(1).log_prob(t(1.0)).item() == -math.inf
    assert D.NegativeBinomial(t(0.0), t(0.5)).log_prob(t(0.0)).item() == 0


def test_numbers_of_trials_that_differ():
    d = D.Binomial(t(2.0, 5.0), t(0.5, 0.5))
    with pytest.raises(NotImplementedError, match="Inhomogeneous total count"):
        d.enumerate_support()
    with pytest.raises(NotImplementedError, match="Inhomogeneous total count"):
        d.entropy()
    with pytest.raises(NotImplementedError, match="inhomogeneous"):
        D.Multinomial(dt.tensor([2, 3]), dt.ones(2))


def test_categories_are_counted():
    d = D.Multinomial(6, t(0.2, 0.3, 0.5))
    drawn = d.sample((500,))
    assert bool((drawn.sum(-1) == 6).all()) and repr(d) == "Multinomial()"
    assert d.log_prob(t(6.0, 0.0, 0.0)).item() == pytest.approx(6 * math.log(0.2))
    values = [(a, b, 6 - a - b) for a in range(7) for b in range(7 - a)]
    each = d.log_prob(t(*values))
    assert each.exp().sum().item() == pytest.approx(1)
    assert d.entropy().item() == pytest.approx(-(each.exp() * each).sum().item())
