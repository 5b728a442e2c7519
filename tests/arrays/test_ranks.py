"""Elements by their order."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.arrays import ranks

X = dt.tensor([[2, 1, 2], [0, 5, 3]])


def test_orders():
    assert ranks.sort(X, 1, "descending").tolist() == [[2, 2, 1], [5, 3, 0]]
    assert ranks.sort(X, 0).tolist() == [[0, 1, 2], [2, 5, 3]]
    found = ranks.argsort(X, order="DESCENDING")
    assert found.dtype is dt.int32 and found.tolist() == [[0, 2, 1], [1, 2, 0]]
    places = ranks.searchsorted(dt.tensor([1, 3]), dt.tensor([1, 4]), "right", dt.int32)
    assert places.dtype is dt.int32 and places.tolist() == [1, 2]


def test_the_greatest():
    values, places = ranks.top_k(X, 2, dt.int32)
    assert values.tolist() == [[2, 2], [5, 3]] and places.tolist() == [[0, 2], [1, 2]]
    with pytest.raises(ValueError, match="Had 3, needed 4"):
        ranks.top_k(X, 4)
    assert ranks.in_top_k(dt.tensor([1, 2]), X, 2).tolist() == [False, True]
