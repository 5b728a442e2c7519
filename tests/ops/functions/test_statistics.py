"""What is common, in the middle, among others, between edges: against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import wrap
from disttrain.errors import ConfigError, DimError, DTypeError, ShapeError
from disttrain.func import vmap
from disttrain.ops.functions import statistics
from disttrain.ops.functions.sort import unique_consecutive

RNG = np.random.default_rng(0)
X = np.where(RNG.random((4, 7)) < 0.3, np.nan, RNG.normal(size=(4, 7)))


@pytest.mark.parametrize("dim", [0, 1])
def test_what_leaves_nan_out(dim):
    np.testing.assert_allclose(statistics.nanmean(wrap(X), dim).array, np.nanmean(X, dim))
    want = np.nanquantile(X, 0.5, dim, method="lower")
    np.testing.assert_allclose(statistics.nanmedian(wrap(X), dim).values.array, want)
    for method in ("linear", "lower", "higher", "midpoint"):
        got = statistics.nanquantile(wrap(X), 0.3, dim, interpolation=method)
        np.testing.assert_allclose(got.array, np.nanquantile(X, 0.3, dim, method=method))


def test_of_all_elements():
    assert statistics.nanmedian(wrap(np.array([3.0, np.nan, 1.0]))).item() == 1
    assert np.isnan(statistics.nanmedian(wrap(np.array([np.nan]))).item())
    several = statistics.nanquantile(wrap(X), wrap(np.array([0.1, 0.9])))
    np.testing.assert_allclose(several.array, np.nanquantile(X, [0.1, 0.9]))
    with pytest.raises(DTypeError, match="floating point"):
        statistics.nanmean(wrap(np.arange(3)))


def test_equal_medians_share_the_gradient():
    x = wrap(np.array([1.0, 1.0, np.nan, 3.0])).requires_grad_()
    statistics.nanmedian(x).backward()
    assert x.grad.tolist() == [0.5, 0.5, 0, 0]


def test_mode():
    values, places = statistics.mode(wrap(np.array([[2, 1, 2, 1, 0], [3, 3, 4, 5, 3]])))
    assert (values.tolist(), places.tolist()) == ([1, 3], [3, 4])
    assert statistics.mode(wrap(np.zeros((2, 3))), 0, True).values.shape == (1, 3)
    with pytest.raises(DimError, match="non-zero size"):
        statistics.mode(wrap(np.zeros((2, 0))))


def test_aminmax_and_isin():
    low, high = statistics.aminmax(wrap(np.arange(6.0).reshape(2, 3)), dim=1)
    assert (low.tolist(), high.tolist()) == ([0, 3], [2, 5])
    assert statistics.aminmax(wrap(np.array([4, 2]))).min.item() == 2
    x = wrap(np.array([1, 2, 3]))
    assert statistics.isin(x, wrap(np.array([2]))).tolist() == [False, True, False]
    assert statistics.isin(x, 2, invert=True).tolist() == [True, False, True]


@pytest.mark.parametrize("density", [False, True])
def test_histograms(density):
    x, w = RNG.normal(size=50), RNG.random(50)
    counts, edges = statistics.histogram(wrap(x), 5, weight=wrap(w), density=density)
    want = np.histogram(x, 5, weights=w, density=density)
    np.testing.assert_allclose(counts.array, want[0])
    np.testing.assert_allclose(edges.array, want[1])
    points = RNG.normal(size=(50, 2))
    found = statistics.histogramdd(wrap(points), [3, 4], density=density)
    np.testing.assert_allclose(found.hist.array, np.histogramdd(points, [3, 4], density=density)[0])
    assert [len(e) for e in found.bin_edges] == [4, 5]


@pytest.mark.parametrize(
    "edges", [np.ones((2, 2)), np.array([]), np.array([1.0, 0.0]), np.array([0, 1])]
)
def test_edges_of_a_histogram_are_an_increasing_row_of_the_input_s_type(edges):
    with pytest.raises((ShapeError, ConfigError), match="histogram: bins"):
        statistics.histogram(wrap(np.ones(3)), wrap(edges))


def test_runs_of_equal_slices():
    x = wrap(np.array([[1, 1], [1, 1], [0, 2]]))
    rows, inverse, counts = unique_consecutive(x, True, True, 0)
    assert rows.tolist() == [[1, 1], [0, 2]]
    assert (inverse.tolist(), counts.tolist()) == ([0, 0, 1], [2, 1])


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_modes_of_examples_are_those_of_each(dim, keepdim):
    x = dt.tensor(
        [[[2.0, 1.0, 2.0], [float("nan"), 0.0, 1.0]], [[1.0, 1.0, 0.0], [float("nan")] * 3]]
    )
    values, places = vmap(lambda a: a.mode(dim, keepdim))(x)
    wanted = x.mode(1 if dim == 0 else -1, keepdim)
    assert np.array_equal(values.numpy(), wanted[0].numpy(), equal_nan=True)
    assert places.tolist() == wanted[1].tolist()


@pytest.mark.parametrize("find", [dt.min, dt.max, dt.median, dt.nanmedian])
def test_nan_share_the_gradient_of_a_nan(find):
    x = dt.tensor([float("nan")] * 4, requires_grad=True)
    find(x).backward()
    assert x.grad.tolist() == [0.25] * 4
