"""Sums over memory: dimensions in its order, joined where neighbours are of one kind."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.device.folding import Folds, count, folds, restored, split_rows


@pytest.mark.parametrize(
    ("shape", "dims", "pattern", "sizes"),
    [
        ((2, 3), (0, 1), "R", (6,)),
        ((2, 3, 4), (2,), "KR", (6, 4)),
        ((2, 3, 4), (0,), "RK", (2, 12)),
        ((2, 3, 4), (0, 2), "RKR", (2, 3, 4)),
        ((2, 3), (), "KR", (6, 1)),
        ((1, 1), (0,), "R", (1,)),
    ],
)  # fmt: skip
def test_the_patterns(shape, dims, pattern, sizes):
    found = folds(shape, np.empty(shape).strides, dims)
    assert found is not None
    assert (found.pattern, found.sizes) == (pattern, sizes)


def test_the_order_is_that_of_memory():
    """A transposed matrix is summed over what lies apart there, and single dimensions lead."""
    assert folds((2, 1, 3), (8, 8, 16), (0,)) == Folds("KR", (1, 2, 0), (3, 2), (1, 2))


def test_other_patterns_go_another_way():
    assert folds((2, 3, 4, 5), np.empty((2, 3, 4, 5)).strides, (1, 3)) is None


@pytest.mark.parametrize("dim", [-1, 2])
def test_a_dimension_that_is_not_there_is_refused(dim):
    with pytest.raises(np.exceptions.AxisError):
        folds((2, 3), (24, 8), (dim,))


def test_few_long_rows_are_cut_and_many_or_short_ones_are_not():
    assert split_rows(1, 1 << 20) == 256
    assert split_rows(512, 1 << 20) == 1
    assert split_rows(1, 8191) == 1
    assert split_rows(1, 8192) == 2


def test_the_way_back_to_ascending_order():
    kept = (2, 0, 1)
    order = restored(kept)
    assert order is not None and [kept[i] for i in order] == [0, 1, 2]
    assert restored((0, 3)) is None


def test_elements_of_one_result():
    assert (count((2, 3, 4), (0, 2)), count((2, 3), ())) == (8, 1)
