"""Losses of labels and logits."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.nn import logits

X = dt.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])


def test_both_forms_of_labels_give_the_same():
    labels = dt.tensor([1, 2])
    one = logits.sparse_softmax_cross_entropy(labels, X)
    other = logits.softmax_cross_entropy(dt.nn.functional.one_hot(labels, 3).float(), X)
    assert one.tolist() == pytest.approx(other.tolist())
    with pytest.raises(IndexError, match="label value of 3 which is outside"):
        logits.sparse_softmax_cross_entropy(dt.tensor([3, 0]), X)


def test_elements():
    labels = (X > 0).float()
    one = logits.sigmoid_cross_entropy(labels, X)
    assert dt.allclose(one, logits.weighted_cross_entropy(labels, X, 1.0), atol=1e-6)
    with pytest.raises(ValueError, match="must have the same shape"):
        logits.sigmoid_cross_entropy(labels[0], X)
    assert logits.log_poisson(dt.tensor(2.0), dt.tensor(0.0)).item() == 1.0
