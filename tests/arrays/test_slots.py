"""Rows of places, and segments."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.arrays import slots


def test_places_are_read_and_written():
    x = dt.arange(6.0).reshape(2, 3)
    at = dt.tensor([[0, 1], [1, 2]])
    assert slots.gather_nd(x, at).tolist() == [1.0, 5.0]
    assert slots.gather_nd(x, dt.tensor([[2], [0]]), 1).tolist() == [2.0, 3.0]
    assert slots.put_nd(x, at, dt.tensor([9.0, 8.0])).tolist() == [[0.0, 9.0, 2.0], [3.0, 4.0, 8.0]]
    rows = dt.tensor([[0], [0]])
    assert slots.put_nd(x, rows, dt.ones(2, 3), "sub").tolist()[0] == [-2.0, -1.0, 0.0]
    assert slots.put_nd(x, rows, dt.ones(2, 3), "amax").tolist()[0] == [1.0, 1.0, 2.0]
    assert slots.scatter_nd(rows, dt.ones(2, 3), [2, 3]).tolist() == [[2.0] * 3, [0.0] * 3]
    with pytest.raises(dt.errors.DimError, match="do not index"):
        slots.put_nd(x, dt.tensor([[2]]), dt.ones(1, 3))


def test_rows_are_taken_along_any_dimension():
    x = dt.arange(12).reshape(2, 3, 2)
    at = dt.tensor([[0, 2], [1, 1]])
    assert slots.take_rows(x, at, 1).shape == (2, 2, 2, 2)
    found = slots.take_rows(x, at, 1, 1)
    assert found.tolist() == [[[0, 1], [4, 5]], [[8, 9], [8, 9]]]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [("sum", [3.0, 0.0, 3.0]), ("mean", [1.5, 0.0, 3.0]), ("prod", [2.0, 1.0, 3.0]),
     ("amax", [2.0, 0.0, 3.0]), ("amin", [1.0, 0.0, 3.0])],
)  # fmt: skip
def test_segments(how, wanted):
    found = slots.segment_reduce(dt.tensor([1.0, 2.0, 3.0]), dt.tensor([0, 0, 2]), how=how)
    assert found.tolist() == wanted


def test_segments_of_a_count_and_their_gradient():
    rows = dt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    found = slots.segment_reduce(rows, dt.tensor([1, -1, 1]), 3)
    assert found.tolist() == [0.0, 4.0, 0.0]
    assert dt.autograd.grad(found.sum(), rows)[0].tolist() == [1.0, 0.0, 1.0]


def test_different_numbers_in_order():
    values, places = slots.unique_in_order(dt.tensor([3, 1, 3, 2]))
    assert values.tolist() == [3, 1, 2]
    assert places.tolist() == [0, 1, 0, 2]


def test_pairs_are_counted():
    found = slots.confusion_matrix(dt.tensor([0, 1, 1]), dt.tensor([0, 0, 1]), None, dt.ones(3))
    assert found.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    found = slots.confusion_matrix(dt.tensor([1]), dt.tensor([0]), 3, kind=dt.int32)
    assert found.dtype is dt.int32 and found.sum().item() == found[1, 0].item() == 1


def test_arrays_that_are_written_one_by_one():
    empty = dt.zeros(2, 0)
    one = slots.put_item(empty, 1, dt.tensor([1.0, 2.0]))
    assert one.tolist() == [[0.0, 0.0], [1.0, 2.0]]
    assert slots.item(one, dt.tensor(1)).tolist() == [1.0, 2.0]
    more = slots.put_item(one, 3, dt.tensor([5.0, 6.0]), grows=True)
    assert more.tolist() == [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [5.0, 6.0]]
    with pytest.raises(dt.errors.DimError, match="index 2 of an array of size 2"):
        slots.put_item(one, 2, dt.tensor([1.0, 2.0]))
    with pytest.raises(dt.errors.DimError, match="index -1 of an array of size 2"):
        slots.item(one, -1)
    with pytest.raises(dt.errors.DimError, match=r"Shape \[3\] of an element"):
        slots.put_item(one, 0, dt.ones(3))
