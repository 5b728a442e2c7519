"""Normal vectors: three ways to say a covariance, low ranks, broadcasting, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

D = dt.distributions
COV = dt.tensor([[2.0, 0.3, 0.1], [0.3, 0.5, -0.1], [0.1, -0.1, 1.0]], dtype=dt.float64)
LOC = dt.tensor([0.1, -0.2, 0.3], dtype=dt.float64)


def reference(x):
    apart = x.numpy() - LOC.numpy()
    inverse, n = np.linalg.inv(COV.numpy()), 3
    squares = np.einsum("...i,ij,...j->...", apart, inverse, apart)
    return -0.5 * (squares + n * np.log(2 * np.pi) + np.linalg.slogdet(COV.numpy())[1])


def test_three_ways_to_say_a_covariance():
    factor = dt.linalg.cholesky(COV)
    ways = [{"covariance_matrix": COV}, {"precision_matrix": dt.linalg.inv(COV)},
            {"scale_tril": factor}]  # fmt: skip
    x = dt.randn(5, 2, 3, dtype=dt.float64)
    for way in ways:
        d = D.MultivariateNormal(LOC, **way)
        assert dt.allclose(d.log_prob(x), dt.tensor(reference(x)))
        for name, want in (("covariance_matrix", COV), ("scale_tril", factor),
                           ("precision_matrix", dt.linalg.inv(COV))):  # fmt: skip
            assert dt.allclose(getattr(d, name), want)
        assert dt.allclose(d.variance, COV.diagonal())
        assert d.entropy().item() == pytest.approx(
            0.5 * np.linalg.slogdet(2 * np.pi * np.e * COV.numpy())[1]
        )


def test_low_ranks():
    w = dt.tensor([[1.0], [0.5], [-0.3]], dtype=dt.float64)
    v = dt.tensor([0.5, 0.3, 0.9], dtype=dt.float64)
    low = D.LowRankMultivariateNormal(LOC, w, v)
    full = D.MultivariateNormal(LOC, w @ w.T + v.diag())
    x = dt.randn(4, 3, dtype=dt.float64)
    assert dt.allclose(low.log_prob(x), full.log_prob(x))
    assert dt.allclose(low.entropy(), full.entropy())
    for name in ("covariance_matrix", "precision_matrix", "scale_tril", "variance"):
        assert dt.allclose(getattr(low, name), getattr(full, name))
    assert D.kl_divergence(low, full).item() == pytest.approx(0, abs=1e-12)
    assert D.kl_divergence(full, low).item() == pytest.approx(0, abs=1e-12)
    assert D.kl_divergence(low, low).item() == pytest.approx(0, abs=1e-12)


def test_batches_meet():
    d = D.MultivariateNormal(dt.zeros(4, 1, 3), covariance_matrix=COV.float().expand(2, 3, 3))
    assert d.batch_shape == (4, 2) and d.log_prob(d.sample((5,))).shape == (5, 4, 2)
    assert d.log_prob(dt.zeros(3)).shape == (4, 2) and d.expand((6, 4, 2)).sample().shape == (
        6, 4, 2, 3,
    )  # fmt: skip
    dt.manual_seed(0)
    drawn = D.MultivariateNormal(LOC, COV).sample((20_000,))
    assert np.abs(np.cov(drawn.numpy().T) - COV.numpy()).max() < 0.1


def test_what_is_refused():
    with pytest.raises(ValueError, match="Exactly one"):
        D.MultivariateNormal(LOC)
    with pytest.raises(ValueError, match="loc must be at least"):
        D.MultivariateNormal(dt.tensor(1.0), COV)
    with pytest.raises(ValueError, match="at least two-dimensional"):
        D.MultivariateNormal(LOC, LOC)
    with pytest.raises(ValueError, match="PositiveDefinite"):
        D.MultivariateNormal(LOC, dt.ones(3, 3, dtype=dt.float64))
    with pytest.raises(ValueError, match="right-most size"):
        D.MultivariateNormal(LOC, COV).log_prob(dt.zeros(4))
    with pytest.raises(ValueError, match="shape 3 x m"):
        D.LowRankMultivariateNormal(LOC, dt.ones(4, 1), dt.ones(3))
    with pytest.raises(ValueError, match="batch of vectors"):
        D.LowRankMultivariateNormal(LOC, dt.ones(3, 1), dt.ones(4))
