"""Reductions by their names: dimensions, types, and what goes with them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt

A = np.random.default_rng(0).normal(size=(3, 4, 5))
X = dt.from_numpy(A)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod"])
@pytest.mark.parametrize("dim", [0, -1, 1])
def test_over_a_dimension(name, dim):
    found = getattr(dt, name)(X, dim, keepdim=True)
    np.testing.assert_allclose(found.numpy(), getattr(np, name)(A, axis=dim, keepdims=True))


def test_over_several_and_over_all():
    np.testing.assert_allclose(X.sum((0, 2)).numpy(), A.sum((0, 2)))
    np.testing.assert_allclose(X.mean().item(), A.mean())
    assert dt.sum(dt.ones(3, dtype=dt.int8)).dtype is dt.int64
    assert X.sum(0, dtype=dt.float32).dtype is dt.float32


@pytest.mark.parametrize("correction", [0, 1, 2])
def test_spread(correction):
    np.testing.assert_allclose(X.var(1, correction=correction).numpy(), A.var(1, ddof=correction))
    both = dt.std_mean(X, 1, correction=correction)
    np.testing.assert_allclose(both[0].numpy(), A.std(1, ddof=correction))
    np.testing.assert_allclose(both[1].numpy(), A.mean(1))
    for name in ("var", "std", "var_mean", "std_mean"):
        with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
            found = getattr(dt, name)(dt.ones(1))
        assert (found[0] if isinstance(found, tuple) else found).isnan()


def test_extremes_come_with_their_places():
    values, places = X.max(1)
    assert (values.numpy() == A.max(1)).all() and (places.numpy() == A.argmax(1)).all()
    assert X.min(2).indices.tolist() == A.argmin(2).tolist() and X.max().item() == A.max()
    assert dt.max(X, -X).tolist() == np.abs(A).tolist()
    assert X.argmax().item() == A.argmax() and X.argmin(0, keepdim=True).shape == (1, 4, 5)


def test_nan_counts_or_does_not():
    x = dt.tensor([1.0, math.nan, 3.0])
    assert x.sum().isnan() and x.max().isnan() and dt.nansum(x).item() == 4


def test_truth_and_counts():
    x = dt.tensor([[0, 1], [2, 3]])
    assert x.any(1).tolist() == [True, True] and x.all(0).tolist() == [False, True]
    assert dt.any(x.to(dt.uint8)).dtype is dt.uint8  # as PyTorch
    assert dt.count_nonzero(x).item() == 3 and dt.count_nonzero(x, 0).tolist() == [1, 2]


def test_running_sums():
    np.testing.assert_allclose(X.cumsum(1).numpy(), A.cumsum(1))
    np.testing.assert_allclose(X.cumprod(-1).numpy(), A.cumprod(-1))
    np.testing.assert_allclose(X.logsumexp((0, 1)).numpy(), np.log(np.exp(A).sum((0, 1))))


def test_what_has_no_extreme_is_refused():
    for call in (lambda: dt.ones(0).max(), lambda: dt.ones(0, 3).argmax(0), lambda: X.sum(3)):
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            call()


def test_the_gradient_of_an_extreme_goes_to_what_is_nan():
    for name in ("max", "min", "median"):
        x = dt.tensor([1.0, math.nan, 2.0, math.nan], requires_grad=True)
        getattr(dt, name)(x).backward()
        assert x.grad.tolist() == [0.0, 0.5, 0.0, 0.5]
    x = dt.tensor([1.0, math.nan, 2.0], requires_grad=True)
    dt.quantile(x, 0.5).backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_the_gradient_of_a_median_that_is_infinite():
    for least in (-math.inf, math.inf):
        x = dt.tensor([least, least, math.nan, 0.0], requires_grad=True)
        dt.nanmedian(x).backward()
        assert x.grad.tolist() == [0.5, 0.5, 0.0, 0.0]


def test_sums_in_another_type_go_to_an_output_of_that_type():
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        dt.sum(dt.ones(2), 0, dtype=dt.float64, out=dt.empty(()))
