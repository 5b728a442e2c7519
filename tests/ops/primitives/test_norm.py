"""Normalisation of rows and of channels."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives import norm

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("affine", [False, True])
def test_rows(kind, affine):
    x = (RNG.normal(size=(4, 33)) * 3 + 5).astype(kind)
    w, b = (RNG.normal(size=33).astype(kind) if affine else None for _ in range(2))
    y, mean, rstd = norm.layer_norm_rows.forward(x, w, b, eps=1e-3)
    plain = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
    wanted = plain * w + b if affine else plain
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(mean.ravel(), x.mean(1), rtol=1e-5)
    np.testing.assert_allclose(rstd.ravel(), 1 / np.sqrt(x.var(1) + 1e-3), rtol=1e-5)
    y, rstd = norm.rms_norm_rows.forward(x, w, eps=1e-3)
    root = np.sqrt((x.astype("f8") ** 2).mean(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(y, x / root * (w if affine else 1), rtol=2e-5, atol=1e-6)


def test_rows_far_from_zero_keep_their_digits():
    x = (RNG.normal(size=(2, 256)) + 1e4).astype(np.float32)
    y, _, _ = norm.layer_norm_rows.forward(x, None, None, eps=0.0)
    wide = x.astype("f8")
    wanted = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    np.testing.assert_allclose(y, wanted, atol=3e-3)


def test_channels():
    x = RNG.normal(size=(5, 3, 7)) * 2 + 1
    w, b = RNG.normal(size=3), RNG.normal(size=3)
    y, mean, variance = norm.batch_norm_channels.forward(x, w, b, eps=1e-5)
    over = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(mean.ravel(), over[0], rtol=1e-6)
    np.testing.assert_allclose(variance.ravel(), over[1], rtol=1e-6)
    shape = (1, 3, 1)
    wanted = (x - over[0].reshape(shape)) / np.sqrt(over[1].reshape(shape) + 1e-5)
    np.testing.assert_allclose(
        y, wanted * w.reshape(shape) + b.reshape(shape), rtol=1e-6, atol=1e-9
    )


def test_what_the_gradients_add_up_to():
    """A row's gradient is at right angles to what the row may be shifted and scaled by."""
    x, g = RNG.normal(size=(4, 9)), RNG.normal(size=(4, 9))
    _, mean, rstd = norm.layer_norm_rows.forward(x, None, None, eps=0.0)
    dx = norm.layer_norm_backward.forward(g, x, mean, rstd, None)
    dx = dx[0] if isinstance(dx, tuple) else dx
    np.testing.assert_allclose(dx.sum(1), 0, atol=1e-9)
    np.testing.assert_allclose((dx * x).sum(1), 0, atol=1e-8)
