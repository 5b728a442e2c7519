"""Transformer layers: what they are made of, masks, and stacks."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn


def layer(**words):
    dt.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, **words)


X = dt.linspace(-2, 3, 2 * 5 * 16).sin().reshape(2, 5, 16)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer_is_attention_and_two_products_with_norms(norm_first):
    module = layer(norm_first=norm_first)

    def attend(x):
        return module.self_attn(x, x, x, need_weights=False)[0]

    def feed(x):
        return module.linear2(module.linear1(x).relu())

    if norm_first:
        y = X + attend(module.norm1(X))
        wanted = y + feed(module.norm2(y))
    else:
        y = module.norm1(X + attend(X))
        wanted = module.norm2(y + feed(y))
    assert dt.allclose(module(X), wanted, atol=1e-6)


def test_masked_places_do_not_matter():
    module = layer()
    hidden = dt.zeros(2, 5, dtype=dt.bool)
    hidden[:, 3:] = True
    other = X.clone()
    other[:, 3:] = 9.0
    one = module(X, src_key_padding_mask=hidden)[:, :3]
    assert dt.allclose(one, module(other, src_key_padding_mask=hidden)[:, :3], atol=1e-6)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    out = module(X, src_mask=causal, is_causal=True)
    other[:, :3] = X[:, :3]
    assert dt.allclose(out[:, :3], module(other, src_mask=causal)[:, :3], atol=1e-6)


def test_stacks_have_layers_of_their_own():
    stack = nn.TransformerEncoder(layer(), 3, norm=nn.LayerNorm(16))
    first, second, _ = stack.layers
    assert first.linear1.weight is not second.linear1.weight and stack(X).shape == X.shape


def test_a_decoder_looks_at_the_memory():
    dt.manual_seed(1)
    decoder = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    target = X[:, :3]
    out = decoder(target, X)
    assert out.shape == target.shape and not dt.allclose(out, decoder(target, X + 1))
    whole = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)
    assert whole(X, target).shape == target.shape
