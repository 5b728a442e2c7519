"""Draws: their ranges, their moments, and that a seed repeats them."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.primitives import random as rn

N = 20_000
DRAWS = {
    "uniform": (lambda g: dt.rand(N, generator=g), 0.5, 1 / 12),
    "normal": (lambda g: dt.randn(N, generator=g), 0.0, 1.0),
    "integers": (lambda g: dt.randint(0, 10, (N,), generator=g).float(), 4.5, 8.25),
    "bernoulli": (lambda g: dt.bernoulli(dt.full((N,), 0.3), generator=g), 0.3, 0.21),
    "exponential": (lambda g: dt.empty(N).exponential_(2.0, generator=g), 0.5, 0.25),
    "poisson": (lambda g: dt.poisson(dt.full((N,), 3.0), generator=g), 3.0, 3.0),
}


@pytest.mark.parametrize("name", DRAWS)
def test_moments_and_repetition(name):
    draw, mean, variance = DRAWS[name]
    found = [draw(dt.Generator().manual_seed(3)).numpy() for _ in range(2)]
    assert (found[0] == found[1]).all()
    other = draw(dt.Generator().manual_seed(4)).numpy()
    assert (other != found[0]).any()
    assert abs(found[0].mean() - mean) < 5 * np.sqrt(variance / N)
    assert abs(found[0].var() - variance) < 0.06 * variance


def test_permutations_hold_each_number_once():
    assert sorted(dt.randperm(100).tolist()) == list(range(100))


def test_numbers_are_drawn_by_weight():
    found = dt.multinomial(dt.tensor([0.0, 1.0, 3.0]), N, replacement=True).numpy()
    assert set(found.tolist()) == {1, 2} and abs((found == 2).mean() - 0.75) < 0.02
    once = dt.multinomial(dt.tensor([0.0, 1.0, 3.0]), 2).tolist()
    assert sorted(once) == [1, 2]


def test_dropout_keeps_a_share_and_scales_it():
    x = dt.ones(N)
    out = dt.nn.functional.dropout(x, 0.25).numpy()
    assert set(np.unique(out).tolist()) <= {0.0, np.float32(4 / 3).item()}
    assert abs((out > 0).mean() - 0.75) < 0.02
    mask = np.array([True, False])
    assert rn.masked_scale.forward(np.array([2.0, 2.0]), mask, scale=3.0).tolist() == [6.0, 0.0]
