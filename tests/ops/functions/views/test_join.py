"""Tensors put together."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt

A, B = np.arange(6.0).reshape(2, 3), -np.arange(3.0).reshape(1, 3)


def test_along_and_across():
    a, b = dt.from_numpy(A), dt.from_numpy(B)
    assert dt.cat([a, b]).tolist() == np.concatenate([A, B]).tolist()
    assert dt.cat([a, a], -1).tolist() == np.concatenate([A, A], -1).tolist()
    for dim in (0, 1, 2, -1):
        assert dt.stack([a, a * 2], dim).tolist() == np.stack([A, A * 2], dim).tolist()
    assert dt.vstack([a[0], b]).tolist() == np.vstack([A[0], B]).tolist()
    assert dt.hstack([a[0], b[0]]).tolist() == np.hstack([A[0], B[0]]).tolist()


def test_types_are_promoted_and_gradients_divided():
    a = dt.ones(2, dtype=dt.int64)
    x, y = dt.ones(2).requires_grad_(), dt.ones(3).requires_grad_()
    assert dt.cat([a, dt.ones(1)]).dtype is dt.float32
    (dt.cat([x, y]) * dt.arange(5.0)).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0] and y.grad.tolist() == [2.0, 3.0, 4.0]


def test_repetition():
    x = dt.from_numpy(B)
    assert x.repeat(2, 2).tolist() == np.tile(B, (2, 2)).tolist()
    assert dt.tile(x, (2,)).tolist() == np.tile(B, 2).tolist()
    assert x.repeat(2, 1, 1).shape == (2, 1, 3)


def test_what_does_not_fit_is_told():
    for call in (
        lambda: dt.cat([]), lambda: dt.cat([dt.ones(2, 3), dt.ones(2, 4)]),
        lambda: dt.stack([dt.ones(2), dt.ones(3)]), lambda: dt.ones(2, 2).repeat(2),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError)):
            call()
