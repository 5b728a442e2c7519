"""Functions of elements: what they add to the primitives."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt

X, Y = dt.tensor([1.0, -2.5, 4.0]), dt.tensor([2.0, 0.5, -1.0])


def test_sums_with_a_factor():
    assert dt.add(X, Y, alpha=2).tolist() == (X + 2 * Y).tolist()
    assert dt.sub(X, Y, alpha=0.5).tolist() == (X - 0.5 * Y).tolist()
    whole = dt.tensor([1, 2])
    assert dt.add(whole, whole, alpha=3).tolist() == [4, 8]
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        dt.add(whole, whole, alpha=0.5)


def test_quotients_are_rounded_as_asked():
    a, b = dt.tensor([7, -7]), dt.tensor([2, 2])
    assert dt.div(a, b).tolist() == [3.5, -3.5]
    assert dt.div(a, b, rounding_mode="floor").tolist() == [3, -4]
    assert dt.div(a, b, rounding_mode="trunc").tolist() == [3, -3]
    with pytest.raises((RuntimeError, ValueError), match="rounding_mode"):
        dt.div(a, b, rounding_mode="up")


def test_limits_by_numbers_and_by_tensors():
    assert dt.clamp(X, -1, 2).tolist() == [1.0, -1.0, 2.0]
    assert dt.clamp(X, min=Y).tolist() == [2.0, 0.5, 4.0]
    assert dt.clamp(X, min=3, max=0).tolist() == [0.0] * 3  # the upper one counts
    assert dt.clamp_min(X, 0).tolist() == X.relu().tolist()
    assert dt.clamp_max(X, 0).tolist() == [0.0, -2.5, 0.0]
    with pytest.raises((RuntimeError, ValueError), match="at least one"):
        dt.clamp(X)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.7, 1.0])
def test_interpolation_is_exact_at_both_ends(weight):
    found = dt.lerp(X, Y, weight)
    np.testing.assert_allclose(
        found.numpy(), X.numpy() + weight * (Y.numpy() - X.numpy()), rtol=1e-6
    )
    if weight in (0.0, 1.0):
        assert found.tolist() == (Y if weight else X).tolist()
    assert dt.allclose(dt.lerp(X, Y, dt.full((3,), weight)), found)


def test_products_and_quotients_that_are_added():
    assert dt.addcmul(X, X, Y, value=2).tolist() == (X + 2 * X * Y).tolist()
    assert dt.addcdiv(X, X, Y, value=-1).tolist() == (X - X / Y).tolist()


def test_rounding_goes_to_even_numbers():
    x = dt.tensor([0.5, 1.5, 2.5, -0.5, 1.25, 1.35])
    assert dt.round(x).tolist() == [0.0, 2.0, 2.0, -0.0, 1.0, 1.0]
    assert dt.round(x, decimals=1).tolist() == pytest.approx([0.5, 1.5, 2.5, -0.5, 1.2, 1.4])


def test_numbers_that_are_none_are_replaced():
    x = dt.tensor([math.nan, math.inf, -math.inf, 1.0])
    big = np.finfo(np.float32).max.item()
    assert dt.nan_to_num(x).tolist() == [0.0, big, -big, 1.0]
    assert dt.nan_to_num(x, nan=2.0, posinf=3.0, neginf=4.0).tolist() == [2.0, 3.0, 4.0, 1.0]


def test_zero_times_the_logarithm_of_zero_is_zero():
    x = dt.tensor([0.0, 0.0, 2.0, math.nan])
    found = dt.xlogy(x, dt.tensor([0.0, math.nan, math.e, 1.0]))
    assert found[0] == 0 and found[1].isnan() and found[2].item() == pytest.approx(2.0)


def test_choices_of_numbers_and_tensors():
    assert dt.where(X > 0, X, 0.0).tolist() == X.relu().tolist()
    assert dt.where(X > 0, 1, -1).tolist() == [1, -1, 1]
    assert [i.tolist() for i in dt.where(X > 0)] == [[0, 2]]
