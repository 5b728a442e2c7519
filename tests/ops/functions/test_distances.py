"""Distances between rows: definitions, gradients at 0, many rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt

RNG = np.random.default_rng(0)
ORDERS = (0, 0.5, 1, 1.5, 2, 3, math.inf)


def size(x, p):
    if p == 0:
        return (x != 0).sum(-1)
    if p == math.inf:
        return np.abs(x).max(-1)
    return (np.abs(x) ** p).sum(-1) ** (1 / p)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("shapes", [((3, 4), (5, 4)), ((2, 3, 4), (5, 4)), ((30, 4), (3, 30, 4))])
def test_every_row_meets_every_row(shapes, p):
    a, b = (RNG.normal(size=s) for s in shapes)
    got = dt.cdist(dt.tensor(a), dt.tensor(b), p)
    np.testing.assert_allclose(got.numpy(), size(a[..., :, None, :] - b[..., None, :, :], p))


@pytest.mark.parametrize("p", ORDERS)
def test_pairs_of_rows_of_one_matrix(p):
    a = RNG.normal(size=(5, 3))
    first, second = np.triu_indices(5, 1)
    got = dt.pdist(dt.tensor(a), p)
    np.testing.assert_allclose(got.numpy(), size(a[first] - a[second], p))


@pytest.mark.parametrize("p", ORDERS)
def test_the_gradient_at_no_distance_is_finite(p):
    x = dt.ones(3, 2, dtype=dt.float64, requires_grad=True)
    dt.cdist(x, dt.ones(30, 2, dtype=dt.float64), p).sum().backward()
    assert (x.grad == 0).all()


def test_the_gradient_is_that_of_differences():
    x = dt.tensor(RNG.normal(size=(3, 2)), requires_grad=True)
    y = dt.tensor(RNG.normal(size=(40, 2)), requires_grad=True)
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        assert dt.autograd.gradcheck(lambda a, b: dt.cdist(a, b, compute_mode=mode), (x, y))  # noqa: B023


@pytest.mark.parametrize(("call", "said"), [
    (lambda: dt.cdist(dt.ones(2, 3), dt.ones(2, 4)), "same number of columns"),
    (lambda: dt.cdist(dt.ones(3), dt.ones(2, 3)), "at least 2D"),
    (lambda: dt.cdist(dt.ones(2, 3), dt.ones(2, 3), -1), "non-negative p"),
    (lambda: dt.cdist(dt.ones(2, 3), dt.ones(2, 3), 2, "fast"), "not a valid value"),
    (lambda: dt.pdist(dt.ones(3)), "only supports 2D"),
    (lambda: dt.pdist(dt.ones(3, 2), -2), "non-negative p"),
])  # fmt: skip
def test_wrong_calls_say_what_is_wrong(call, said):
    with pytest.raises(RuntimeError, match=said):
        call()
