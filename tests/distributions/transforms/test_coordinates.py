"""Transforms of vectors and matrices: there and back, in their sets, with their volumes."""

from __future__ import annotations

import pytest

import disttrain as dt

D, G = dt.distributions, dt.tensor([0.3, -0.4, 0.9, 0.1, -1.2, 0.7], dtype=dt.float64)


def volume(t, x, pick=lambda y: y):
    """log |det| of the Jacobian by autograd, of as many numbers as go in."""
    rows = dt.autograd.functional.jacobian(lambda v: pick(t(v)), x)
    return dt.linalg.slogdet(rows).logabsdet


def test_sticks():
    t = D.StickBreakingTransform()
    y = t(G)
    assert bool(t.codomain.check(y)) and dt.allclose(t.inv(y), G)
    want = volume(t, G, lambda v: v[:-1])
    assert dt.allclose(t.log_abs_det_jacobian(G, y), want)
    assert t(dt.zeros(3, dtype=dt.float64)).tolist() == pytest.approx([0.25] * 4)


def test_correlations():
    t = D.CorrCholeskyTransform()
    y = t(G)
    assert y.shape == (4, 4) and bool(t.codomain.check(y)) and dt.allclose(t.inv(y), G)
    places = [4, 8, 9, 12, 13, 14]
    want = volume(t, G, lambda v: v.reshape(-1)[places])
    assert dt.allclose(t.log_abs_det_jacobian(G, y), want)
    assert t.forward_shape((2, 6)) == (2, 4, 4) and t.inverse_shape((2, 4, 4)) == (2, 6)
    with pytest.raises(ValueError, match="not a flattened"):
        t.forward_shape((5,))
    with pytest.raises(ValueError, match="not square"):
        t.inverse_shape((3, 4))


@pytest.mark.parametrize("t", [D.LowerCholeskyTransform(), D.PositiveDefiniteTransform()])
def test_matrices(t):
    y = t(G[:4].reshape(2, 2))
    assert bool(t.codomain.check(y)) and dt.allclose(t(t.inv(y)), y)
    assert t == type(t)()


def test_softmax():
    t = D.SoftmaxTransform()
    assert dt.allclose(t(G), dt.softmax(G, -1)) and dt.allclose(t(t.inv(t(G))), t(G))
    with pytest.raises(ValueError, match="Too few"):
        t.forward_shape(())
