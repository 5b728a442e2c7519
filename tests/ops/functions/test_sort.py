"""Sorting, selecting, counting: against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import wrap
from disttrain.core.types import dtypes
from disttrain.errors import DTypeError, ShapeError
from disttrain.ops.functions.sort import (
    argsort,
    bincount,
    histc,
    kthvalue,
    median,
    msort,
    quantile,
    sort,
    topk,
    unique,
    unique_consecutive,
)
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
X = RNG.permutation(60.0 + np.arange(60)).reshape(3, 4, 5)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dim, descending):
    values, places = sort(wrap(X), dim, descending)
    want = -np.sort(-X, dim) if descending else np.sort(X, dim)
    np.testing.assert_array_equal(values.array, want)
    np.testing.assert_array_equal(np.take_along_axis(X, places.array, dim), want)
    np.testing.assert_array_equal(argsort(wrap(X), dim, descending).array, places.array)


def test_equal_elements_keep_their_order_and_nan_is_the_largest():
    x = wrap(np.array([2.0, 1.0, 2.0, np.nan, 1.0]))
    assert argsort(x).tolist() == [1, 4, 0, 2, 3]
    assert argsort(x, descending=True).tolist() == [3, 0, 2, 1, 4]
    assert sort(wrap(np.array(3.0))).values.item() == 3
    assert sort(wrap(np.array([2, 1], dtypes.bfloat16.np))).values.tolist() == [1, 2]
    np.testing.assert_array_equal(msort(wrap(X)).array, np.sort(X, 0))


@pytest.mark.parametrize("n", [7, 200])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_topk(n, largest, dim):
    x = RNG.permutation(np.arange(3.0 * n)).reshape(3, n)
    x = x if dim else x.T
    values, places = topk(wrap(x), 3, dim, largest)
    want = (-np.sort(-x, dim) if largest else np.sort(x, dim)).take(range(3), dim)
    np.testing.assert_array_equal(values.array, want)
    np.testing.assert_array_equal(np.take_along_axis(x, places.array, dim), want)
    with pytest.raises(ShapeError, match="k=300"):
        topk(wrap(x), 300, dim)


def test_kthvalue_median_quantile():
    values, places = kthvalue(wrap(X), 2, 1)
    np.testing.assert_array_equal(values.array, np.sort(X, 1)[:, 1])
    assert places.array.shape == (3, 5)
    assert kthvalue(wrap(X), 2, 1, keepdim=True).values.array.shape == (3, 1, 5)
    np.testing.assert_array_equal(median(wrap(X), 1).values.array, np.sort(X, 1)[:, 1])
    assert median(wrap(np.array([3.0, 1, 2]))).item() == 2
    for q in (0.0, 0.3, 1.0):
        got = quantile(wrap(X), q, 1).array
        np.testing.assert_allclose(got, np.quantile(X, q, 1))
    with pytest.raises(ShapeError, match=r"1\.\.4"):
        kthvalue(wrap(X), 5, 1)


def test_counting():
    x = np.array([[3, 1, 3], [1, 7, 3]])
    values, inverse, counts = unique(wrap(x), return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 3, 7] and counts.tolist() == [2, 3, 1]
    np.testing.assert_array_equal(values.array[inverse.array], x)
    assert unique(wrap(np.array([[1, 2], [1, 2], [0, 5]])), dim=0).tolist() == [[0, 5], [1, 2]]
    run = wrap(np.array([1, 1, 2, 2, 2, 1]))
    got = unique_consecutive(run, return_inverse=True, return_counts=True)
    assert [t.tolist() for t in got] == [[1, 2, 1], [0, 0, 1, 1, 1, 2], [2, 3, 1]]
    assert bincount(run, minlength=5).tolist() == [0, 3, 3, 0, 0]
    weights = wrap(np.arange(6, dtype="f4"))
    assert bincount(run, weights).tolist() == [0, 6, 9]
    assert histc(wrap(np.array([1.0, 2, 1])), 4, 0, 3).tolist() == [0, 2, 1, 0]
    with pytest.raises(DTypeError, match="integers"):
        bincount(weights)
    with pytest.raises(ShapeError, match="negative"):
        bincount(wrap(np.array([-1])))


def test_gradients_of_distinct_elements_go_to_the_first_of_equals():
    for fn, want in ((unique, [100, 1, 0, 10]), (unique_consecutive, [1, 10, 0, 100])):
        x = wrap(np.array([3.0, 1.0, 1.0 if fn is unique_consecutive else 3.0, 2.0]))
        x.requires_grad_()
        (fn(x) * wrap(np.array([1.0, 10.0, 100.0]))).sum().backward()
        assert x.grad.tolist() == want
    x = wrap(np.array([[3.0, 1.0], [3.0, 1.0], [2.0, 2.0]])).requires_grad_()
    unique(x, dim=0).sum().backward()
    assert x.grad.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_gradients():
    check_gradients(lambda x: sort(x, 1)[0] ** 2, X[0])
    check_gradients(lambda x: topk(x, 2)[0] ** 2, X[0])
    check_gradients(lambda x: median(x, 0)[0] ** 2, X[0])
    check_gradients(lambda x: quantile(x, 0.3), X[0], second=False)


def test_the_gradient_of_the_median_is_shared_by_equal_elements():
    x = wrap(np.array([3.0, 1.0, 1.0, 0.0, 5.0])).requires_grad_()
    x.median().backward()
    assert x.grad.tolist() == [0, 0.5, 0.5, 0, 0]


def test_bounds_that_are_equal_have_no_gradient():
    x, low, high = (wrap(np.array([v])).requires_grad_() for v in (1.0, 3.0, 3.0))
    x.clamp(low, high).backward(wrap(np.ones(1)))
    assert [t.grad.tolist() for t in (x, low, high)] == [[0.0], [0.0], [0.0]]


@pytest.mark.parametrize(("q", "value"), [(0.5, 3.0), (1 / 6, 1.0), (5 / 6, 3.0), (0.4, 2.0)])
def test_the_nearest_place_of_a_quantile_is_the_even_one_of_two(q, value):
    x = dt.tensor([3.0, 1.0, 2.0, 7.0], dtype=dt.float64)
    assert dt.quantile(x, q, interpolation="nearest").item() == value


def test_quantiles_follow_their_shares():
    x = dt.tensor([3.0, 1.0, 2.0, 7.0], dtype=dt.float64).requires_grad_()
    q = dt.tensor([0.2, 0.5, 1.0], dtype=dt.float64).requires_grad_()
    out = dt.quantile(x, q)
    assert dt.allclose(out, dt.tensor([1.6, 2.5, 7.0], dtype=dt.float64))
    out.sum().backward()
    assert dt.allclose(q.grad, dt.tensor([3.0, 3.0, 0.0], dtype=dt.float64))
    assert dt.allclose(x.grad, dt.tensor([0.5, 0.4, 1.1, 1.0], dtype=dt.float64))
    ends = dt.tensor([1.0, float("inf")])
    assert dt.quantile(ends, dt.tensor(0.5).requires_grad_()).item() == float("inf")
