"""Transforms of parts: each gets its own, along any dimension."""

from __future__ import annotations

import pytest

import disttrain as dt

D = dt.distributions
X = dt.tensor([[0.3, 0.6, 1.2], [1.5, 2.0, 0.1]], dtype=dt.float64)


@pytest.mark.parametrize("dim", [0, -2])
def test_stacked(dim):
    t = D.StackTransform([D.ExpTransform(), D.AffineTransform(1.0, 2.0)], dim)
    y = t(X)
    assert dt.allclose(y, dt.stack([X[0].exp(), 1 + 2 * X[1]])) and dt.allclose(t.inv(y), X)
    log2 = dt.full((3,), 2.0, dtype=dt.float64).log()
    assert dt.allclose(t.log_abs_det_jacobian(X, y), dt.stack([X[0], log2]))
    assert t.bijective and bool(t.codomain.check(y).all())
    with pytest.raises(AssertionError, match="2 needed"):
        t(X[:1])


def test_one_behind_the_other():
    t = D.CatTransform([D.ExpTransform(), D.identity_transform], dim=1, lengths=[2, 1])
    y = t(X)
    assert dt.allclose(y, dt.cat([X[:, :2].exp(), X[:, 2:]], 1)) and dt.allclose(t.inv(y), X)
    jacobian = t.log_abs_det_jacobian(X, y)
    assert dt.allclose(jacobian, dt.cat([X[:, :2], dt.zeros_like(X[:, 2:])], 1))
    assert t.length == 3 and t.event_dim == 0 and t.with_cache(1)._cache_size == 1
    with pytest.raises(AssertionError, match="as many lengths"):
        D.CatTransform([D.ExpTransform()], lengths=[1, 2])
