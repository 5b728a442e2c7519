"""The norm of gradients that depends on no sharding."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed.invariant.clip import clip_grad_norm_, squared_rows


def parameters(*gradients: np.ndarray) -> list:
    found = []
    for g in gradients:
        p = dt.nn.Parameter(dt.zeros(g.shape, dtype=dt.float32))
        p.grad = dt.tensor(g.astype(np.float32))
        found.append(p)
    return found


def test_the_norm_before_is_given_and_gradients_are_scaled_to_the_maximum():
    ps = parameters(np.array([3.0, 0.0]), np.array([[0.0, 4.0]]))
    assert clip_grad_norm_(ps, 1.0) == 5.0
    assert ps[0].grad.tolist() == pytest.approx([0.6, 0.0], rel=1e-5)
    assert ps[1].grad.tolist()[0] == pytest.approx([0.0, 0.8], rel=1e-5)


def test_a_small_norm_changes_nothing_and_parameters_without_gradients_count_nothing():
    ps = [*parameters(np.array([3.0, 4.0])), dt.nn.Parameter(dt.ones(2))]
    assert clip_grad_norm_(ps, 10.0) == 5.0
    assert ps[0].grad.tolist() == [3.0, 4.0] and ps[1].grad is None
    assert clip_grad_norm_([], 1.0) == 0.0


@pytest.mark.parametrize("shape, dim", [((7,), 0), ((600, 5), 0), ((4, 600), 1), ((3, 4, 5), 2)])
def test_rows_are_summed_alone_in_float64(shape, dim):
    g = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    rows = squared_rows(g, dim)
    axes = tuple(i for i in range(g.ndim) if i != dim)
    assert rows.dtype == np.float64 and rows.shape == (shape[dim],)
    np.testing.assert_allclose(rows, (g.astype(np.float64) ** 2).sum(axes), rtol=1e-13)


def test_a_row_is_the_same_bits_whatever_rows_are_beside_it():
    g = np.random.default_rng(1).standard_normal((700, 33)).astype(np.float32)
    whole = squared_rows(g)
    for lo, hi in ((0, 1), (255, 257), (1, 700)):
        assert squared_rows(g[lo:hi]).tobytes() == whole[lo:hi].tobytes()


def test_a_number_alone_is_one_row():
    assert squared_rows(np.array(3.0, np.float32)).tolist() == [9.0]


def test_large_numbers_do_not_overflow():
    ps = parameters(np.full(2, 1e30))
    assert clip_grad_norm_(ps, 1.0) == pytest.approx(2**0.5 * 1e30, rel=1e-6)
    assert np.isfinite(ps[0].grad.numpy()).all()
