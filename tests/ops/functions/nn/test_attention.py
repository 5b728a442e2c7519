"""Attention against the formula, masks, blocks, gradients."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.core import grad, wrap
from disttrain.core import random as source
from disttrain.core.types import dtypes
from disttrain.errors import ConfigError, DTypeError, ShapeError
from disttrain.ops.functions.nn.attention import scaled_dot_product_attention as sdpa
from disttrain.ops.primitives import attention
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=(2, 3, n, d)) for n, d in ((4, 5), (6, 5), (6, 2)))


def _reference(q, k, v, mask=None, causal=False, scale=None):
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tri(*s.shape[-2:]) > 0, s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
    return np.nan_to_num(p) @ v


MASKS = {
    "none": None,
    "booleans": RNG.random((4, 6)) > 0.4,
    "numbers": RNG.normal(size=(2, 1, 4, 6)),
    "row": RNG.normal(size=(6,)),
    "per key": (RNG.random((2, 1, 1, 6)) > 0.4),
    "blind": np.arange(4)[:, None] > np.zeros(6),
}


@pytest.mark.parametrize("block", [2, 128])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, block, monkeypatch):
    if block == 2:
        monkeypatch.setattr(attention, "_BLOCK", 2)
        monkeypatch.setattr(attention, "_LONG", 0)
    mask = MASKS[name]
    given = None if mask is None else wrap(mask)
    got = sdpa(wrap(Q), wrap(K), wrap(V), given).array
    np.testing.assert_allclose(got, _reference(Q, K, V, mask), rtol=1e-10, atol=1e-14)
    small = [a[:, :1] for a in (Q, K, V)]
    check_gradients(lambda q, k, v: sdpa(q, k, v, given), *small)


@pytest.mark.parametrize("block", [2, 128])
@pytest.mark.parametrize("length", [3, 4, 6])
def test_causal(block, length, monkeypatch):
    if block == 2:
        monkeypatch.setattr(attention, "_BLOCK", 2)
        monkeypatch.setattr(attention, "_LONG", 0)
    q = RNG.normal(size=(2, length, 5))
    k, v = K[0, :2, :5], V[0, :2, :5]
    got = sdpa(wrap(q), wrap(k), wrap(v), is_causal=True, scale=0.3).array
    np.testing.assert_allclose(got, _reference(q, k, v, None, True, 0.3), rtol=1e-10)
    check_gradients(lambda q, k, v: sdpa(q, k, v, is_causal=True), q, k, v)


def test_gradient_of_a_mask_of_numbers():
    mask = RNG.normal(size=(4, 6))
    check_gradients(lambda m, q: sdpa(q, wrap(K), wrap(V), m), mask, Q)


def test_shared_heads():
    q = RNG.normal(size=(1, 4, 3, 5))
    k, v = K[:1, :2], V[:1, :2]
    want = _reference(q, k.repeat(2, 1), v.repeat(2, 1))
    got = sdpa(wrap(q), wrap(k), wrap(v), enable_gqa=True).array
    np.testing.assert_allclose(got, want, rtol=1e-10)
    with pytest.raises(ShapeError, match="cannot share"):
        sdpa(wrap(q[:, :3]), wrap(k), wrap(v), enable_gqa=True)


def test_dropout_takes_away_whole_weights():
    source.manual_seed(0)
    v = wrap(np.eye(6)[None, None])
    p = sdpa(wrap(Q), wrap(K), v).array
    dropped = sdpa(wrap(Q), wrap(K), v, dropout_p=0.5).array
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], 2 * p[kept])
    assert 0.3 < kept.mean() < 0.7


@pytest.mark.parametrize("kind", [dtypes.float16, dtypes.bfloat16, dtypes.float32])
def test_narrow_types(kind):
    q, k, v = (wrap(a.astype(kind.np)).requires_grad_() for a in (Q, K, V))
    out = sdpa(q, k, v)
    assert out.dtype is kind
    np.testing.assert_allclose(out.array.astype("f8"), _reference(Q, K, V), atol=0.05)
    assert grad(out.sum(), q)[0].dtype is kind


def test_errors():
    q, k, v = wrap(Q), wrap(K), wrap(V)
    with pytest.raises(ConfigError, match="one of them"):
        sdpa(q, k, v, wrap(MASKS["booleans"]), is_causal=True)
    with pytest.raises(ShapeError, match="do not fit"):
        sdpa(q, v, k)
    with pytest.raises(ShapeError, match="attn_mask"):
        sdpa(q, k, v, wrap(np.ones((4, 5))))
    with pytest.raises(DTypeError, match="one floating-point type"):
        sdpa(q, k.float(), v)
