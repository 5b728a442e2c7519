"""Categorical and Bernoulli: against closed forms, against samples, at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributions import Bernoulli, Categorical

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


def test_what_never_happens_stays_so_when_repeated():
    b = Bernoulli(dt.tensor([0.0, 1.0]))
    c = Categorical(dt.tensor([0.0, 1.0, 0.0]))
    assert b.expand((3, 2)).probs.tolist() == [[0.0, 1.0]] * 3
    assert c.expand((2,)).probs.tolist() == [[0.0, 1.0, 0.0]] * 2
    assert b.expand((3, 2)).logits.tolist() == [b.logits.tolist()] * 3
    dt.manual_seed(0)
    assert b.expand((1000, 2)).sample().mean(0).tolist() == [0.0, 1.0]
    assert set(c.expand((1000,)).sample().tolist()) == {1}


def test_repeating_lets_gradients_through_to_what_was_given():
    p = dt.tensor([0.25, 0.75], dtype=dt.float64, requires_grad=True)
    Bernoulli(p).expand((4, 2)).log_prob(dt.ones(4, 2)).sum().backward()
    assert p.grad.tolist() == pytest.approx([4 / 0.25, 4 / 0.75])
    logits = dt.zeros(2, dtype=dt.float64, requires_grad=True)
    Categorical(logits=logits).expand((3,)).log_prob(dt.zeros(3)).sum().backward()
    assert logits.grad.tolist() == pytest.approx([1.5, -1.5])


def test_what_is_certain_has_no_entropy_and_a_finite_log_prob():
    c = Categorical(dt.tensor([1.0, 0.0]))
    assert c.entropy().item() == pytest.approx(0.0, abs=1e-5)
    assert c.log_prob(dt.tensor([0, 1])).tolist() == pytest.approx(
        [0.0, math.log(2**-23)], abs=1e-5
    )
    sure = Categorical(logits=dt.tensor([0.0, -math.inf]))
    assert sure.entropy().item() == 0.0 and sure.log_prob(dt.tensor(1)).item() == -math.inf


def test_bernoulli_takes_numbers_and_large_logits():
    assert Bernoulli(0.25).logits.item() == pytest.approx(math.log(1 / 3))
    far = Bernoulli(logits=dt.tensor([1000.0, -1000.0]))
    assert far.log_prob(dt.tensor([1.0, 1.0])).tolist() == [0.0, -1000.0]
    assert far.entropy().tolist() == [0.0, 0.0]
    assert Bernoulli(0.5).expand((2, 3)).sample((4,)).shape == (4, 2, 3)


def test_all_values_can_be_listed_beside_the_batch():
    c = Categorical(dt.ones(2, 4, 3))
    assert c.enumerate_support(expand=False).shape == (3, 1, 1)
    assert c.enumerate_support()[:, 1, 3].tolist() == [0, 1, 2]
    b = Bernoulli(dt.ones(2, dtype=dt.float64) / 2)
    assert b.enumerate_support().tolist() == [[0, 0], [1, 1]]
    assert b.enumerate_support(expand=False).dtype == dt.float64


def test_numbers_of_categories_have_no_mean():
    c = Categorical(PROBS)
    assert c.mean.isnan().tolist() == c.variance.isnan().tolist() == [True, True]
    with pytest.raises(ValueError, match="Boolean"):
        Bernoulli(0.5).log_prob(dt.tensor(0.5))
    with pytest.raises(ValueError, match="IntegerInterval"):
        c.log_prob(dt.tensor(0.5))
    with pytest.raises(ValueError, match="not both"):
        Bernoulli(0.5, 0.0)
    with pytest.raises(ValueError, match=r"parameter probs .* Bernoulli.* Interval"):
        Bernoulli(1.5)
