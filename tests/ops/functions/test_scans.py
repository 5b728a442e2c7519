"""Running extremes, differences, integrals and covariances: against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import wrap
from disttrain.errors import DTypeError, ShapeError
from disttrain.ops.functions import scans
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 4))


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes(name, dim):
    values, places = getattr(scans, name)(wrap(X), dim)
    want = (np.maximum if name == "cummax" else np.minimum).accumulate(X, dim)
    np.testing.assert_array_equal(values.array, want)
    np.testing.assert_array_equal(np.take_along_axis(X, places.array, dim), want)
    check_gradients(lambda a: getattr(scans, name)(a, dim).values, X)


def test_the_last_of_equal_extremes_counts_and_nan_stays():
    assert scans.cummax(wrap(np.array([1.0, 1.0, 0.0, np.nan, 2.0])), 0).indices.tolist() == [
        0, 1, 1, 3, 3,
    ]  # fmt: skip
    assert scans.cummin(wrap(np.array([1, 1, 2, 0])), 0).indices.tolist() == [0, 1, 1, 3]
    assert scans.cummax(wrap(np.array(np.nan)), 0).indices.item() == 0


def test_logcumsumexp():
    np.testing.assert_allclose(
        scans.logcumsumexp(wrap(X), 1).array, np.logaddexp.accumulate(X, 1), rtol=1e-12
    )
    check_gradients(lambda a: scans.logcumsumexp(a, 1), X)


def test_logcumsumexp_of_complex_numbers():
    z = X + 1j * RNG.normal(size=X.shape) * 3
    with np.errstate(all="ignore"):
        want = np.cumsum(np.exp(z), 1)
    np.testing.assert_allclose(np.exp(scans.logcumsumexp(wrap(z), 1).array), want, rtol=1e-12)
    large = scans.logcumsumexp(wrap(np.array([1000 + 1j, 1000 + 1j, -1000])), 0).array
    np.testing.assert_allclose(large, 1000 + np.log([1, 2, 2]) + 1j)
    ends = wrap(np.array([-np.inf, -np.inf, 1j, np.inf, np.nan]))
    found = scans.logcumsumexp(ends, 0).array
    np.testing.assert_array_equal(found.real, [-np.inf, -np.inf, 0, np.inf, np.nan])
    check_gradients(lambda a: scans.logcumsumexp(a * (1 + 2j), 1).real, X)


def test_one_complex_number_is_its_own_extreme():
    assert scans.cummax(wrap(np.array(1 + 1j)), 0).values.item() == 1 + 1j
    with pytest.raises(DTypeError, match="complex"):
        scans.cummin(wrap(np.array([1 + 1j])), 0)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_diff(n):
    np.testing.assert_allclose(scans.diff(wrap(X), n, 1).array, np.diff(X, n, 1))
    joined = scans.diff(wrap(X), prepend=wrap(X), append=wrap(np.array(1.0)))
    ends = np.concatenate([X, X, np.ones((3, 5, 1))], -1)
    np.testing.assert_allclose(joined.array, np.diff(ends))
    with pytest.raises(ShapeError, match="at least one-dimensional"):
        scans.diff(wrap(np.array(1.0)), n)


def test_integrals():
    x = np.sort(RNG.normal(size=5))
    want = np.trapezoid(X, x, axis=1)
    np.testing.assert_allclose(scans.trapezoid(wrap(X), wrap(x), dim=1).array, want)
    np.testing.assert_allclose(scans.trapz(wrap(X), dx=0.5).array, np.trapezoid(X, dx=0.5))
    running = scans.cumulative_trapezoid(wrap(X), wrap(x), dim=1).array
    np.testing.assert_allclose(running[:, -1], want)
    with pytest.raises(DTypeError, match="bool is not supported"):
        scans.trapezoid(wrap(np.array([True, False])))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("spacing", [0.5, np.array([0.0, 0.5, 2.0, 2.5, 4.0])])
def test_gradient(order, spacing):
    want = np.gradient(X, spacing, axis=1, edge_order=order)
    given = [wrap(spacing)] if isinstance(spacing, np.ndarray) else spacing
    (got,) = scans.gradient(wrap(X), spacing=given, dim=1, edge_order=order)
    np.testing.assert_allclose(got.array, want)
    assert len(scans.gradient(wrap(X))) == 3


def test_covariances():
    rows, counts, shares = X[0], np.array([1, 2, 1, 3]), RNG.random(4)
    np.testing.assert_allclose(scans.cov(wrap(rows)).array, np.cov(rows))
    weighted = scans.cov(wrap(rows), fweights=wrap(counts), aweights=wrap(shares))
    np.testing.assert_allclose(
        weighted.array, np.cov(rows, fweights=counts, aweights=shares), rtol=1e-12
    )
    np.testing.assert_allclose(scans.corrcoef(wrap(rows)).array, np.corrcoef(rows))
    with pytest.raises(DTypeError, match="integral"):
        scans.cov(wrap(rows), fweights=wrap(shares))


def test_slopes_by_complex_and_wider_distances():
    x = dt.tensor([1.0, 4.0, 9.0])
    assert dt.gradient(x, spacing=1 + 1j)[0].dtype is dt.complex64
    far = dt.tensor([0.0, 1.0, 3.0], dtype=dt.float64)
    found = dt.gradient(x, spacing=(far,))[0]
    assert found.dtype is dt.float64
    np.testing.assert_allclose(found.numpy(), np.gradient(x.double().numpy(), far.numpy()))
    with pytest.raises(RuntimeError, match="expected spacing to be"):
        dt.gradient(dt.ones(3, 3), spacing=(2,))


def test_sums_of_complex_exponentials_begin_at_nothing():
    x = dt.tensor([complex(-math.inf, math.inf), complex(-math.inf, 1), 1 + 2j])
    assert dt.logcumsumexp(x, 0).tolist()[:2] == [complex(-math.inf, 0)] * 2
