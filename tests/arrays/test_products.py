"""Products, filters, polynomials and matrices beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays import filters, matrices, products, series

R = np.random.default_rng(0)
A, B, V, W = R.normal(size=(3, 4)), R.normal(size=(4, 2)), R.normal(size=5), R.normal(size=3)
S = R.normal(size=(3, 3))
P = S @ S.T + 3 * np.eye(3)


def same(got, want):
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-9)


def t(x):
    return dt.tensor(np.ascontiguousarray(x))


def test_products():
    same(products.dot(t(A), t(B)), A @ B)
    same(products.inner(t(A), t(A)), np.inner(A, A))
    same(products.tensordot(t(A), t(A), ([1], [1])), np.tensordot(A, A, ([1], [1])))
    same(products.cross(t(A[:, :3]), t(S)), np.cross(A[:, :3], S))
    same(products.kron(t(A), t(W)), np.kron(A, W))
    same(products.cov(t(A)), np.cov(A))
    same(products.corrcoef(t(A)), np.corrcoef(A))
    same(products.trapezoid(t(A), t(V[:4]), axis=1), np.trapezoid(A, V[:4], axis=1))
    same(products.diff(t(A), 2, 1), np.diff(A, 2, 1))
    same(products.gradient(t(V)), np.gradient(V))
    same(products.vander(t(W), 4), np.vander(W, 4))
    same(products.isclose(t(V), t(V + 1e-9)), np.isclose(V, V + 1e-9))
    assert bool(products.matmul(t(A > 0), t(B > 0)).dtype is dt.bool)
    with pytest.raises(TypeError, match="contracting dimensions"):
        products.matmul(t(A), t(A))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_filters(mode):
    for a, b in ((V, W), (W, V), (V[:2], W)):
        same(filters.convolved(t(a), t(b), mode), np.convolve(a, b, mode))
        same(filters.correlated(t(a), t(b), mode), np.correlate(a, b, mode))


def test_lines():
    points, values = np.sort(V), R.normal(size=5)
    x = np.linspace(-3, 3, 9)
    same(filters.interp(t(x), t(points), t(values)), np.interp(x, points, values))
    got = filters.interp(t(x), t(points), t(values), period=2.0)
    same(got, np.interp(x, points, values, period=2.0))
    same(filters.unwrap(t(V * 5)), np.unwrap(V * 5))
    line = filters.detrend(t(2 * np.arange(6.0) + 1))
    same(line, np.zeros(6))


def test_polynomials():
    for name in ("polyadd", "polysub", "polymul", "polyval"):
        same(getattr(series, name)(t(V), t(W)), getattr(np, name)(V, W))
    for one, two in zip(series.polydiv(t(V), t(W)), np.polydiv(V, W), strict=True):
        same(one[one.shape[0] - len(two) :], two)
    same(series.polyder(t(V)), np.polyder(V))
    same(series.polyfit(t(V), t(V**2), 2), np.polyfit(V, V**2, 2))
    same(series.poly(t(W)), np.poly(W))
    roots = np.sort_complex(series.roots(t(V)).numpy())
    np.testing.assert_allclose(roots, np.sort_complex(np.roots(V)))


def test_matrices():
    same(matrices.inv(t(P)), np.linalg.inv(P))
    same(matrices.solve(t(P), t(W)), np.linalg.solve(P, W))
    same(matrices.pinv(t(A)), np.linalg.pinv(A))
    for ord in (None, "fro", "nuc", 1, -1, 2, np.inf):
        same(matrices.norm(t(A), ord), np.linalg.norm(A, ord))
    for got, want in zip(matrices.lstsq(t(A.T), t(V[:4])), np.linalg.lstsq(A.T, V[:4])):
        same(got, want)
    factor, lower = matrices.cho_factor(t(P))
    same(matrices.cho_solve(factor, t(W), lower), np.linalg.solve(P, W))
    lu, pivots = matrices.lu_factor(t(P))
    for trans in (0, 1):
        want = np.linalg.solve(P.T if trans else P, W)
        same(matrices.lu_solve(lu, t(W), pivots, trans), want)
    same(matrices.toeplitz(t(W))[0], W)
    assert bool(dt.isnan(matrices.cholesky(t(-P))).any())
    assert matrices.hilbert(2)[1, 1].item() == pytest.approx(1 / 3)
