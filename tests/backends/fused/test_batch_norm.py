"""Kernels of batch normalisation: channels of (N, C, L)."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused import batch_norm as bn


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 1, 33), (1, 4, 100), (7, 2, 1)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_channels_of_any_size(shape, kind):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * 3 + 2).astype(kind)
    w, b = (rng.normal(size=shape[1]).astype(kind) for _ in range(2))
    y, mean, variance = bn.batch_norm(x, w, b, 1e-5)
    wide, at = x.astype("f8"), (1, -1, 1)
    over = wide.mean((0, 2)), wide.var((0, 2))
    wanted = (wide - over[0].reshape(at)) / np.sqrt(over[1].reshape(at) + 1e-5)
    tolerance = 2e-5 if kind is np.float32 else 1e-9
    np.testing.assert_allclose(y, wanted * w.reshape(at) + b.reshape(at), tolerance, tolerance)
    np.testing.assert_allclose(np.ravel(mean), over[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.ravel(variance), over[1], rtol=1e-4, atol=1e-6)


def test_a_gradient_changes_neither_mean_nor_spread():
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3, 5))
    _, mean, variance = bn.batch_norm(x, None, None, 0.0)
    found = bn.batch_norm_backward(g, x, mean, variance, None, 0.0)
    dx = found[0] if isinstance(found, tuple) else found
    np.testing.assert_allclose(dx.sum((0, 2)), 0, atol=1e-9)
    np.testing.assert_allclose((dx * x).sum((0, 2)), 0, atol=1e-9)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (5, 1, 3, 33), (1, 4, 100), (7, 2, 1)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_channels_times_what_is_known_round_twice(shape, kind):
    rng = np.random.default_rng(2)
    x, scale, shift = (rng.normal(size=n).astype(kind) for n in (shape, shape[1], shape[1]))
    at = (1, -1, *(1,) * (len(shape) - 2))
    wanted = x * scale.reshape(at) + shift.reshape(at)
    assert bn.scaled(x, scale, shift).tobytes() == wanted.tobytes()
