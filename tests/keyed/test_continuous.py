"""What is drawn is distributed as it should be, and moves with its parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain import keyed as k

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
KEY = k.seed(11)


def number(x, kind=F64):
    return dt.tensor(np.asarray(x, kind))


CASES = {  # draw, mean, variance
    "uniform": (lambda s: k.uniform(KEY, s, F64, -1.0, 3.0), 1.0, 16 / 12),
    "normal": (lambda s: k.normal(KEY, s, F64), 0.0, 1.0),
    "exponential": (lambda s: k.exponential(KEY, s, F64), 1.0, 1.0),
    "gumbel": (lambda s: k.gumbel(KEY, s, F64), 0.5772, math.pi**2 / 6),
    "laplace": (lambda s: k.laplace(KEY, s, F64), 0.0, 2.0),
    "logistic": (lambda s: k.logistic(KEY, s, F64), 0.0, math.pi**2 / 3),
    "gamma": (lambda s: k.gamma(KEY, number(2.5), s, F64), 2.5, 2.5),
    "small gamma": (lambda s: k.gamma(KEY, number(0.2), s, F64), 0.2, 0.2),
    "beta": (lambda s: k.beta(KEY, number(2.0), number(3.0), s, F64), 0.4, 0.04),
    "chisquare": (lambda s: k.chisquare(KEY, number(3.0), s, F64), 3.0, 6.0),
    "student": (lambda s: k.student(KEY, number(9.0), s, F64), 0.0, 9 / 7),
    "rayleigh": (lambda s: k.rayleigh(KEY, number(1.0), s, F64), 1.2533, 0.4292),
    "triangular": (
        lambda s: k.triangular(KEY, number(0.0), number(1.0), number(2.0), s, F64), 1.0, 1 / 6
    ),
    "wald": (lambda s: k.wald(KEY, number(1.0), s, F64), 1.0, 1.0),
    "truncated": (lambda s: k.truncated_normal(KEY, number(-9.0), number(9.0), s, F64), 0.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_moments(name):
    draw, mean, variance = CASES[name]
    x = draw((4000,)).numpy()
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / 4000)
    assert abs(x.var() - variance) < 0.25 * variance


def test_vectors():
    matrices = k.orthogonal(KEY, 4, (3,), F64)
    assert dt.allclose(matrices @ matrices.mT, dt.eye(4, dtype=dt.float64).expand(3, 4, 4))
    assert k.orthogonal(KEY, 2, (), F64, 5).shape == (2, 5)
    inside = k.ball(KEY, 3, number(2.0), (100,), F64)
    assert float((inside * inside).sum(-1).max()) <= 1
    simplex = k.dirichlet(KEY, number([1.0, 2.0]), (50,), F64)
    assert dt.allclose(simplex.sum(-1), dt.ones(50, dtype=dt.float64))
    cov = number([[2.0, 0.6], [0.6, 1.0]])
    for method in ("cholesky", "eigh", "svd"):
        x = k.multivariate_normal(KEY, number([1.0, 2.0]), cov, (4000,), F64, method).numpy()
        assert np.abs(np.cov(x.T) - cov.numpy()).max() < 0.2


def test_gradients_are_the_formula_s():
    scale = number(2.0).requires_grad_()
    x = k.rayleigh(KEY, scale, (5,), F64)
    x.sum().backward()
    assert math.isclose(float(scale.grad), float(x.detach().sum()) / 2)


def test_gradients_of_gamma_are_implicit():
    a = number([0.7, 3.0])
    for log in (False, True):
        got = dt.func.grad(lambda a, log=log: k.gamma(KEY, a, (2,), F64, log).sum())(a)
        assert bool(dt.isfinite(got).all()) and float(got.min()) > 0


def test_derivative_of_gamma_keeps_the_distribution():
    # d E[x] / da = 1
    a = number(1.7).requires_grad_()
    k.gamma(KEY, a, (2000,), F64).mean().backward()
    assert abs(float(a.grad) - 1) < 0.1


def test_halves_and_complex():
    x = k.uniform(KEY, (1000,), dt.bfloat16.np)
    assert x.dtype is dt.bfloat16 and float(x.float().max()) < 1
    z = k.normal(KEY, (2000,), np.dtype(np.complex64))
    assert abs(float((z.abs() ** 2).mean()) - 1) < 0.1
