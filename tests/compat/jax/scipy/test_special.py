"""``jax.scipy``: special functions, distributions, matrices and filters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain.compat.jax.numpy as jnp
from disttrain.compat.jax.scipy import linalg, signal, special, stats

X = jnp.asarray([0.3, 1.5])


def test_special_functions():
    np.testing.assert_allclose(
        np.asarray(special.erf(X)), [math.erf(0.3), math.erf(1.5)], rtol=1e-5
    )
    np.testing.assert_allclose(
        np.asarray(special.gammaln(X)), [*map(math.lgamma, (0.3, 1.5))], rtol=1e-5
    )
    assert special.comb(5, 2).item() == pytest.approx(10) and special.expit(0).weak_type
    assert special.betainc(2.0, 3.0, 0.4).item() == pytest.approx(0.5248, rel=1e-4)
    with pytest.raises(TypeError, match="requires ndarray or scalar"):
        special.erf([1])


def test_distributions():
    assert stats.norm.logpdf(X, loc=0.3, scale=2.0)[0].item() == pytest.approx(
        -math.log(2) - 0.5 * math.log(2 * math.pi), rel=1e-5
    )
    assert stats.norm.ppf(stats.norm.cdf(X))[1].item() == pytest.approx(1.5, rel=1e-4)
    assert stats.poisson.pmf(jnp.arange(40), 3.0).sum().item() == pytest.approx(1, rel=1e-5)
    assert stats.uniform.pdf(X).tolist() == [1, 0]
    assert stats.multivariate_normal.logpdf(X, jnp.zeros(2), jnp.eye(2)).shape == ()
    with pytest.raises(TypeError):
        stats.gamma.logpdf(X)


def test_matrices():
    a = jnp.asarray([[4.0, 1.0], [1.0, 3.0]])
    for x in (linalg.cho_solve(linalg.cho_factor(a), X), linalg.lu_solve(linalg.lu_factor(a), X),
              linalg.solve(a, X, assume_a="pos")):  # fmt: skip
        np.testing.assert_allclose(np.asarray(a @ x), np.asarray(X), rtol=1e-5)
    assert linalg.block_diag(a, a).shape == (4, 4) and linalg.toeplitz(X).tolist()[0] == X.tolist()
    np.testing.assert_allclose(np.asarray(linalg.expm(a * 0)), np.eye(2))


def test_filters():
    got = signal.convolve(X, jnp.asarray([1.0, 2.0, 3.0]), "same")
    np.testing.assert_allclose(np.asarray(got), np.convolve([0.3, 1.5], [1, 2, 3])[1:3], rtol=1e-5)
    with pytest.raises(ValueError, match="mode must be one of"):
        signal.convolve(X, X, "odd")
