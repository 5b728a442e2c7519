"""Samples of the default stream."""

from __future__ import annotations

import disttrain as dt
from disttrain.distributions import samples


def test_shapes_types_and_means():
    dt.manual_seed(0)
    found = samples.gamma([500], dt.tensor([1.0, 4.0]), dt.tensor(2.0), dt.float64)
    assert found.shape == (500, 2) and found.dtype is dt.float64
    assert dt.allclose(found.mean(0), dt.tensor([0.5, 2.0], dtype=dt.float64), atol=0.3)
    assert samples.gamma(3, dt.ones(2)).shape == (3, 2)
    counts = samples.poisson([500], dt.tensor([3, 1]), dt.float32)
    assert counts.shape == (500, 2) and abs(counts[:, 0].mean().item() - 3) < 0.5
    drawn = samples.categorical(dt.tensor([[0.0, -100.0]]), 5, dt.int32)
    assert drawn.tolist() == [[0] * 5] and drawn.dtype is dt.int32


def test_a_shuffle_keeps_the_rows():
    dt.manual_seed(1)
    found = samples.shuffle(dt.arange(20))
    assert found.tolist() != list(range(20)) and sorted(found.tolist()) == list(range(20))
