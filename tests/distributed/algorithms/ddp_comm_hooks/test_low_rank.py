"""Matrices of low rank: which gradients are worth it, and orthonormal columns."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed.algorithms.ddp_comm_hooks.low_rank import Family, orthogonalize, plan


def test_large_matrices_are_compressed_and_vectors_travel_plain():
    found = plan([(100, 200), (50,), (100, 10, 20), (3, 3), ()], 2, 2.0, batched=True)
    assert found.families == (Family((0, 2), 100, 200, 2),) and found.plain == (1, 3, 4)
    assert found.before == 20000 + 50 + 20000 + 9 + 1
    assert found.after == 2 * (100 + 200) * 2 + 50 + 9 + 1
    apart = plan([(100, 200), (100, 200)], 2, 2.0, batched=False)
    assert [f.places for f in apart.families] == [(0,), (1,)]
    assert plan([(100, 200)], 2, 1e9, batched=True).plain == (0,)


@pytest.mark.parametrize("cols", [1, 2, 5, 9])
def test_columns_become_orthonormal_and_span_the_same(cols):
    a = np.random.default_rng(0).normal(size=(3, 20, cols))
    x = dt.from_numpy(a.copy())
    orthogonalize(x)
    q = x.numpy()
    np.testing.assert_allclose(q.swapaxes(1, 2) @ q, np.stack([np.eye(cols)] * 3), atol=1e-9)
    np.testing.assert_allclose(q @ (q.swapaxes(1, 2) @ a), a, atol=1e-9)


def test_a_column_of_zeros_stays_one():
    x = dt.zeros(1, 4, 2)
    x[0, :, 1] = 2.0
    orthogonalize(x)
    assert x[0].T.tolist() == [[0.0] * 4, [0.5] * 4]
