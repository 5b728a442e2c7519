"""Indices beside NumPy's, and places that are not there."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import func
from disttrain.arrays import indexing
from disttrain.arrays.indexing import get, put

X = np.arange(24.0).reshape(2, 3, 4)
AT = np.array([1, 0, 1])
KEYS = [
    (0,), (-1, 2), (slice(None, None, -1),), (slice(None), slice(2, None, -2)), (Ellipsis, 0),
    (None, 1), (AT,), (slice(None), AT), (AT, AT), (AT, slice(None), AT), (0, slice(None), AT),
    (AT[:2], None, slice(None, None, -1)), (X > 3,), (X[:, 0, 0] > 3,), (np.array([[0], [1]]), AT),
]  # fmt: skip


def tensors(key):
    return tuple(dt.tensor(i) if isinstance(i, np.ndarray) else i for i in key)


@pytest.mark.parametrize("key", KEYS)
def test_numpys_indices(key):
    np.testing.assert_array_equal(get(dt.tensor(X), tensors(key)).numpy(), X[key])


@pytest.mark.parametrize("key", KEYS)
def test_updates(key):
    want = X.copy()
    want[key] = -1
    got = put(dt.tensor(X), tensors(key), dt.tensor(-1.0, dtype=dt.float64))
    np.testing.assert_array_equal(got.numpy(), want)
    want = X.copy()
    np.add.at(want, key, 5)
    got = put(dt.tensor(X), tensors(key), dt.tensor(5.0, dtype=dt.float64), "add")
    np.testing.assert_array_equal(got.numpy(), want)


def test_places_that_are_not_there():
    x, at = dt.arange(4.0), dt.tensor([1, 9, -9])
    assert get(x, (at,)).tolist() == [1, 3, 0]
    assert get(x, (at,), "fill", 7.0).tolist() == [1, 7, 7]
    one = dt.tensor(1.0)
    assert put(x, (at,), one, "add").tolist() == [0, 2, 2, 3]
    assert put(x, (at,), one, "add", "clip").tolist() == [1, 2, 2, 4]
    assert put(x, (at,), one * 2, "max").tolist() == [0, 2, 2, 3]
    with pytest.raises(IndexError, match="Too many indices"):
        get(x, (0, 0))
    with pytest.raises(ValueError, match="Incompatible shapes"):
        put(x, (at,), dt.zeros(2))


def test_batches_and_gradients():
    x, at = dt.arange(6.0).reshape(2, 3), dt.tensor([[0, 9], [2, 1]])
    assert func.vmap(lambda x, i: get(x, (i,)))(x, at).tolist() == [[0, 2], [5, 4]]
    grads = func.grad(lambda x: put(x, (at[1],), x[0, 0] * 2, "set").sum())(x)
    assert grads.shape == x.shape


def test_indices_of_programs():
    read = lambda i: dt.tensor(i)
    found = indexing.items((1, slice(0, 2), True, [0, 1]), (3, 3, 3), read)
    assert found[:2] == (1, slice(0, 2)) and found[2].dtype is dt.bool
    assert found[3].tolist() == [0, 1]
    for key, error in (
        (slice(0.5), IndexError), ([0.5], TypeError), ([True, False], IndexError),
    ):  # fmt: skip
        with pytest.raises(error):
            indexing.items(key, (3,), read)
    inside = [indexing.is_inside(k, (3,)) for k in (2, -3, slice(0, 9), 3, slice(0, 2, 2), None)]
    assert inside == [True, True, True, False, False, False]
