"""Tensors brought to a mean, a spread or a length."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.arrays import normalizing

X = dt.tensor([[3.0, 4.0], [0.0, 0.0]])


def test_lengths():
    assert normalizing.l2_normalize(X, 1).tolist()[0] == pytest.approx([0.6, 0.8])
    assert normalizing.clip_by_norm(X, 1.0).tolist()[0] == pytest.approx([0.6, 0.8])
    assert normalizing.clip_by_norm(X, 10.0).tolist() == X.tolist()
    assert normalizing.global_norm(X, dt.tensor([12.0])).item() == 13.0


def test_the_gradient_of_a_clipped_zero_is_a_number():
    x = dt.zeros(2, requires_grad=True)
    normalizing.clip_by_norm(x, 1.0).sum().backward()
    assert x.grad.isfinite().all()


def test_means_and_spreads():
    mean, spread = normalizing.moments(X, [1])
    assert (mean.tolist(), spread.tolist()) == ([3.5, 0.0], [0.25, 0.0])
    one = normalizing.batch_normalization(X, mean[:, None], spread[:, None], None, None, 0.0)
    assert one[0].tolist() == [-1.0, 1.0]
    image = normalizing.standardized(dt.arange(12).reshape(2, 2, 3))
    assert image.mean().item() == pytest.approx(0, abs=1e-6)
    assert normalizing.standardized(dt.ones(2, 2, 1)).tolist() == dt.zeros(2, 2, 1).tolist()


def test_biases_and_sums():
    assert normalizing.bias_add(X, dt.tensor([1.0, 2.0])).tolist() == [[4.0, 6.0], [1.0, 2.0]]
    first = normalizing.bias_add(dt.zeros(1, 2, 3), dt.tensor([1.0, 2.0]), "NCW")
    assert first[0, :, 0].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="as many biases"):
        normalizing.bias_add(X, dt.ones(3))
    with pytest.raises(ValueError, match="same size"):
        normalizing.same_shapes([X, dt.ones(2)])
