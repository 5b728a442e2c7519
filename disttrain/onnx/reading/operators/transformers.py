"""Parts of transformers that onnxruntime puts in place of many nodes (com.microsoft)."""

from __future__ import annotations

import math
from typing import Any

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import OperatorError, ShapeError
from ....nn import functional as F
from ....ops import api
from ..table import MICROSOFT, operator
from .attention import rotary_embedding
from .quantized import dequantize_linear

_USUAL = -10000.0  # added to what a mask closes


def _split(x: Tensor, heads: int) -> Tensor:
    """(batch, length, features) as (batch, heads, length, features of a head)."""
    if x.ndim != 3:
        return x
    if not heads or (type(x.shape[2]) is int and x.shape[2] % heads):
        raise ShapeError(f"{x.shape[2]} features in {heads} heads")
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _merged(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _of_mask(mask: Tensor | None, batch: Any, length: Any, value: float) -> Tensor | None:
    """What a mask adds to scores (batch, heads, queries, keys): it has 1 where keys are open, or
    says for each row how many keys are (and, in a second part, from which one on)."""
    if mask is None:
        return None
    if mask.ndim == 1:
        columns = api.arange(length, device=mask.device)
        ends = mask[:batch].reshape(-1, 1)
        open_ = columns < ends
        if mask.shape[0] == 2 * batch:
            open_ = open_ & (columns >= mask[batch:].reshape(-1, 1))
        elif mask.shape[0] != batch:
            raise OperatorError(f"a mask of {mask.shape[0]} numbers for {batch} rows")
    else:
        open_ = mask > 0
    while open_.ndim < 4:
        open_ = open_.unsqueeze(1)
    return api.where(open_, _number(0.0, open_), _number(value, open_))


def _number(value: float, like: Tensor) -> Tensor:
    return api.full((), value, dtype=dtypes.float32, device=like.device)


def _causal(queries: Any, keys: Any, like: Tensor, window: int = -1) -> Tensor:
    """Closed where a key comes after its query, or ``window`` or more before it."""
    columns = api.arange(keys, device=like.device).reshape(1, -1)
    rows = api.arange(queries, device=like.device).reshape(-1, 1) + (keys - queries)
    allowed = columns <= rows
    if window > 0:
        allowed = allowed & (rows - columns < window)
    return api.where(allowed, _number(0.0, like), _number(-math.inf, like))


def _attended(q: Tensor, k: Tensor, v: Tensor, biases: tuple, scale: float, causal: int) -> Tensor:
    given = [b for b in biases if b is not None]
    scale = scale or 1 / math.sqrt(q.shape[3])
    if causal and not given and q.shape[2] == k.shape[2]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    if causal:
        given.append(_causal(q.shape[2], k.shape[2], q))
    bias: Any = None
    for b in given:
        bias = b.to(q.dtype) if bias is None else bias + b.to(q.dtype)
    if bias is not None:
        bias = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


@operator("Attention", domain=MICROSOFT)
def _attention(
    x: Tensor, weights: Tensor, bias: Tensor | None = None, mask: Tensor | None = None,
    past: Tensor | None = None, attention_bias: Tensor | None = None, past_length: Any = None, *,
    num_heads: int, unidirectional: int = 0, qkv_hidden_sizes: Any = None, scale: float = 0.0,
    mask_filter_value: float = _USUAL, do_rotary: int = 0, rotary_embedding_dim: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple:  # fmt: skip
    """One product for queries, keys and values, then attention with masks and what is past."""
    if do_rotary or past_present_share_buffer:
        raise OperatorError("attention with do_rotary or past_present_share_buffer")
    joined = api.matmul(x, weights)
    joined = joined if bias is None else joined + bias
    sizes = list(qkv_hidden_sizes or [joined.shape[-1] // 3] * 3)
    q, k, v = (_split(t, num_heads) for t in api.split(joined, sizes, -1))
    if past is not None:
        k, v = api.cat([past[0], k], 2), api.cat([past[1], v], 2)
    present = api.stack([k, v]) if sizes[1] == sizes[2] else None
    if mask is not None and mask.ndim == 4:  # of all queries and keys that there may be
        n, m = q.shape[2], k.shape[2]
        mask = mask[:, :, m - n : m, :m]
    closed = _of_mask(mask, x.shape[0], k.shape[2], mask_filter_value)
    out = _attended(q, k, v, (closed, attention_bias), scale, unidirectional)
    return _merged(out), present


@operator("QAttention", domain=MICROSOFT, buffers=(1, 3, 4, 6, 7))
def _quantized_attention(
    x: Tensor, weights: Tensor, bias: Tensor, x_scale: Tensor, w_scale: Tensor,
    mask: Tensor | None = None, x_zero: Tensor | None = None, w_zero: Tensor | None = None,
    past: Tensor | None = None, **words: Any,
) -> tuple:  # fmt: skip
    wide = dequantize_linear(x, x_scale, x_zero)
    return _attention(
        wide, dequantize_linear(weights, w_scale, w_zero, axis=1), bias, mask, past, **words
    )


def _unpacked(
    q: Tensor, k: Tensor | None, v: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by heads, whether or not they come in one tensor."""
    if q.ndim == 5:  # (batch, length, heads, 3, features)
        q, k, v = (t.squeeze(3).flatten(2) for t in api.split(q, [1, 1, 1], 3))
    elif k is not None and k.ndim == 5:  # (batch, length, heads, 2, features)
        k, v = (t.squeeze(3).flatten(2) for t in api.split(k, [1, 1], 3))
    if k is None or v is None:
        raise ShapeError("keys and values are needed, or queries that have them")
    if bias is not None:
        width = q.shape[2]
        q = q + bias[:width]
        if k.ndim == 3 and v.ndim == 3:
            k, v = k + bias[width : width + k.shape[2]], v + bias[width + k.shape[2] :]
    return _split(q, heads), _split(k, heads), _split(v, heads)


@operator("MultiHeadAttention", domain=MICROSOFT)
def _multi_head(
    q: Tensor, k: Tensor | None = None, v: Tensor | None = None, bias: Tensor | None = None,
    mask: Tensor | None = None, attention_bias: Tensor | None = None,
    past_key: Tensor | None = None, past_value: Tensor | None = None, past_length: Any = None,
    beams: Any = None, *, num_heads: int, scale: float = 0.0, unidirectional: int = 0,
    mask_filter_value: float = _USUAL, node: Any,
) -> tuple:  # fmt: skip
    if node.num_outputs > 3 or past_length is not None or beams is not None:
        raise OperatorError("attention with products of queries and keys, beams or shared caches")
    queries, keys, values = _unpacked(q, k, v, bias, num_heads)
    if past_key is not None and past_value is not None:
        keys, values = api.cat([past_key, keys], 2), api.cat([past_value, values], 2)
    closed = _of_mask(mask, queries.shape[0], keys.shape[2], mask_filter_value)
    out = _attended(queries, keys, values, (closed, attention_bias), scale, unidirectional)
    return _merged(out), keys, values


@operator("RotaryEmbedding", domain=MICROSOFT)
def _rotary(
    x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, *, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0, is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Tensor:  # fmt: skip
    if is_packed_batching:
        raise OperatorError("rotary embeddings of packed rows")
    batch, length = x.shape[0], x.shape[1] if x.ndim == 3 else x.shape[2]
    if positions.ndim == 1:  # where all rows begin
        positions = api.arange(length, device=x.device) + positions.reshape(1, 1)
        positions = positions.expand(batch, length)
    if x.ndim == 3 and not num_heads:
        num_heads = x.shape[2] // (2 * cos.shape[1])
    out = rotary_embedding(
        x, cos, sin, positions, interleaved=interleaved, num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip
    return out if scale == 1.0 else out * scale


@operator("GroupQueryAttention", domain=MICROSOFT, numbers=(5, 6))
def _group_query(
    q: Tensor, k: Tensor | None, v: Tensor | None, past_key: Tensor | None,
    past_value: Tensor | None, last: Any, total: Any, cos: Tensor | None = None,
    sin: Tensor | None = None, positions: Tensor | None = None,
    attention_bias: Tensor | None = None, *rest: Any, num_heads: int, kv_num_heads: int,
    do_rotary: int = 0, rotary_interleaved: int = 0, scale: float = 0.0, softcap: float = 0.0,
    local_window_size: int = -1, smooth_softmax: int = 0,
) -> tuple:  # fmt: skip
    """Fewer heads of keys and values, and a cache of which each row has used its own part.
    ``last``: for each row the place of its last key."""
    if softcap or smooth_softmax > 0 or any(r is not None for r in rest):
        raise OperatorError("grouped attention with softcap, sinks or quantized caches")
    if k is None or v is None:
        width = q.shape[2] // (num_heads + 2 * kv_num_heads)
        sizes = [num_heads * width, kv_num_heads * width, kv_num_heads * width]
        q, k, v = api.split(q, sizes, -1)
    length, first = q.shape[1], int(total.one()) == q.shape[1]
    before = [0 if first else int(n) + 1 - length for n in last.items]
    if do_rotary and cos is not None and sin is not None:
        if positions is None:
            starts = api.tensor(before, device=q.device).reshape(-1, 1)
            positions = starts + api.arange(length, device=q.device)
        words = {"interleaved": rotary_interleaved}
        q = _rotary(q, positions, cos, sin, num_heads=num_heads, **words)
        k = _rotary(k, positions, cos, sin, num_heads=kv_num_heads, **words)
    q, k, v = _split(q, num_heads), _split(k, kv_num_heads), _split(v, kv_num_heads)
    held = 0 if past_key is None else past_key.shape[2]
    room = max(held, int(total.one()))
    keys = _cached(past_key, k, before, room)
    values = _cached(past_value, v, before, room)
    out = []
    for b, past in enumerate(before):
        end = past + length
        bias = _causal(length, end, q, local_window_size)
        if attention_bias is not None:
            bias = bias + attention_bias[b % attention_bias.shape[0], :, :, :end]
        own = keys[b : b + 1, :, :end], values[b : b + 1, :, :end]
        k, v = (api.repeat_interleave(t, num_heads // kv_num_heads, 1) for t in own)
        out.append(_attended(q[b : b + 1], k, v, (bias.unsqueeze(0),), scale, 0))
    return _merged(api.cat(out)), keys, values


def _cached(past: Tensor | None, new: Tensor, before: list[int], room: int) -> Tensor:
    """What each row has of the past, then the new, then zeros up to ``room``."""
    rows = []
    for b, count in enumerate(before):
        parts = [new[b]] if past is None else [past[b, :, :count], new[b]]
        empty = room - count - new.shape[2]
        if empty > 0:
            shape = (new.shape[1], empty, new.shape[3])
            parts.append(api.zeros(shape, dtype=new.dtype, device=new.device))
        rows.append(api.cat(parts, 1))
    return api.stack(rows)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def _embed(
    tokens: Tensor, segments: Tensor | None, words: Tensor, places: Tensor,
    kinds: Tensor | None, gamma: Tensor, beta: Tensor, mask: Tensor | None = None,
    positions: Tensor | None = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> tuple:  # fmt: skip
    """Embeddings of words, places and segments, added and normalized; and how many words of each
    row its mask opens."""
    total = F.embedding(tokens.long(), words)
    if positions is None:
        total = total + places[: tokens.shape[1]]
    else:
        total = total + F.embedding(positions.long(), places)
    if segments is not None and kinds is not None:
        total = total + F.embedding(segments.long(), kinds)
    out = F.layer_norm(total, (total.shape[-1],), gamma, beta, epsilon)
    if mask is None:
        count = api.zeros((tokens.shape[0],), dtype=dtypes.int32, device=tokens.device)
    else:
        count = mask.to(dtypes.int32).sum(1).to(dtypes.int32)
    return out, count, total
