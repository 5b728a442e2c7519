"""A transformer's weights and operations, counted by its dimensions."""

from __future__ import annotations

import pytest

from disttrain.distributed.planning.transformer import Transformer, transformer_of
from disttrain.errors import ConfigError

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100}


@pytest.mark.parametrize(("given", "billions"), [
    # Published sizes: GPT-2 XL, Llama 3 70B, Qwen3 30B-A3B, Mixtral 8x7B.
    ({"layers": 48, "hidden": 1600, "heads": 25, "vocab": 50257, "positions": 1024,
      "biases": True}, 1.56),
    ({"layers": 80, "hidden": 8192, "heads": 64, "vocab": 128256, "kv_heads": 8, "ffn": 28672,
      "gated": True, "tied": False}, 70.6),
    ({"layers": 48, "hidden": 2048, "heads": 32, "vocab": 151936, "kv_heads": 4, "head_dim": 128,
      "gated": True, "tied": False, "experts": 128, "top_k": 8, "expert_ffn": 768}, 30.5),
    ({"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000, "kv_heads": 8, "gated": True,
      "tied": False, "experts": 8, "top_k": 2, "expert_ffn": 14336}, 46.7),
])  # fmt: skip
def test_weights_are_those_of_published_models(given, billions):
    assert transformer_of(given).weights / 1e9 == pytest.approx(billions, rel=0.01)


def test_low_ranks_count_their_own_products():
    plain = Transformer(2, 64, 4, 100)
    low = Transformer(2, 64, 4, 100, q_rank=8, kv_rank=8, rope_dim=4)
    assert low.weights < plain.weights
    assert low.attention[0].n == 8 + 8 + 4 and low.attention[2].k == 8


def test_tensor_and_expert_parallelism_divide_what_is_theirs():
    dense = Transformer(2, 64, 4, 100)
    assert dense.layer_weights(False, 4) < dense.layer_weights(False) / 3
    sparse = Transformer(2, 64, 4, 100, experts=8, top_k=2, expert_ffn=32, dense_layers=1)
    assert [sparse.is_sparse(i) for i in range(2)] == [False, True]
    routed = 8 * 2 * 64 * 32
    less = sparse.layer_weights(True) - sparse.layer_weights(True, 1, 4)
    assert less == routed * 3 // 4


def test_operations_count_what_a_token_uses():
    dense = Transformer(2, 64, 4, 100)
    products = 2 * (4 * 64 * 64 + 8 * 64 * 64) + 100 * 64
    assert dense.flops(128) == 6 * products + 12 * 2 * 128 * 64
    sparse = Transformer(2, 64, 4, 100, experts=8, top_k=2, expert_ffn=128)
    assert sparse.flops(128) == 6 * (products + 2 * 8 * 64) + 12 * 2 * 128 * 64
    low = Transformer(2, 64, 4, 100, kv_rank=8, rope_dim=8)
    assert low.flops(256) - low.flops(128) == 12 * 2 * 128 * 4 * (16 + 8 / 2)
    assert Transformer(2, 64, 4, 100, window=64).flops(128) < dense.flops(128)


@pytest.mark.parametrize(("given", "message"), [
    ({**SMALL, "width": 3}, "unknown key 'width'"),
    ({"layers": 2, "hidden": 64, "heads": 4}, "vocab is missing"),
    ({**SMALL, "layers": 0}, "layers=0 given"),
    ({**SMALL, "ffn": -1}, "ffn=-1 given"),
    ({**SMALL, "heads": 5}, "does not divide into heads=5"),
    ({**SMALL, "gated": 1}, "gated=1 given; needed is true or false"),
    ({**SMALL, "layers": 2.5}, "layers=2.5 given"),
    ({**SMALL, "layers": True}, "layers=True given; needed is a whole number"),
    ({**SMALL, "experts": 4}, "experts=4 needs top_k"),
    ({**SMALL, "kv_heads": 3}, "kv_heads=3 does not divide heads=4"),
    ({**SMALL, "top_k": 2}, "top_k=2 given without experts"),
    ({**SMALL, "rope_dim": 8}, "rope_dim=8 given without kv_rank"),
    ({**SMALL, "experts": 4, "top_k": 1, "expert_ffn": 8, "dense_layers": 3}, "dense_layers=3"),
])  # fmt: skip
def test_wrong_dimensions_are_named(given, message):
    with pytest.raises(ConfigError, match=message):
        transformer_of(given)
