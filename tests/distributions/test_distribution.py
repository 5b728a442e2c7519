"""Distributions: against closed forms, against samples, and what they refuse."""

import pytest

import disttrain as dt
from disttrain.distributions import Bernoulli, Categorical, Normal

PROBS = dt.tensor([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]], dtype=dt.float64)


def test_what_is_refused():
    with pytest.raises(ValueError, match="Either `probs` or `logits` must"):
        Categorical()
    with pytest.raises(ValueError, match="at least one-dimensional"):
        Categorical(dt.tensor(0.5))
    with pytest.raises(ValueError, match=r"parameter probs .* Categorical.* Simplex"):
        Categorical(dt.tensor([-0.1, 1.1]))
    with pytest.raises(ValueError, match="IntegerInterval"):
        Categorical(PROBS).log_prob(dt.tensor([3, 0]))
    with pytest.raises(ValueError, match=r"parameter scale .* Normal"):
        Normal(0.0, dt.tensor([1.0, 0.0]))
    Categorical(dt.tensor([-0.1, 1.1]), validate_args=False)


def test_shown():
    assert repr(Categorical(PROBS)) == f"Categorical(probs: {PROBS.size()})"


def test_supports():
    assert repr(Normal(0.0, 1.0).support) == "Real()"
    assert repr(Bernoulli(0.5).support) == "Boolean()"
    assert repr(Categorical(PROBS).support) == "IntegerInterval(lower_bound=0, upper_bound=2)"
