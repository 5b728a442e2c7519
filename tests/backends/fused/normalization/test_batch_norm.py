"""Kernels of batch normalisation: channels of (N, C, L)."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.normalization import batch_norm as bn


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


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 4, 100)])
def test_code_of_its_own_agrees_with_that_of_the_language_on_any_threads(shape, kind, monkeypatch):
    rng = np.random.default_rng(3)
    x, g = (rng.normal(size=shape).astype(kind) for _ in range(2))
    w = rng.normal(size=shape[1]).astype(kind)

    def run():
        found = bn.batch_norm(x, w, None, 1e-5)
        return *found, *bn.batch_norm_backward(g, x, found[1], found[2], w, 1e-5)

    ours = run()
    monkeypatch.setattr(bn, "_SPLIT", 1)
    monkeypatch.setattr(threads, "count", lambda: 3)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(ours, run(), strict=True))
    monkeypatch.setattr(bn, "_own", lambda *arrays: None)
    for a, b in zip(ours, run(), strict=True):
        np.testing.assert_allclose(a, b, 5e-6 if kind is np.float32 else 1e-12, 1e-5)
    assert bn.batch_norm_backward(g, x, ours[1], ours[2], w, 1e-5, whole=False)[0] is None


def test_a_gradient_that_is_not_asked_for_is_not_made():
    x = np.random.default_rng(4).normal(size=(2, 3, 8))
    _, mean, variance = bn.batch_norm(x, None, None, 1e-5)
    whole = bn.batch_norm_backward(x, x, mean, variance, None, 1e-5)
    part = bn.batch_norm_backward(x, x, mean, variance, None, 1e-5, False)
    assert part[0] is None
    assert all(a.tobytes() == b.tobytes() for a, b in zip(part[1:], whole[1:], strict=True))
