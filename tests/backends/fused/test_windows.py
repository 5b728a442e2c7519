"""Pooling over a few windows gives the bits of pooling over many."""

from __future__ import annotations

import random

import numpy as np
import pytest

from disttrain.backends.fused import windows as fused
from disttrain.ops.primitives import pool


def _drawn(seed: int):
    """Sizes and steps of windows, at random, and an array that has equal numbers."""
    draw = random.Random(seed)
    while True:
        dims = draw.choice([1, 2, 3])
        size, kernel, stride, dilation = (
            tuple(draw.randint(1, most) for _ in range(dims)) for most in (9, 4, 3, 2)
        )
        padding, ceil_mode = tuple(draw.randint(0, k // 2) for k in kernel), draw.random() < 0.5
        how = (kernel, stride, padding, dilation, ceil_mode)
        if min(pool.pooled_sizes(size, *how)) > 0:
            break
    rng, kind = np.random.default_rng(seed), draw.choice([np.float32, np.float64])
    x = rng.integers(-3, 4, (2, 3, *size)).astype(kind)
    for odd in draw.sample([np.nan, -np.inf, np.inf], draw.randint(0, 2)):
        x[rng.random(x.shape) < 0.2] = odd
    return x, dict(zip(("kernel", "stride", "padding", "dilation", "ceil_mode"), how, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_the_largest_and_where_they_are(seed, monkeypatch):
    x, how = _drawn(seed)

    def both():
        best = pool._max_pool(x, **how)
        g = np.random.default_rng(seed).normal(size=best.shape).astype(x.dtype)
        return best, pool._max_spread(g, x, best, **how)

    few = both()
    monkeypatch.setattr(fused, "MOST", dict.fromkeys(fused.MOST, 0))
    for a, b in zip(few, both(), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("include", [True, False])
def test_means(seed, include, monkeypatch):
    x, how = _drawn(seed)
    x = np.random.default_rng(seed).normal(size=x.shape).astype(x.dtype)
    del how["dilation"]
    if min(pool.pooled_sizes(x.shape[2:], **how, dilation=(1,) * (x.ndim - 2))) < 1:
        return
    how |= {"include": include, "divisor": 3 if seed % 5 == 0 else None}
    few = pool._avg_pool(x, **how)
    monkeypatch.setattr(fused, "MOST", dict.fromkeys(fused.MOST, 0))
    np.testing.assert_array_equal(few, pool._avg_pool(x, **how))


def test_what_it_is_not_for():
    how = ((2, 2), (2, 2), (0, 0), (1, 1))
    x = np.zeros((1, 1, 4, 4), "f4")
    assert fused.largest(x.astype(int), (2, 2), *how) is None
    assert fused.largest(np.zeros((64, 64, 8, 8)), (4, 4), *how) is None
    assert fused.largest(x[:0], (2, 2), *how) is None
    assert fused.spread_largest(np.zeros((1, 1, 2, 2)), x, *how) is None
    assert fused.mean(x, np.float64(0.25), (2, 2), *how[:3]) is None
    turned = np.asfortranarray(np.random.default_rng(0).normal(size=(2, 3, 4, 4)))
    assert (fused.largest(turned, (2, 2), *how) == pool._max_pool(turned, *how, False)).all()
