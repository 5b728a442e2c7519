"""``torch.distributions``: its modules, and the distributions that policies are drawn from."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.compat.torch import distributions

MODULES = distributions.modules()
D = MODULES["torch.distributions"]


def test_modules():
    for place, kind in distributions._PLACES.items():
        shim = MODULES[f"torch.distributions.{place}"]
        assert getattr(shim, kind) is getattr(D, kind) is getattr(dt.distributions, kind)
    for place in distributions._MODULES:
        assert len(dir(MODULES[f"torch.distributions.{place}"])) > 1
    constraints = MODULES["torch.distributions.constraints"]
    assert constraints.positive is dt.distributions.constraints.positive
    assert MODULES["torch.distributions.kl"].kl_divergence is D.kl_divergence
    assert constraints.Constraint is dt.distributions.constraints.Constraint


def test_categorical():
    weights = dt.tensor([[1.0, 1.0, 2.0], [0.0, 3.0, 1.0]], dtype=dt.float64)
    by_probs, by_logits = D.Categorical(weights), D.Categorical(logits=dt.log(weights + 1e-30))
    value = dt.tensor([2, 1])
    for d in (by_probs, by_logits):
        assert np.allclose(d.log_prob(value).numpy(), np.log([0.5, 0.75]))
        assert d.mode.tolist() == [2, 1] and d.batch_shape == (2,)
        assert d.sample((5, 3)).shape == (5, 3, 2) and d.sample().shape == (2,)
    dt.manual_seed(0)
    drawn = by_probs.sample((4000,))
    assert not (drawn[:, 1] == 0).any()
    assert abs((drawn[:, 0] == 2).double().mean().item() - 0.5) < 0.05
    entropy = [
        0.5 * math.log(2) + 0.5 * math.log(4),
        -0.75 * math.log(0.75) - 0.25 * math.log(0.25),
    ]
    assert np.allclose(by_probs.entropy().numpy(), entropy)


def test_gradients_of_a_policy():
    scores = dt.randn(3, dtype=dt.float64, requires_grad=True)
    run = lambda s: D.Categorical(dt.softmax(s, -1)).log_prob(dt.tensor(1))
    assert dt.autograd.gradcheck(run, (scores,))


def test_bernoulli_and_normal():
    coin = D.Bernoulli(dt.tensor([0.25, 1.0]))
    assert coin.log_prob(dt.tensor([1.0, 1.0])).tolist() == pytest.approx(
        [math.log(0.25), 0.0], abs=1e-6
    )
    assert coin.sample((9,))[:, 1].tolist() == [1.0] * 9
    assert D.Bernoulli(logits=dt.zeros(2)).probs.tolist() == [0.5, 0.5]
    loc = dt.zeros(2, requires_grad=True)
    normal = D.Normal(loc, 2.0)
    normal.rsample((4,)).sum().backward()
    assert loc.grad.tolist() == [4.0, 4.0] and not normal.sample().requires_grad
    assert normal.log_prob(dt.zeros(2)).tolist() == pytest.approx(
        [-math.log(2 * math.sqrt(2 * math.pi))] * 2
    )
    assert normal.entropy()[0].item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e * 4))


def test_what_has_no_meaning():
    with pytest.raises(ValueError, match="but not both"):
        D.Categorical()
    with pytest.raises(ValueError, match="parameter probs"):
        D.Categorical(dt.tensor([-1.0, 2.0]))
    with pytest.raises(ValueError, match="at least one-dimensional"):
        D.Categorical(dt.tensor(1.0))
    with pytest.raises(ValueError, match="parameter scale"):
        D.Normal(0.0, 0.0)
