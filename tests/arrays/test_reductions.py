"""Reductions beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays import axes, reductions

X = np.random.default_rng(0).normal(size=(2, 3, 4))
NAN = np.where(X > 1, np.nan, X)
FLAGS = X > -1
PLAIN = "sum prod max min mean var std ptp any all".split()
NANS = "nansum nanprod nanmax nanmin nanmean nanvar nanstd".split()


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("name", [*PLAIN, *NANS, "median", "nanmedian"])
def test_axes(name, axis, keepdims):
    x = NAN if name.startswith("nan") else X
    got = getattr(reductions, name)(dt.tensor(x), axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(got.numpy(), getattr(np, name)(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all"])
def test_where(name):
    got = getattr(reductions, name)(dt.tensor(X), axis=1, where=dt.tensor(FLAGS))
    np.testing.assert_allclose(got.numpy(), getattr(np, name)(X, axis=1, where=FLAGS))


@pytest.mark.parametrize("name", ["max", "min", "sum", "prod"])
def test_initial_and_nothing(name):
    start = dt.tensor(0.5, dtype=dt.float64)
    for x in (X, X[:0]):
        got = getattr(reductions, name)(dt.tensor(x), axis=0, initial=start)
        np.testing.assert_allclose(got.numpy(), getattr(np, name)(x, axis=0, initial=0.5))


def test_an_extreme_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no identity"):
        reductions.max(dt.zeros(0, 3), axis=0)
    with pytest.raises(ValueError, match="specify 'initial'"):
        reductions.max(dt.zeros(3), where=dt.tensor([True, False, True]))


@pytest.mark.parametrize("method", reductions.METHODS)
def test_quantiles(method):
    q = np.array([0.1, 0.5, 0.8])
    got = reductions.quantile(dt.tensor(X), dt.tensor(q), axis=(0, 2), method=method, keepdims=True)
    want = np.quantile(X, q, axis=(0, 2), method=method, keepdims=True)
    np.testing.assert_allclose(got.numpy(), want)


@pytest.mark.parametrize("name", ["argmax", "argmin", "nanargmax", "nanargmin"])
def test_places_of_extremes(name):
    for axis in (None, 1):
        got = getattr(reductions, name)(dt.tensor(X), axis=axis)
        np.testing.assert_array_equal(got.numpy(), getattr(np, name)(X, axis=axis))


def test_running_and_average():
    x = dt.tensor(X)
    np.testing.assert_allclose(reductions.cumsum(x).numpy(), np.cumsum(X))
    np.testing.assert_allclose(reductions.cumprod(x, 1).numpy(), np.cumprod(X, 1))
    got = reductions.cumsum(x, 0, include_initial=True).numpy()
    np.testing.assert_allclose(got, np.cumulative_sum(X, axis=0, include_initial=True))
    np.testing.assert_allclose(
        reductions.nancumsum(dt.tensor(NAN), 2).numpy(), np.nancumsum(NAN, 2)
    )
    weights = np.arange(1.0, 4)
    got = reductions.average(x, 1, dt.tensor(weights))
    np.testing.assert_allclose(got.numpy(), np.average(X, 1, weights))
    np.testing.assert_allclose(reductions.trace(x[0]).numpy(), np.trace(X[0]))


def test_axes_are_checked():
    assert axes.axes_of(None, 2) == (0, 1) and axes.axes_of(-1, 2) == (1,)
    assert axes.shape_of(3) == (3,) and axes.shape_of([1, 2]) == (1, 2)
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        axes.axes_of(2, 2)
    with pytest.raises(ValueError, match="duplicate value"):
        axes.axes_of((0, -2), 2)
    with pytest.raises(TypeError, match="as an integer"):
        axes.axis_of(1.5, 2)
    with pytest.raises(TypeError, match="1D sequences"):
        axes.shape_of("ab")
