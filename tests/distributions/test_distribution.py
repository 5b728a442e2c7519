"""Distributions: against closed forms, against samples, and what they refuse."""

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributions import Bernoulli, Categorical, Normal

PROBS = dt.tensor([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]], dtype=dt.float64)


def test_categorical_log_prob_and_entropy():
    c = Categorical(PROBS * 4)  # scaled to a sum of 1
    assert c.batch_shape == (2,) and c.event_shape == () and c.param_shape == (2, 3)
    got = c.log_prob(dt.tensor([2, 1])).tolist()
    assert got == pytest.approx([math.log(0.5), math.log(0.4)])
    wide = c.log_prob(dt.tensor([[0], [1]]))  # values are broadcast
    assert wide.shape == (2, 2) and wide[1, 0].item() == pytest.approx(math.log(0.3))
    one = -sum(p * math.log(p) for p in (0.2, 0.3, 0.5))
    two = -sum(p * math.log(p) for p in (0.6, 0.4))
    assert c.entropy().tolist() == pytest.approx([one, two])
    assert c.perplexity().tolist() == pytest.approx([math.exp(one), math.exp(two)])
    assert c.mode.tolist() == [2, 0]
    assert c.enumerate_support().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert c.expand((4, 2)).probs.shape == (4, 2, 3)


def test_categorical_samples_have_the_shape_and_the_frequencies():
    dt.manual_seed(0)
    samples = Categorical(PROBS).sample((5000,))
    assert samples.shape == (5000, 2) and samples.dtype == dt.int64
    counts = [np.bincount(samples[:, k].numpy(), minlength=3) / 5000 for k in range(2)]
    assert np.abs(np.stack(counts) - PROBS.numpy()).max() < 0.03
    assert Categorical(PROBS[0]).sample().shape == ()
    assert Categorical(PROBS[0]).sample((2, 3)).shape == (2, 3)


def test_policy_gradient_of_logits():
    logits = dt.tensor([[0.5, -1.0, 2.0]], dtype=dt.float64, requires_grad=True)
    Categorical(logits=logits).log_prob(dt.tensor([1])).sum().backward()
    chances = np.exp(logits.detach().numpy())
    expected = np.array([[0.0, 1.0, 0.0]]) - chances / chances.sum()
    assert np.allclose(logits.grad.numpy(), expected, atol=1e-12)


def test_bernoulli():
    b = Bernoulli(dt.tensor([0.25, 0.5], dtype=dt.float64))
    got = b.log_prob(dt.tensor([1.0, 0.0], dtype=dt.float64)).tolist()
    assert got == pytest.approx([math.log(0.25), math.log(0.5)])
    assert b.entropy()[1].item() == pytest.approx(math.log(2))
    assert b.variance.tolist() == pytest.approx([0.1875, 0.25])
    assert b.mode[0].item() == 0.0 and math.isnan(b.mode[1].item())
    dt.manual_seed(0)
    assert abs(b.sample((4000,)).mean(0)[0].item() - 0.25) < 0.03
    x = dt.tensor([0.0], requires_grad=True)
    Bernoulli(logits=x).log_prob(dt.ones(1)).backward(dt.ones(1))
    assert x.grad.item() == pytest.approx(0.5)


def test_normal():
    n = Normal(dt.tensor([1.0, -2.0], dtype=dt.float64), 2.0)
    assert n.log_prob(dt.tensor([1.0, 0.0], dtype=dt.float64)).tolist() == pytest.approx(
        [-math.log(2 * math.sqrt(2 * math.pi)), -0.5 - math.log(2 * math.sqrt(2 * math.pi))]
    )
    assert n.entropy()[0].item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e * 4))
    middle = dt.tensor([0.1, 0.9], dtype=dt.float64)
    assert n.cdf(n.icdf(middle)).tolist() == pytest.approx([0.1, 0.9])
    dt.manual_seed(0)
    samples = n.sample((8000,))
    assert samples.shape == (8000, 2) and not samples.requires_grad
    assert np.abs(samples.numpy().mean(0) - [1.0, -2.0]).max() < 0.1
    assert np.abs(samples.numpy().std(0) - 2.0).max() < 0.1


def test_rsample_carries_gradients():
    loc, scale = dt.zeros(3, requires_grad=True), dt.ones(3, requires_grad=True)
    x = Normal(loc, scale).rsample((7,))
    x.sum().backward()
    assert loc.grad.tolist() == [7.0] * 3
    assert np.allclose(scale.grad.numpy(), x.detach().numpy().sum(0), atol=1e-5)


def test_what_is_refused():
    with pytest.raises(ValueError, match="Either `probs` or `logits` must"):
        Categorical()
    with pytest.raises(ValueError, match="at least one-dimensional"):
        Categorical(dt.tensor(0.5))
    with pytest.raises(ValueError, match=r"parameter probs .* Categorical .* Simplex"):
        Categorical(dt.tensor([-0.1, 1.1]))
    with pytest.raises(ValueError, match="IntegerInterval"):
        Categorical(PROBS).log_prob(dt.tensor([3, 0]))
    with pytest.raises(ValueError, match=r"parameter scale .* Normal"):
        Normal(0.0, dt.tensor([1.0, 0.0]))
    Categorical(dt.tensor([-0.1, 1.1]), validate_args=False)


def test_shown():
    assert repr(Categorical(PROBS)) == f"Categorical(probs: {PROBS.size()}, logits: {PROBS.size()})"


def test_supports():
    assert repr(Normal(0.0, 1.0).support) == "Real()"
    assert repr(Bernoulli(0.5).support) == "Boolean()"
    assert repr(Categorical(PROBS).support) == "IntegerInterval(lower_bound=0, upper_bound=2)"
