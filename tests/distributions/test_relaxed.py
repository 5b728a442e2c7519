"""Relaxed distributions: gradients of samples, hard ones at a low temperature, densities."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

D = dt.distributions


def test_low_temperatures_are_hard():
    dt.manual_seed(0)
    p = dt.tensor([0.2, 0.9], dtype=dt.float64)
    drawn = D.RelaxedBernoulli(0.01, p).sample((4000,))
    assert drawn.round().mean(0).tolist() == pytest.approx([0.2, 0.9], abs=0.03)
    q = dt.tensor([0.2, 0.3, 0.5], dtype=dt.float64)
    drawn = D.RelaxedOneHotCategorical(0.05, q).sample((4000,))
    share = np.bincount(drawn.argmax(-1).numpy(), minlength=3) / 4000
    assert share == pytest.approx([0.2, 0.3, 0.5], abs=0.03)


def test_a_density_integrates_to_one():
    d = D.RelaxedBernoulli(dt.tensor(0.7, dtype=dt.float64), dt.tensor(0.3, dtype=dt.float64))
    x = (dt.arange(20_000, dtype=dt.float64) + 0.5) / 20_000
    assert d.log_prob(x).exp().mean().item() == pytest.approx(1, abs=0.01)


def test_gradients_reach_logits_and_temperature():
    logits = dt.zeros(3, dtype=dt.float64, requires_grad=True)
    heat = dt.tensor(0.7, dtype=dt.float64, requires_grad=True)
    d = D.RelaxedOneHotCategorical(heat, logits=logits)
    (d.rsample((3,)) ** 2).sum().backward()
    assert logits.grad.isfinite().all() and heat.grad.isfinite() and d.temperature is heat
    assert d.expand((4,)).sample().shape == (4, 3) and d.expand((4,)).temperature is heat
