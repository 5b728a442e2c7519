"""Attention of which scores and masks are functions: against the plain one."""

from __future__ import annotations

import math

import pytest

import disttrain as dt
from disttrain.compat.torch import flexible

pytestmark = pytest.mark.simulated
F = flexible.module()
ATTEND = dt.nn.functional.scaled_dot_product_attention


def tensors(heads=2, tokens=6):
    dt.manual_seed(0)
    return [dt.randn(2, heads, tokens, 4, dtype=dt.float64, requires_grad=True) for _ in range(3)]


def causal(b, h, q, kv):
    return q >= kv


def gradients(out, leaves):
    return dt.autograd.grad(out.square().sum(), leaves)


def test_without_functions_it_is_plain_attention():
    q, k, v = tensors()
    assert dt.allclose(F.flex_attention(q, k, v), ATTEND(q, k, v))
    assert dt.allclose(F.flex_attention(q, k, v, scale=0.3), ATTEND(q, k, v, scale=0.3))


def test_a_mask_of_places():
    leaves = tensors()
    mask = F.create_block_mask(causal, None, None, 6, 6, BLOCK_SIZE=2)
    found = F.flex_attention(*leaves, block_mask=mask)
    want = ATTEND(*leaves, is_causal=True)
    assert dt.allclose(found, want)
    pairs = zip(gradients(found, leaves), gradients(want, leaves), strict=True)
    assert all(dt.allclose(a, b) for a, b in pairs)


def test_scores_are_changed_by_places():
    q, k, v = tensors()
    bias = dt.randn(2, 6, dtype=dt.float64)

    def score(s, b, h, i, j):
        return s + bias[h, i] * (i - j)

    places = dt.arange(6)
    added = bias[:, :, None] * (places[:, None] - places)
    assert dt.allclose(F.flex_attention(q, k, v, score), ATTEND(q, k, v, attn_mask=added[None]))


def test_rows_that_see_nothing_give_zeros():
    leaves = tensors()
    mask = F.create_block_mask(lambda b, h, q, kv: (q > 2) & (kv < 3), None, None, 6, 6)
    out, lse = F.flex_attention(*leaves, block_mask=mask, return_lse=True)
    assert (out[:, :, :3] == 0).all() and (lse[:, :, :3] == -math.inf).all()
    assert all(g.isfinite().all() for g in gradients(out, leaves))


def test_heads_may_be_shared_and_more_be_told():
    q = tensors(4)[0]
    k, v = tensors(2)[1:]
    with pytest.raises(ValueError, match="4 heads"):
        F.flex_attention(q, k, v)
    out, told = F.flex_attention(q, k, v, enable_gqa=True, return_aux=F.AuxRequest(lse=True))
    assert dt.allclose(out, ATTEND(q, k, v, enable_gqa=True)) and told.max_scores is None
    scores = (q @ k.repeat_interleave(2, 1).mT) / 2
    assert dt.allclose(told.lse, scores.logsumexp(-1))


def test_masks_are_told_by_blocks():
    mask = F.create_block_mask(causal, 1, None, 6, 5, BLOCK_SIZE=(2, 2))
    assert mask.shape == (1, 1, 6, 5) and mask.numel() == 30
    assert mask.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    assert (mask.kv_num_blocks + mask.full_kv_num_blocks).tolist() == [[[1, 2, 3]]]
    assert mask.sparsity() == pytest.approx(100 / 3) and "BlockMask" in str(mask.to("cpu"))


def test_masks_are_combined():
    near = lambda b, h, q, kv: q - kv < 2
    both = F.create_mask(F.and_masks(causal, near), 1, 1, 3, 3)[0, 0]
    assert both.tolist() == [[True, False, False], [True, True, False], [False, True, True]]
    either = F.create_mask(F.or_masks(causal, near), None, None, 3, 3)
    assert either.all() and F.create_mask(F.noop_mask, 2, None, 3, 3).shape == (2, 1, 3, 3)
    moved = F.create_mask(lambda s, b, h, q, kv: s + q, None, None, 2, 2)
    assert moved.tolist() == [[[[0.0, 0.0], [1.0, 1.0]]]]
