"""Order, places, sets, counts and bits beside NumPy's, also in sizes that are given."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func
from disttrain.arrays import bits, counts, order, selection, sets

I = np.array([3, 1, 1, 0, 7, 3])
J = np.array([1, 7, 9])
F = np.random.default_rng(0).normal(size=(3, 4))


def same(got, want):
    np.testing.assert_allclose(got.numpy(), want)


def test_order():
    same(order.sort(dt.tensor(F), 0), np.sort(F, 0))
    same(order.argsort(dt.tensor(I)), np.argsort(I, kind="stable"))
    same(order.lexsort([dt.tensor(I), dt.tensor(I[::-1].copy())]), np.lexsort([I, I[::-1]]))
    c = np.array([1 + 2j, 1 - 1j, 0])
    same(order.sort(dt.tensor(c)), np.sort(c))
    edges = np.array([0.0, 1, 3])
    for right in (False, True):
        for e in (edges, edges[::-1].copy()):
            same(order.digitize(dt.tensor(F), dt.tensor(e), right), np.digitize(F, e, right))


@pytest.mark.parametrize("size", [None, 3, 8])
def test_distinct(size):
    values, index, inverse, count = sets.unique(dt.tensor(I), True, True, True, size=size)
    want = np.unique(I, True, True, True)
    n = len(want[0]) if size is None else min(size, len(want[0]))
    for got, expected in zip((values, index, count), (want[0], want[1], want[3]), strict=True):
        same(got[:n], expected[:n])
        assert size is None or got.shape[0] == size
    if size is None:
        same(inverse, want[2])
    rows = np.array([[1, 2], [0, 1], [1, 2]])
    same(sets.unique(dt.tensor(rows), axis=0), np.unique(rows, axis=0))


def test_sets():
    a, b = dt.tensor(I), dt.tensor(J)
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d", "isin"):
        same(getattr(sets, name)(a, b), getattr(np, name)(I, J))
    got = sets.intersect1d(a, b, return_indices=True)
    for one, two in zip(got, np.intersect1d(I, J, return_indices=True), strict=True):
        same(one, two)
    assert sets.setdiff1d(a, b, size=4, fill_value=-1).tolist() == [0, 3, -1, -1]


def test_sizes_serve_batches():
    batch = dt.tensor([[1, 0, 2, 0], [0, 0, 0, 5]])
    found = func.vmap(lambda x: selection.nonzero(x, size=2, fill_value=9)[0])(batch)
    assert found.tolist() == [[0, 2], [3, 9]]


def test_places():
    x = dt.tensor(F)
    same(selection.argwhere(x > 0), np.argwhere(F > 0))
    same(selection.compress(dt.tensor([True, False, True]), x, 0), np.compress([1, 0, 1], F, 0))
    same(selection.delete(x, [0, -1], 1), np.delete(F, [0, -1], 1))
    same(selection.insert(x, [1, 3], dt.tensor(9.0), 1), np.insert(F, [1, 3], 9.0, 1))
    at = np.argsort(F, 1)
    same(selection.take_along_axis(x, dt.tensor(at), 1), np.take_along_axis(F, at, 1))
    same(selection.ediff1d(x), np.ediff1d(F))
    one, two = selection.unravel_index(dt.tensor([5, 11]), (3, 4))
    assert (one.tolist(), two.tolist()) == ([1, 2], [1, 3])
    assert selection.ravel_multi_index([one, two], (3, 4)).tolist() == [5, 11]


def test_counts():
    same(counts.bincount(dt.tensor(I), minlength=9), np.bincount(I, minlength=9))
    for density in (False, True):
        got = counts.histogram(dt.tensor(F), 4, density=density)
        for one, two in zip(got, np.histogram(F, 4, density=density), strict=True):
            same(one, two)
    got = counts.histogram2d(dt.tensor(F[0]), dt.tensor(F[1]), [2, 3])
    for one, two in zip(got, np.histogram2d(F[0], F[1], [2, 3]), strict=True):
        same(one, two)


def test_bits():
    flags = F > 0
    for kind in ("big", "little"):
        packed = bits.packbits(dt.tensor(flags), 1, kind)
        same(packed, np.packbits(flags, 1, kind))
        same(bits.unpackbits(packed, 1, 4, kind), flags)
    same(bits.bitwise_count(dt.tensor(I)), np.bitwise_count(I))
