"""Attention: masks, and heads that are shared."""

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain.errors import ConfigError, ShapeError

F = nn.functional


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_attention_masks_agree_with_each_other():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = randn(2, 4, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    as_bool = core.wrap(np.triu(np.ones((4, 4), bool), 1))
    one, weights = attention(x, x, x, attn_mask=causal)
    two, none = attention(x, x, x, attn_mask=as_bool, need_weights=False)
    three, _ = attention(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)
    with pytest.raises(ConfigError, match="Need attn_mask"):
        attention(x, x, x, is_causal=True)
    np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(one.detach().numpy(), three.detach().numpy(), atol=1e-6)
    assert none is None and weights.shape == (2, 4, 4)
    assert np.triu(weights.detach().numpy(), 1).max() == 0
    padding = core.wrap(np.array([[False] * 4, [False, False, True, True]]))
    _, weights = attention(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (2, 2, 4, 4) and weights.detach().numpy()[1, :, :, 2:].max() == 0
    with pytest.raises(ShapeError, match="attn_mask"):
        attention(x, x, x, attn_mask=randn(3, 3))
    with pytest.raises(ShapeError, match="query of shape"):
        attention(randn(2, 4, 6), x, x)


@pytest.mark.parametrize("kind", [dt.bool, dt.float32])
def test_a_mask_beside_a_causal_one(kind):
    q, seen = randn(2, 4, 3, 5), dt.ones(3, 3).tril().bool()
    mask = randn(3, 3) if kind is dt.float32 else randn(3, 3) > -1
    both = mask & seen if kind is dt.bool else mask.masked_fill(~seen, -math.inf)
    got = F.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=True)
    assert dt.equal(got, F.scaled_dot_product_attention(q, q, q, attn_mask=both))


def test_scaled_dot_product_attention_with_shared_heads():
    q, k, v = randn(2, 4, 3, 5), randn(2, 2, 6, 5, seed=1), randn(2, 2, 6, 7, seed=2)
    got = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    k4, v4 = (np.repeat(t.numpy(), 2, axis=1) for t in (k, v))
    scores = q.numpy() @ k4.swapaxes(-1, -2) / math.sqrt(5)
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(got.numpy(), p @ v4, rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError):
        F.scaled_dot_product_attention(q, randn(2, 4, 3, 4), q)
