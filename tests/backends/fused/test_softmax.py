"""Kernels of softmax, over rows of any length."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused import softmax as sm


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 2, 15, 16, 17, 100, 1000])
def test_rows_of_any_length(kind, columns):
    x = (np.random.default_rng(columns).normal(size=(7, columns)) * 6).astype(kind)
    wide = x.astype("f8")
    weights = np.exp(wide - wide.max(1, keepdims=True))
    wanted = weights / weights.sum(1, keepdims=True)
    rtol = 2e-6 if kind is np.float32 else 1e-13
    y = sm.softmax(x)
    np.testing.assert_allclose(y, wanted, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(y.sum(1), 1, rtol=rtol)
    np.testing.assert_allclose(sm.log_softmax(x), np.log(wanted), rtol=1e-5, atol=1e-5)
    g = np.ones_like(y)
    np.testing.assert_allclose(sm.softmax_backward(g, y), 0, atol=10 * rtol)
    into = np.empty_like(y)
    assert sm.softmax_backward(y, y, into) is into


def test_an_output_of_ones_own():
    x, out = np.zeros((2, 4), np.float32), np.empty((2, 4), np.float32)
    assert sm.softmax(x, out) is out and (out == 0.25).all()


def test_rows_that_do_not_lie_in_order():
    x = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    assert (sm.softmax(x.T) == sm.softmax(np.ascontiguousarray(x.T))).all()
