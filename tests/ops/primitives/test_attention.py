"""Attention in one primitive: softmax(q k^T * scale + mask) v."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives.attention import attention


def plain(q, k, v, mask, causal, scale):
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def given(seed, lead=(2, 3), rows=5, keys=7, wide=4):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.normal(size=(*lead, n, wide)) for n in (rows, keys, keys))
    return rng, q, k, v


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [None, "added", "chosen"])
def test_it_is_the_formula(kind, causal, masked):
    rng, q, k, v = given(1)
    mask = None
    if masked:
        mask = rng.normal(size=(5, 7)) if masked == "added" else rng.random((5, 7)) < 0.7
        mask = mask if mask.dtype != bool else mask | np.eye(5, 7, dtype=bool)
        mask = mask.astype(kind) if mask.dtype != bool else mask
    q, k, v = (x.astype(kind) for x in (q, k, v))
    out = attention.forward(q, k, v, mask, causal=causal, scale=0.5)[0]
    tolerance = 1e-5 if kind is np.float32 else 1e-12
    np.testing.assert_allclose(out, plain(q, k, v, mask, causal, 0.5), tolerance, tolerance)
    assert out.dtype == kind


def test_large_scores_do_not_overflow():
    _, q, k, v = given(2)
    out = attention.forward(q * 1e4, k, v, None, causal=False, scale=1.0)[0]
    assert np.isfinite(out).all() and (np.abs(out) <= np.abs(v).max() + 1e-9).all()


def test_its_shape_rule_is_what_it_gives():
    _, q, k, v = given(3, wide=6)
    found = attention.forward(q, k, v[..., :2], None, causal=False, scale=1.0)
    said = attention.shape(q, k, v[..., :2], None, causal=False, scale=1.0)
    assert [(r.shape, r.dtype) for r in found] == [(tuple(s), np.dtype(d)) for s, d in said]
