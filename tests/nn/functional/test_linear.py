"""Products, lookups and dropout."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

F = dt.nn.functional
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_products(lead):
    x, w, b = RNG.normal(size=(*lead, 4)), RNG.normal(size=(5, 4)), RNG.normal(size=5)
    found = F.linear(*map(dt.from_numpy, (x, w, b)))
    np.testing.assert_allclose(found.numpy(), x @ w.T + b)
    y, v = RNG.normal(size=(*lead, 6)), RNG.normal(size=(5, 4, 6))
    found = F.bilinear(*map(dt.from_numpy, (x, y, v, b)))
    np.testing.assert_allclose(found.numpy(), np.einsum("...i,kij,...j->...k", x, v, y) + b)


def test_rows_are_looked_up():
    table = dt.arange(12.0).reshape(4, 3).requires_grad_()
    index = dt.tensor([[1, 3], [1, 0]])
    out = F.embedding(index, table, padding_idx=3)
    assert out.tolist() == table[index].tolist()
    out.sum().backward()
    assert table.grad.sum(1).tolist() == [3.0, 6.0, 0.0, 0.0]  # none for padding
    assert F.one_hot(dt.tensor([2, 0]), 4).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("drop", "shape", "over"),
    [
        (F.dropout, (1000,), ()),
        (F.dropout1d, (200, 5, 3), (2,)),
        (F.dropout2d, (200, 5, 2, 2), (2, 3)),
        (F.dropout3d, (100, 5, 2, 2, 2), (2, 3, 4)),
    ],
)
def test_dropout_takes_elements_or_whole_channels(drop, shape, over):
    out = drop(dt.ones(*shape), 0.5).numpy()
    assert set(np.unique(out)) == {0.0, 2.0}
    if over:
        assert (out.min(over) == out.max(over)).all()
    assert abs((out > 0).mean() - 0.5) < 0.1
    assert (drop(dt.ones(*shape), 0.5, training=False).numpy() == 1).all()


def test_alpha_dropout_keeps_mean_and_variance():
    out = F.alpha_dropout(dt.randn(40_000), 0.3, training=True).numpy()
    assert abs(out.mean()) < 0.05 and abs(out.var() - 1) < 0.05


def test_attention_is_softmax_of_products():
    q, k, v = (RNG.normal(size=(2, 3, 4)) for _ in range(3))
    scores = q @ k.swapaxes(1, 2) / 2
    scores = np.where(np.tri(3, dtype=bool), scores, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    found = F.scaled_dot_product_attention(*map(dt.from_numpy, (q, k, v)), is_causal=True)
    np.testing.assert_allclose(found.numpy(), weights @ v)


def test_channels_of_what_has_no_batch():
    dt.manual_seed(0)
    out = F.dropout3d(dt.ones(50, 2, 3, 2))
    assert set(out.reshape(50, -1).mean(1).tolist()) == {0.0, 2.0}
    with pytest.warns(UserWarning, match="6-D input to dropout3d"):
        F.dropout3d(dt.ones(1, 2, 2, 2, 2, 2))
    with pytest.warns(UserWarning, match="3D input to dropout2d"):
        F.dropout2d(dt.ones(2, 2, 2))
