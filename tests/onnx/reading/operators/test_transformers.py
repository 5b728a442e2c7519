"""Fused parts of transformers are those of onnxruntime, drawn by a seed."""

from __future__ import annotations

import random

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import NodeError, OperatorError
from support.onnx_graphs import model, node
from support.onnx_nodes import beside, floats

BATCH, HEADS, WIDTH = 2, 2, 4
MICROSOFT = "com.microsoft"


def a_mask(draw, length, total):
    """Of one of the forms that a mask has."""
    kind = draw.choice(["none", "raw", "square", "ends", "both"])
    if kind == "none":
        return None
    ends = np.array([draw.randint(1, total) for _ in range(BATCH)], np.int32)
    if kind == "ends":
        return ends
    if kind == "both":
        return np.concatenate([ends, np.array([draw.randrange(e) for e in ends], np.int32)])
    raw = (np.arange(total) < ends[:, None]).astype(np.int32)
    return raw if kind == "raw" else np.repeat(raw[:, None], length, 1)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_attention(first):
    for seed in range(first, first + 10):
        draw, rng = random.Random(seed), np.random.default_rng(seed)
        length, before = draw.randint(1, 5), draw.choice([0, 0, 3])
        size, total = HEADS * WIDTH, length + before
        past = floats(rng, 2, BATCH, HEADS, before, WIDTH) if before else None
        added = not before and draw.random() < 0.5
        bias = floats(rng, draw.choice([1, BATCH]), HEADS, length, total) if added else None
        given = [
            floats(rng, BATCH, length, 6), floats(rng, 6, 3 * size),
            floats(rng, 3 * size), a_mask(draw, length, total), past,
            bias,
        ]  # fmt: skip
        words = {"num_heads": HEADS, "unidirectional": draw.randrange(2)}
        if draw.random() < 0.3:
            words["scale"] = 0.3
        beside("Attention", given, "y p" if before else "y", **words)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_attention_of_many_heads(first):
    for seed in range(first, first + 10):
        draw, rng = random.Random(seed), np.random.default_rng(seed)
        length, size = draw.randint(1, 5), HEADS * WIDTH
        form = draw.choice(["own", "cross", "heads", "past"])
        keys = length if form not in ("cross", "heads") else draw.randint(1, 5)
        before = 3 if form == "past" else 0
        q = floats(rng, BATCH, length, size)
        k = v = floats(rng, BATCH, keys, size)
        if form == "heads":
            k = v = floats(rng, BATCH, HEADS, keys, WIDTH)
        total = keys + before
        bias = floats(rng, 3 * size) if form in ("own", "cross", "past") else None
        past = floats(rng, BATCH, HEADS, before, WIDTH) if before else None
        mask = a_mask(draw, length, total)
        mask = None if mask is not None and (mask.ndim == 3 or len(mask) == 2 * BATCH) else mask
        added = floats(rng, 1, HEADS, length, total) if draw.random() < 0.4 else None
        words = {"num_heads": HEADS, "unidirectional": int(form == "own" and draw.random() < 0.5)}
        beside("MultiHeadAttention", [q, k, v, bias, mask, added, past, past], "y a b" if before
               else "y", **words)  # fmt: skip


def test_queries_keys_and_values_in_one_tensor():
    rng = np.random.default_rng(0)
    q, k, v = (floats(rng, 2, 3, HEADS * WIDTH) for _ in range(3))
    by_head = [t.reshape(2, 3, HEADS, WIDTH) for t in (q, k, v)]

    def attended(**given):
        words = {"domain": MICROSOFT, "num_heads": HEADS}
        made = model([node("MultiHeadAttention", " ".join(given), "y", **words)], list(given),
                     ["y"], (), domains=(MICROSOFT,))  # fmt: skip
        return dt.onnx.load(made).run(given)["y"]

    want = attended(q=q, k=k, v=v)
    assert np.allclose(attended(q=np.stack(by_head, 3)), want, atol=1e-6)
    assert np.allclose(attended(q=q, k=np.stack(by_head[1:], 3)), want, atol=1e-6)


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_attention_of_groups_with_a_cache(first):
    for seed in range(first, first + 10):
        draw, rng = random.Random(seed), np.random.default_rng(seed)
        heads, shared, width = 4, draw.choice([1, 2, 4]), 16
        prompt = draw.random() < 0.5
        length = draw.randint(2, 5) if prompt else 1
        before = 0 if prompt else 4
        last = np.array([length - 1 if prompt else draw.randint(0, 4) for _ in range(BATCH)])
        total = length if prompt else int(last.max()) + 1
        packed = draw.random() < 0.5
        q = floats(rng, BATCH, length, heads * width)
        k, v = (floats(rng, BATCH, length, shared * width) for _ in range(2))
        past = [floats(rng, BATCH, shared, before, width) for _ in range(2)]
        if packed:
            q, k, v = np.concatenate([q, k, v], -1), None, None
        turned = draw.randrange(2)
        tables = [floats(rng, 16, width // 2) for _ in range(2)] if turned else [None, None]
        given = [q, k, v, *past, last.astype(np.int32), np.array(total, np.int32), *tables]
        words = {"num_heads": heads, "kv_num_heads": shared, "do_rotary": turned}
        if draw.random() < 0.4:
            words["local_window_size"] = 2
        if draw.random() < 0.4 and turned:
            words["rotary_interleaved"] = 1
        beside("GroupQueryAttention", given, "y a b", "y", **words)


def test_rotary_embeddings():
    rng = np.random.default_rng(0)
    cos, sin = floats(rng, 8, 4), floats(rng, 8, 4)
    places = np.array([[0, 1, 2], [4, 5, 6]], np.int64)
    for x in (floats(rng, 2, 3, 16), floats(rng, 2, 2, 3, 8)):
        for at in (places, np.array([2], np.int64)):
            for interleaved in (0, 1):
                beside("RotaryEmbedding", [x, at, cos, sin], "y", interleaved=interleaved)


@pytest.mark.parametrize("segments", [True, False])
def test_embeddings_with_normalization(segments):
    rng = np.random.default_rng(0)
    tokens, kinds = rng.integers(0, 9, (2, 4)), rng.integers(0, 2, (2, 4))
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]])
    places = np.array([[3, 2, 1, 0]] * 2)
    for at in (None, places):
        given = [tokens, kinds if segments else None, floats(rng, 9, 6), floats(rng, 5, 6),
                 floats(rng, 2, 6) if segments else None, floats(rng, 6), floats(rng, 6), mask,
                 at]  # fmt: skip
        given = [a.astype(np.int32) if a is not None and a.dtype == np.int64 else a for a in given]
        beside("EmbedLayerNormalization", given, "y m", epsilon=1e-5)
        beside("EmbedLayerNormalization", given, "y m s", epsilon=1e-5)


def test_what_is_not_known_is_told():
    words = {"num_heads": 2, "domain": MICROSOFT}
    made = model([node("Attention", "x w", "y", do_rotary=1, **words)], ["x", "w"], ["y"], (),
                 domains=(MICROSOFT,))  # fmt: skip
    with pytest.raises((NodeError, OperatorError), match="do_rotary"):
        dt.onnx.load(made)(dt.ones(1, 2, 4), dt.ones(4, 12))
    made = model([node("Attention", "x w", "y", domain=MICROSOFT, num_heads=3)], ["x", "w"], ["y"],
                 (), domains=(MICROSOFT,))  # fmt: skip
    with pytest.raises(NodeError, match="4 features in 3 heads"):
        dt.onnx.load(made)(dt.ones(1, 2, 4), dt.ones(4, 12))
