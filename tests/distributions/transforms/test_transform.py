"""Transforms: inverses, caches, compositions, dimensions that values gain and lose."""

from __future__ import annotations

import copy
import pickle

import pytest

import disttrain as dt

D = dt.distributions
X = dt.tensor([[0.3, 0.6], [1.2, 2.0]], dtype=dt.float64)


def test_an_inverse_of_an_inverse_is_the_transform():
    t = D.ExpTransform()
    assert t.inv.inv is t and t.inv is t.inv and t.inv == D.ExpTransform().inv
    assert t.inv.domain is t.codomain and t.inv.sign == 1 and t.inv.bijective
    assert repr(t.inv) == "_InverseTransform(ExpTransform())"
    assert dt.allclose(t.inv(t(X)), X)
    assert dt.allclose(t.inv.log_abs_det_jacobian(t(X), X), -X)


def test_a_cache_gives_the_same_object_back():
    t = D.ExpTransform(cache_size=1)
    y = t(X)
    assert t(X) is y and t.inv(y) is X
    assert t.with_cache(1) is t and t.with_cache(0)._cache_size == 0
    assert pickle.loads(pickle.dumps(t))._cache_size == copy.deepcopy(t)._cache_size == 1
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        D.ExpTransform(cache_size=2)


def test_a_composition_adds_its_logarithms():
    t = D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.ExpTransform()])
    y = t(X)
    assert dt.allclose(y, (1 + 2 * X).exp()) and dt.allclose(t.inv(y), X)
    want = 1 + 2 * X + dt.tensor(2.0).log()
    assert dt.allclose(t.log_abs_det_jacobian(X, y), want)
    assert t.sign == 1 and t.bijective and t.inv.inv is t
    assert t == D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.ExpTransform()])
    assert D.identity_transform(X) is X
    assert D.identity_transform.log_abs_det_jacobian(X, X).tolist() == [[0, 0], [0, 0]]


def test_dimensions_of_a_composition():
    t = D.ComposeTransform([D.ExpTransform(), D.StickBreakingTransform().inv.inv])
    assert t.domain.event_dim == t.codomain.event_dim == 1
    assert t.forward_shape((4, 3)) == (4, 4) and t.inverse_shape((4, 4)) == (4, 3)
    assert t.log_abs_det_jacobian(X, t(X)).shape == (2,)
    one = D.IndependentTransform(D.ExpTransform(), 1)
    assert dt.allclose(one.log_abs_det_jacobian(X, one(X)), X.sum(-1))
    with pytest.raises(ValueError, match="Too few dimensions"):
        one(dt.tensor(1.0))


def test_shapes_that_change():
    t = D.ReshapeTransform((2, 2), (4,))
    assert t(X).shape == (4,) and t.inv(t(X)).shape == (2, 2)
    assert t.log_abs_det_jacobian(X, t(X)).item() == 0
    assert t.forward_shape((7, 2, 2)) == (7, 4)
    with pytest.raises(ValueError, match="different numbers"):
        D.ReshapeTransform((2, 2), (3,))
    with pytest.raises(ValueError, match="Shape mismatch"):
        t.forward_shape((2, 3))
    with pytest.raises(ValueError, match="Please use either"):
        assert t.event_dim
