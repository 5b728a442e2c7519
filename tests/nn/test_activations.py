"""Activations whose form a parameter says."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.nn import activations
from disttrain.nn import functional as F  # noqa: N812

X = dt.tensor([-1.0, 2.0])


def test_forms():
    assert activations.leaky_relu(dt.tensor([-5, 2])).tolist() == [-1.0, 2.0]
    assert dt.equal(activations.gelu(X), F.gelu(X))
    assert dt.equal(activations.gelu(X, True), F.gelu(X, approximate="tanh"))
    assert dt.allclose(activations.silu(X, 1.0), F.silu(X))
    assert activations.crelu(X).tolist() == [0.0, 2.0, 1.0, 0.0]
    assert activations.l2_loss(X).item() == 2.5


def test_dropout_by_a_mask_of_its_own_shape():
    dt.manual_seed(0)
    found = activations.dropout(dt.ones(4, 50), 0.5, [1, 50])
    assert set(found[0].tolist()) == {0.0, 2.0} and dt.equal(found[0], found[3])
    assert activations.dropout(X, 0.0).tolist() == X.tolist()
    with pytest.raises(ValueError, match=r"range \[0, 1\)"):
        activations.dropout(X, 1.0)
