"""Quotients, powers and parts of numbers."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.arrays import ratios

NAN = float("nan")


def test_what_is_not_defined():
    x, y = dt.tensor([0.0, 2.0, NAN]), dt.tensor([0.0, 4.0, 0.0])
    assert ratios.divide_no_nan(x, y).tolist() == [0.0, 0.5, 0.0]
    whole = ratios.divide_no_nan(dt.tensor([1, 2]), dt.tensor([2, 0]))
    assert whole.tolist() == [0.5, 0.0] and whole.dtype is dt.float64
    assert ratios.multiply_no_nan(x, y).tolist() == [0.0, 8.0, 0.0]
    assert ratios.xdivy(x[:2], y[:2]).tolist() == [0.0, 0.5]
    with pytest.raises(ValueError, match="negative integer powers"):
        ratios.power(dt.tensor(2), dt.tensor(-1))
    assert ratios.power(dt.tensor(2), dt.tensor(3)).item() == 8
    g = dt.tensor([0.0, 2.0], requires_grad=True)
    ratios.divide_no_nan(dt.ones(2), g).sum().backward()
    assert g.grad.tolist() == [0.0, -0.25]


def test_whole_numbers():
    assert ratios.truncatediv(dt.tensor(-7), dt.tensor(2)).item() == -3
    assert ratios.round(dt.tensor([1.5, -0.4])).tolist() == [2.0, 0.0]
    assert ratios.round(dt.tensor(3)).item() == 3
    assert ratios.invert_permutation(dt.tensor([2, 0, 1])).tolist() == [1, 2, 0]
    assert ratios.zero_fraction(dt.tensor([0, 1, 0, 2])).item() == 0.5


def test_parts():
    z = dt.tensor([1 + 2j])
    assert ratios.real(z).tolist() == [1.0] and ratios.imag(z).tolist() == [2.0]
    assert ratios.conj(z).tolist() == [1 - 2j]
    x = dt.tensor([3.5, -3.5])
    assert ratios.real(x) is x and ratios.imag(x).tolist() == [0.0, 0.0]
    assert ratios.converted(x, dt.int32).tolist() == [3, -3]
    assert ratios.converted(z, dt.float32).tolist() == [1.0]
    assert ratios.converted(x, dt.complex64).dtype is dt.complex64


def test_bounds():
    low, high = dt.tensor(0.0), dt.tensor(1.0)
    assert ratios.clip_by_value(dt.tensor([-1.0, 2.0]), low, high).tolist() == [0.0, 1.0]
    assert ratios.squared_difference(low, high).item() == 1.0
