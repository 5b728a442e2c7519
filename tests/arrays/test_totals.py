"""Reductions that keep types, of integers and of nothing; running ones from either end."""

from __future__ import annotations

import math

import pytest

import disttrain as dt
from disttrain.arrays import totals


def test_types_are_kept():
    x = dt.tensor([[7, -3], [2, 1]], dtype=dt.int32)
    assert totals.total(x).dtype is dt.int32
    assert totals.mean(dt.tensor([-7, 2])).item() == -2
    assert totals.product(x, 0, True).tolist() == [[14, -3]]
    assert totals.some(dt.tensor([[True, False], [False, False]]), 1).tolist() == [True, False]


def test_over_no_dimension():
    x = dt.tensor([1.0, 3.0])
    assert totals.mean(x, []).tolist() == [1.0, 3.0]
    assert totals.deviation(x).item() == 1.0
    assert totals.total(dt.tensor(3.0), []).item() == 3.0
    with pytest.raises(ValueError, match="Invalid reduction dimension"):
        totals.total(x, 1)


def test_of_nothing():
    assert totals.greatest(dt.zeros(0)).item() == -math.inf
    assert totals.least(dt.zeros(0, 2, dtype=dt.int8), 0).tolist() == [127, 127]


def test_running_ones():
    x = dt.tensor([1, 2, 3])
    assert totals.cumsum(x, 0, True).tolist() == [0, 1, 3]
    assert totals.cumsum(x, 0, False, True).tolist() == [6, 5, 3]
    assert totals.cumprod(x, 0, True, True).tolist() == [6, 3, 1]


def test_places_and_counts():
    assert totals.argmax(dt.tensor([False, True]), None, dt.int32).item() == 1
    x = dt.tensor([0, 2, 2, 5])
    assert totals.counts(x, kind=dt.int64).tolist() == [1, 0, 2, 0, 0, 1]
    assert totals.counts(x, None, 0, 3, dt.int32, True).tolist() == [1, 0, 1]
    assert totals.counts(x, dt.tensor([0.5, 1.0, 2.0, 4.0])).tolist() == [0.5, 0, 3, 0, 0, 4]
