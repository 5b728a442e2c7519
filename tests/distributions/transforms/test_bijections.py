"""Transforms of numbers: there and back, and Jacobians against derivatives."""

from __future__ import annotations

import pytest

import disttrain as dt

D = dt.distributions
X = dt.tensor([0.2, 0.5, 0.9], dtype=dt.float64)
ALL = [
    D.ExpTransform(), D.PowerTransform(dt.tensor(3.0)), D.PowerTransform(-0.5),
    D.SigmoidTransform(), D.SoftplusTransform(), D.TanhTransform(), D.AffineTransform(1.0, -2.0),
    D.AffineTransform(0.0, dt.tensor([1.0, 2.0, -3.0], dtype=dt.float64)),
    D.CumulativeDistributionTransform(D.Normal(dt.tensor(0.0, dtype=dt.float64), 1.0)),
]  # fmt: skip


@pytest.mark.parametrize("t", ALL, ids=lambda t: type(t).__name__)
def test_there_and_back(t):
    x = X.clone().requires_grad_()
    y = t(x)
    assert dt.allclose(t.inv(y), x, rtol=1e-6)
    (slope,) = dt.autograd.grad(y.sum(), x)
    assert dt.allclose(t.log_abs_det_jacobian(X, t(X)), slope.abs().log(), rtol=1e-6)
    sign = dt.as_tensor(t.sign, dtype=dt.float64)
    assert bool((slope.sign() == sign).all())
    assert bool(t.codomain.check(y).all()) and t.with_cache(1)._cache_size == 1


def test_values_of_many_numbers():
    t = D.AffineTransform(0.0, dt.tensor([2.0, 3.0, 4.0]), event_dim=1)
    assert t.log_abs_det_jacobian(X, t(X)).item() == pytest.approx(3.1780538303479458)
    assert t.domain.event_dim == 1 and t == D.AffineTransform(0.0, dt.tensor([2.0, 3.0, 4.0]))
    assert tuple(D.AffineTransform(0.0, dt.ones(3)).forward_shape((2, 1))) == (2, 3)


def test_ends_stay_inside():
    s = D.SigmoidTransform()
    assert 0 < s(dt.tensor(-200.0)).item() and s(dt.tensor(200.0)).item() < 1
    assert D.AbsTransform()(dt.tensor(-2.0)).item() == 2
    with pytest.raises(NotImplementedError):
        assert D.AbsTransform().sign
