"""Softmax by clusters of classes: all probabilities together, and each target's."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, ShapeError

X = dt.from_numpy(np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32))
TARGETS = dt.tensor([0, 9, 3, 5, 2, 3])


def scorer(**settings):
    dt.manual_seed(0)
    return dt.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 5], div_value=2.0, **settings)


@pytest.mark.parametrize("head_bias", [False, True])
def test_targets_get_their_part_of_all_probabilities(head_bias):
    scores = scorer(head_bias=head_bias)
    every = scores.log_prob(X)
    np.testing.assert_allclose(every.exp().sum(1).tolist(), np.ones(6), rtol=1e-5)
    output, loss = scores(X, TARGETS)
    np.testing.assert_allclose(output.tolist(), every[dt.arange(6), TARGETS].tolist(), rtol=1e-5)
    np.testing.assert_allclose(loss.item(), -output.mean().item(), rtol=1e-6)
    assert dt.equal(scores.predict(X), every.argmax(1))
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in scores.parameters())


def test_sizes_and_one_row():
    scores = scorer()
    assert [tuple(p.shape) for p in scores.parameters()] == [
        (5, 8), (4, 8), (2, 4), (2, 8), (5, 2),
    ]  # fmt: skip
    one, rows = scores(X[1], TARGETS[1]), scores(X[1:2], TARGETS[1:2])
    assert one.output.shape == () and one.output.item() == rows.output[0].item()
    before = [p.clone() for p in scores.parameters()]
    scores.reset_parameters()
    assert not any(dt.equal(a, b) for a, b in zip(before, scores.parameters(), strict=True))


@pytest.mark.parametrize("cutoffs", [[], [0, 3], [3, 3], [5, 3], [10]])
def test_cutoffs_rise_between_the_classes(cutoffs):
    with pytest.raises(ConfigError, match="cutoffs"):
        dt.nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs)


def test_misuse():
    scores = scorer()
    with pytest.raises(ConfigError, match="Target values"):
        scores(X, TARGETS + 5)
    with pytest.raises(ShapeError, match="needed"):
        scores(X, TARGETS[:3])
    with pytest.raises(ConfigError, match="multi-target"):
        scores(X, TARGETS[:, None])
