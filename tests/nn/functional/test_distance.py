"""Lengths, angles and the losses made of them, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

F = dt.nn.functional
RNG = np.random.default_rng(0)
A, B, C = (RNG.normal(size=(5, 7)) for _ in range(3))


def tensors(*arrays):
    return [dt.from_numpy(a) for a in arrays]


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_rows_of_length_one_and_distances(p):
    a, b = tensors(A, B)
    length = (np.abs(A) ** p).sum(1, keepdims=True) ** (1 / p)
    np.testing.assert_allclose(F.normalize(a, p).numpy(), A / length)
    found = F.pairwise_distance(a, b, p).numpy()
    np.testing.assert_allclose(found, (np.abs(A - B + 1e-6) ** p).sum(1) ** (1 / p))


def test_a_row_of_zeros_stays():
    assert F.normalize(dt.zeros(2, 3)).tolist() == [[0.0] * 3] * 2
    assert F.cosine_similarity(dt.zeros(2, 3), dt.ones(2, 3)).tolist() == [0.0, 0.0]


def test_angles():
    a, b = tensors(A, B)
    wanted = (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    np.testing.assert_allclose(F.cosine_similarity(a, b).numpy(), wanted)
    assert F.cosine_similarity(a[:, None], b[None], dim=2).shape == (5, 5)
    y = np.array([1, -1, 1, -1, 1])
    loss = np.where(y == 1, 1 - wanted, np.maximum(0, wanted - 0.1))
    found = F.cosine_embedding_loss(a, b, dt.from_numpy(y), margin=0.1, reduction="none")
    np.testing.assert_allclose(found.numpy(), loss)


def test_triplets():
    far = [np.linalg.norm(A - x + 1e-6, axis=1) for x in (B, C)]
    wanted = np.maximum(0, far[0] - far[1] + 1)
    found = F.triplet_margin_loss(*tensors(A, B, C), reduction="none")
    np.testing.assert_allclose(found.numpy(), wanted)
    own = F.triplet_margin_with_distance_loss(
        *tensors(A, B, C), distance_function=lambda x, y: (x - y).abs().sum(1), reduction="sum"
    )
    apart = [np.abs(A - x).sum(1) for x in (B, C)]
    np.testing.assert_allclose(own.item(), np.maximum(0, apart[0] - apart[1] + 1).sum())
