"""Kernels of layer and RMS normalisation, and their gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.normalization import norms

RNG = np.random.default_rng(0)
X, W, B, G = (RNG.normal(size=s) for s in ((3, 7), (7,), (7,), (3, 7)))


def slopes(fn, x, g):
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = x.copy()
            moved[at] += step
            ends.append((fn(moved) * g).sum())
        found[at] = (ends[0] - ends[1]) / 2e-6
    return found


def layer(x, w=W, b=B):
    return norms.layer_norm(x, w, b, 1e-5)[0]


def rms(x, w=W):
    return norms.rms_norm(x, w, 1e-5)[0]


def test_gradients_of_layers():
    _, mean, rstd = norms.layer_norm(X, W, B, 1e-5)
    dx, dw, db = norms.layer_norm_backward(G, X, mean, rstd, W)
    np.testing.assert_allclose(dx, slopes(layer, X, G), atol=1e-6)
    np.testing.assert_allclose(dw, slopes(lambda w: layer(X, w), W, G), atol=1e-6)
    np.testing.assert_allclose(db, G.sum(0))


def test_gradients_of_rms():
    _, rstd = norms.rms_norm(X, W, 1e-5)
    dx, dw = norms.rms_norm_backward(G, X, rstd, W)
    np.testing.assert_allclose(dx, slopes(rms, X, G), atol=1e-6)
    np.testing.assert_allclose(dw, slopes(lambda w: rms(X, w), W, G), atol=1e-6)


@pytest.mark.parametrize("columns", [1, 3, 16, 33, 257])
def test_rows_of_any_length_in_float32(columns):
    x = RNG.normal(size=(5, columns)).astype(np.float32)
    y, mean, _ = norms.layer_norm(x, None, None, 1e-5)
    wide = x.astype("f8")
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean.ravel(), wide.mean(1), atol=1e-6)
