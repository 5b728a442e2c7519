"""Sums of scaled shifts are those of numpy, term by term."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.convolutions.taps import products, weighted_sum

TYPES = ["float32", "float64", "complex64", "int64"]


def drawn(count, dtype, step=1):
    rng = np.random.default_rng(count)
    x = (rng.normal(size=(2, 3, 40, 41)) * 8).astype(dtype)
    views = [
        x[:, :, None, k : k + 30 * step : step, 2 * k % 9 : 2 * k % 9 + 31] for k in range(count)
    ]
    scales = [(rng.normal(size=(3, 2, 1, 1)) * 8).astype(dtype) for _ in range(count)]
    return [v[..., :9, :] for v in views], scales


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 2, 9, 16, 17, 40])
def test_terms_are_added_in_their_order(count, dtype):
    views, scales = drawn(count % 9 + 1, dtype, 2)
    views, scales = (views * count)[:count], (scales * count)[:count]
    out = np.empty((2, 3, 2, 9, 31), dtype)
    weighted_sum(views, scales, out)
    expected = views[0] * scales[0]
    for v, s in zip(views[1:], scales[1:], strict=True):
        expected = expected + v * s
    if dtype == "complex64":  # (numpy's products in place may differ in the last bit)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    else:
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 9, 20])
def test_products_are_sums_along_rows(count, dtype):
    views, _ = drawn(count % 9 + 1, dtype)
    views = (views * count)[:count]
    g = (np.random.default_rng(0).normal(size=(2, 3, 2, 9, 31)) * 4).astype(dtype)
    for got, view in zip(products(g, views), views, strict=True):
        assert got.shape == g.shape[:-1] and got.dtype == g.dtype
        np.testing.assert_allclose(got, (g * view).sum(axis=-1), rtol=1e-4, atol=1e-4)


def test_nothing_gives_nothing():
    x = np.zeros((0, 3, 1, 9, 31), "f4")
    weighted_sum([x, x], [x, x], np.empty((0, 3, 1, 9, 31), "f4"))
    assert products(x, [x])[0].shape == (0, 3, 1, 9)
