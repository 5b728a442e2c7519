"""Attention with several heads beside its definition, head by head."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import nn


def close(ours, want):
    np.testing.assert_allclose(ours.detach().numpy(), want, atol=1e-9)


def by_definition(m, q, k, v, padding=None):
    """(L, N, E) in float64, one sample and one head after another."""
    e, heads = m.embed_dim, m.num_heads
    w, b = m.in_proj_weight.detach().numpy(), m.in_proj_bias.detach().numpy()
    parts = [x @ w[i * e : (i + 1) * e].T + b[i * e : (i + 1) * e] for i, x in enumerate((q, k, v))]
    out, seen = np.zeros_like(q), []
    for n in range(q.shape[1]):
        qs, ks, vs = (p[:, n] for p in parts)
        if m.bias_k is not None:
            ks = np.vstack([ks, m.bias_k.detach().numpy()[0]])
            vs = np.vstack([vs, m.bias_v.detach().numpy()[0]])
        if m.add_zero_attn:
            ks, vs = (np.vstack([x, np.zeros((1, e))]) for x in (ks, vs))
        rows = []
        for h in range(heads):
            at = slice(h * e // heads, (h + 1) * e // heads)
            scores = qs[:, at] @ ks[:, at].T / np.sqrt(e // heads)
            if padding is not None:
                scores[:, : k.shape[0]][:, padding[n]] = -np.inf
            scores = np.exp(scores)
            scores /= scores.sum(1, keepdims=True)
            out[:, n, at] = scores @ vs[:, at]
            rows.append(scores)
        seen.append(np.mean(rows, 0))
    wo, bo = m.out_proj.weight.detach().numpy(), m.out_proj.bias.detach().numpy()
    return out @ wo.T + bo, np.stack(seen)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_learned_rows_and_zeros_are_attended_to(bias, zero, padded):
    m = nn.MultiheadAttention(6, 2, add_bias_kv=bias, add_zero_attn=zero, dtype=dt.float64)
    rng = np.random.default_rng(0)
    with dt.no_grad():
        m.in_proj_bias.copy_(dt.from_numpy(rng.normal(size=18)))
    q, k, v = (rng.normal(size=(n, 2, 6)) for n in (3, 4, 4))
    padding = np.array([[False] * 4, [False, True, False, True]]) if padded else None
    mask = None if padding is None else dt.from_numpy(padding)
    tensors = [dt.from_numpy(x) for x in (q, k, v)]
    want = by_definition(m, q, k, v, padding)
    for need in (True, False):
        out, seen = m(*tensors, key_padding_mask=mask, need_weights=need)
        close(out, want[0])
        if need:
            close(seen, want[1])
    out, _ = F.multi_head_attention_forward(
        *tensors, 6, 2, m.in_proj_weight, m.in_proj_bias, m.bias_k, m.bias_v, zero, 0.0,
        m.out_proj.weight, m.out_proj.bias, key_padding_mask=mask,
    )  # fmt: skip
    close(out, want[0])
    out.sum().backward()
    assert all(p.grad is not None for p in m.parameters())


def test_a_causal_mask_lets_all_see_what_is_beside_the_keys():
    m = nn.MultiheadAttention(4, 1, add_zero_attn=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    x = dt.rand(3, 1, 4)
    _, seen = m(x, x, x, attn_mask=mask, is_causal=True)
    assert seen.shape == (1, 3, 4)
    assert (seen[0] > 0).tolist() == [
        [True, False, False, True], [True, True, False, True], [True, True, True, True],
    ]  # fmt: skip


def test_projected_keys_and_values_may_be_given():
    m = nn.MultiheadAttention(4, 2, bias=False, dtype=dt.float64)
    x = dt.rand(3, 2, 4, dtype=dt.float64)
    projected = [x @ w.t() for w in m.in_proj_weight.chunk(3)]
    static = [p.reshape(3, 4, 2).transpose(0, 1) for p in projected[1:]]
    args = (x, x, x, 4, 2, m.in_proj_weight, None, None, None, False, 0.0, m.out_proj.weight, None)
    want = F.multi_head_attention_forward(*args)[0]
    got = F.multi_head_attention_forward(*args, static_k=static[0], static_v=static[1])[0]
    close(got, want.detach().numpy())
    with pytest.raises(ValueError, match="needed 5 elements"):
        F.multi_head_attention_forward(x, x, x, 5, *args[4:])
