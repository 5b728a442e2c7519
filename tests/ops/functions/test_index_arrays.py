"""Indices by arrays and masks, mixed with slices: NumPy's rules."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

A = np.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
I, J = np.array([0, 2, 1]), np.array([[3], [0]])
MASK = A[:, :, 0, 0] % 40 == 0
KEYS = {
    "one array": (slice(None), I), "two beside each other": (slice(None), I, J),
    "two apart": (np.array([1, 0]), slice(None), J),
    "first and last": (np.array([1, 0, 1]), ..., I), "a number between": (slice(None), 1, I),
    "a mask": (MASK,), "a mask and a slice": (MASK, slice(1, 3)), "a list": ([1, 0],),
    "a new dimension": (None, slice(None), I), "negative": (..., np.array([-1, -5])),
    "nothing": (np.zeros(0, int),),
}  # fmt: skip


def ours(key):
    return tuple(dt.from_numpy(k) if isinstance(k, np.ndarray) else k for k in key)


@pytest.mark.parametrize("name", KEYS)
def test_what_is_taken_is_numpys(name):
    key = KEYS[name]
    wanted = A[key]
    found = dt.from_numpy(A)[ours(key)]
    assert found.shape == wanted.shape and (found.numpy() == wanted).all()


@pytest.mark.parametrize("name", KEYS)
def test_so_is_what_is_written(name):
    key, a = KEYS[name], A.copy()
    a[key] = -1.0
    x = dt.from_numpy(A.copy())
    x[ours(key)] = -1.0
    assert (x.numpy() == a).all()


@pytest.mark.parametrize("name", KEYS)
def test_gradients_arrive_where_it_was_taken(name):
    key = KEYS[name]
    x = dt.from_numpy(A).requires_grad_()
    x[ours(key)].sum().backward()
    wanted = np.zeros_like(A)
    np.add.at(wanted, key, 1.0)
    assert (x.grad.numpy() == wanted).all()


def test_wrong_indices_are_told():
    x = dt.from_numpy(A)
    for key in ((dt.tensor([2]),), (0, dt.tensor([3])), (dt.ones(3, dtype=dt.bool),)):
        with pytest.raises((IndexError, RuntimeError)):
            x[key]
