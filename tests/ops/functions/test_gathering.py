"""Selecting, filling and counting by places."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

X = dt.arange(12.0).reshape(3, 4)
ROWS = dt.tensor([2, 0, 2])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_rows_by_number(dim):
    index = dt.tensor([1, 0])
    assert dt.index_select(X, dim, index).tolist() == np.take(X.numpy(), [1, 0], dim).tolist()
    filled = X.index_fill(dim, index, -1.0)
    assert (filled == -1).sum() == 2 * X.numel() // X.shape[dim]


def test_adding_and_copying_rows():
    src = dt.ones(3, 4)
    assert X.index_add(0, ROWS, src, alpha=2)[:, 0].tolist() == [2.0, 4.0, 12.0]
    assert X.index_copy(0, dt.tensor([1]), src[:1] * 9)[1].tolist() == [9.0] * 4
    base = dt.zeros(3, 4).scatter_add(0, dt.zeros(2, 4, dtype=dt.int64), dt.ones(2, 4))
    assert base[0].tolist() == [2.0] * 4 and base[1:].sum() == 0
    mean = X.scatter_reduce(0, dt.zeros(1, 4, dtype=dt.int64), dt.full((1, 4), 2.0), "mean")
    assert mean[0].tolist() == ((X[0] + 2) / 2).tolist()


def test_places_in_the_whole():
    assert X.take(dt.tensor([[0, 11], [5, -1]])).tolist() == [[0.0, 11.0], [5.0, 11.0]]
    assert dt.take_along_dim(X, X.argsort(1, descending=True), 1).tolist() == X.flip(1).tolist()
    assert dt.argwhere(X > 9).tolist() == [[2, 2], [2, 3]] == dt.nonzero(X > 9).tolist()
    assert [p.tolist() for p in dt.nonzero(X > 9, as_tuple=True)] == [[2, 2], [2, 3]]


def test_masks():
    mask = X % 2 == 0
    assert X.masked_select(mask).tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert X.masked_fill(mask, 0).sum() == X[~mask].sum()
    put = X.masked_scatter(mask, -dt.arange(1.0, 7.0))
    assert put[mask].tolist() == [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]
    assert put[~mask].tolist() == X[~mask].tolist()


@pytest.mark.parametrize("right", [False, True])
def test_searching_in_order(right):
    edges = dt.tensor([1.0, 3.0, 3.0, 7.0])
    values = dt.tensor([[0.0, 3.0], [7.0, 8.0]])
    side = "right" if right else "left"
    wanted = np.searchsorted(edges.numpy(), values.numpy(), side).tolist()
    assert dt.searchsorted(edges, values, right=right).tolist() == wanted
    assert dt.bucketize(values, edges, right=right).tolist() == wanted


def test_places_outside_are_refused():
    for call in (
        lambda: X.index_select(0, dt.tensor([3])),
        lambda: X.gather(1, dt.tensor([[4]])),
        lambda: X.take(dt.tensor([12])),
    ):
        with pytest.raises((IndexError, RuntimeError), match=r"out of|3|4|12"):
            call()


@pytest.mark.parametrize("short", ["max", "min"])
def test_extremes_have_short_names(short):
    index, src = dt.tensor([0, 1, 0]), dt.tensor([5.0, 6.0, 7.0])
    found = [dt.scatter_reduce(dt.zeros(3), 0, index, src, f"{a}{short}", include_self=False)
             for a in ("", "a")]  # fmt: skip
    assert dt.equal(*found)
