"""Tensors taken apart."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

X = dt.arange(14.0).reshape(7, 2)


def lengths(parts, dim=0):
    return [p.shape[dim] for p in parts]


def test_pieces_of_a_size_and_numbers_of_pieces():
    assert lengths(X.split(3)) == [3, 3, 1] and lengths(X.split([1, 4, 2])) == [1, 4, 2]
    assert lengths(X.chunk(3)) == [3, 3, 1] and lengths(X.chunk(4)) == [2, 2, 2, 1]
    assert lengths(dt.tensor_split(X, 3)) == [3, 2, 2]
    assert lengths(dt.tensor_split(X, (2, 5))) == [2, 3, 2]
    for parts in (X.split(3), X.chunk(4), dt.tensor_split(X, 3)):
        assert dt.cat(parts).tolist() == X.tolist()


def test_parts_are_views():
    x = X.clone()
    x.split(3)[1].zero_()
    assert x[3:6].sum() == 0 and x[6].tolist() == X[6].tolist()
    x.unbind(1)[0].fill_(-1)
    assert x[:, 0].tolist() == [-1.0] * 7


def test_single_places_and_ranges():
    assert X.select(0, -1).tolist() == X[6].tolist()
    assert X.narrow(0, 2, 3).tolist() == X[2:5].tolist()
    assert [r.tolist() for r in X.unbind()] == X.tolist()


def test_gradients_come_back_in_place():
    x = X.clone().requires_grad_()
    first, *_, last = x.split(2)
    (first.sum() * 2 + last.sum()).backward()
    assert x.grad[:, 0].tolist() == [2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "call",
    [lambda: X.split([1, 2]), lambda: X.split(-1), lambda: X.chunk(0), lambda: X.narrow(0, 5, 3)],
)
def test_what_does_not_add_up_is_refused(call):
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        call()
    assert np.prod(X.shape) == 14


def test_a_number_of_parts_may_be_a_tensor():
    x = dt.arange(7)
    parts = dt.tensor_split(x, dt.tensor(3))
    assert [p.tolist() for p in parts] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [len(p) for p in x.tensor_split(dt.tensor([2, 5]))] == [2, 3, 2]
