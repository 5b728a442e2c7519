"""Attention with several heads, from weights: what ``nn.MultiheadAttention`` computes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import ops
from ...core import Tensor
from ...core.types import dtypes
from ...errors import ConfigError, ShapeError
from .linear import attention_weights, dropout, scaled_dot_product_attention

WHERE = "MultiheadAttention"


class Extra(NamedTuple):
    """What is attended to beside the keys: a learned row, and a row of zeros."""

    key: Tensor | None = None
    value: Tensor | None = None
    zeros: bool = False


class Masks(NamedTuple):
    """What takes no part, by query and key, and by key; booleans (True: it does not) or numbers."""

    attention: Tensor | None = None
    padding: Tensor | None = None
    causal: bool = False


def attend(
    q: Tensor, k: Tensor, v: Tensor, num_heads: int, extra: Extra, masks: Masks, drop: float,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """From projected queries, keys and values (N, L, E) what the heads give, side by side (N, L,
    E); with ``need_weights`` also the weights (N, heads, L, S)."""
    mask = _mask(q, k, masks, num_heads)
    causal = masks.causal and mask is None
    length, width = q.shape[1], k.shape[1]
    k, v = _longer(k, extra.key, extra.zeros), _longer(v, extra.value, extra.zeros)
    if k.shape[1] != width:
        if causal:
            mask, causal = _causal(q, length, width), False
        mask = mask if mask is None else ops.pad(mask, (0, k.shape[1] - width))
    q, k, v = (_split(t, num_heads) for t in (q, k, v))
    weights = None
    if need_weights:
        weights = attention_weights(q, k, mask, causal)
        out = ops.matmul(dropout(weights, drop), v)
    else:
        out = scaled_dot_product_attention(q, k, v, mask, drop, causal)
    return out.transpose(1, 2).reshape(out.shape[0], length, out.shape[1] * out.shape[3]), weights


def _longer(t: Tensor, row: Tensor | None, zeros: bool) -> Tensor:
    """``t`` (N, S, E) and what is attended to beside it."""
    n, _, e = t.shape
    more = [] if row is None else [row.reshape(1, 1, e).expand(n, 1, e)]
    if zeros:
        more.append(t.new_zeros(n, 1, e))
    return ops.cat([t, *more], 1) if more else t


def _split(t: Tensor, num_heads: int) -> Tensor:
    """(N, L, E) to (N, heads, L, E / heads)"""
    n, length, e = t.shape
    return t.reshape(n, length, num_heads, e // num_heads).transpose(1, 2)


def _causal(q: Tensor, length: int, width: int) -> Tensor:
    later = ops.ones(length, width, dtype=dtypes.bool, device=q.device).triu(1)
    return _additive(later, q.dtype)


def _mask(q: Tensor, k: Tensor, masks: Masks, num_heads: int) -> Tensor | None:
    """Both masks as one number to add, shaped to broadcast over (N, heads, L, S)."""
    n, length, width = q.shape[0], q.shape[1], k.shape[1]
    total = None
    if masks.attention is not None:
        shape = tuple(masks.attention.shape)
        if shape not in ((length, width), (n * num_heads, length, width)):
            raise ShapeError(
                f"{WHERE}: attn_mask of shape {list(shape)} given; needed "
                f"{[length, width]} or {[n * num_heads, length, width]}"
            )
        total = _additive(masks.attention, q.dtype)
        if len(shape) == 3:
            total = total.reshape(n, num_heads, length, width)
    if masks.padding is not None:
        if tuple(masks.padding.shape) not in ((n, width), (width,)):
            raise ShapeError(
                f"{WHERE}: key_padding_mask of shape {list(masks.padding.shape)} given; "
                f"needed {[n, width]}"
            )
        more = _additive(masks.padding, q.dtype).reshape(-1, 1, 1, width)
        total = more if total is None else total + more
    return total


def _additive(mask: Tensor, kind: dtypes.dtype) -> Tensor:
    """A mask of booleans (True: takes no part) as numbers to add."""
    if mask.dtype is not dtypes.bool:
        return mask.to(kind)
    zeros = ops.zeros(*mask.shape, dtype=kind, device=mask.device)
    return ops.where(mask, float("-inf"), zeros)


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """``nn.MultiheadAttention`` of weights that are given: inputs (L, N, E) or (L, E), and so the
    output; the weights of the attention (N, L, S), of each head where they are not averaged.

    ``static_k``, ``static_v`` (N * heads, S, E / heads) stand for projected keys and values.
    """
    e = query.shape[-1]
    if e != embed_dim_to_check or e % num_heads:
        raise ConfigError(
            f"multi_head_attention_forward: queries of {e} elements and num_heads={num_heads} "
            f"given; needed {embed_dim_to_check} elements, a multiple of num_heads"
        )
    if is_causal and attn_mask is None:
        raise ConfigError(
            "multi_head_attention_forward: Need attn_mask if specifying the is_causal hint"
        )
    weights: list[Any]
    if use_separate_proj_weight:
        weights = [q_proj_weight, k_proj_weight, v_proj_weight]
    else:
        weights = [None] * 3 if in_proj_weight is None else list(ops.chunk(in_proj_weight, 3, 0))
    if any(w is None for w in weights):
        raise ConfigError("multi_head_attention_forward: weights of projections are missing")
    biases = [None] * 3 if in_proj_bias is None else list(ops.chunk(in_proj_bias, 3, 0))
    batched = query.ndim == 3
    q, k, v = (
        _batches(ops.linear(t, w, b), batched)
        for t, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    k, v = (_joined(t, s, num_heads) for t, s in ((k, static_k), (v, static_v)))
    out, seen = attend(
        q, k, v, num_heads, Extra(bias_k, bias_v, add_zero_attn),
        Masks(attn_mask, key_padding_mask), dropout_p if training else 0.0, need_weights,
    )  # fmt: skip
    out = ops.linear(out, out_proj_weight, out_proj_bias)
    if seen is not None:
        seen = seen.mean(1) if average_attn_weights else seen
        seen = seen if batched else seen.squeeze(0)
    return (out.transpose(0, 1) if batched else out.squeeze(0)), seen


def _batches(t: Tensor, batched: bool) -> Tensor:
    return t.transpose(0, 1) if batched else t.unsqueeze(0)


def _joined(t: Tensor, given: Tensor | None, num_heads: int) -> Tensor:
    """``t``, or (N * heads, S, E / heads) as (N, S, E)."""
    if given is None:
        return t
    n, size, width = given.shape[0] // num_heads, given.shape[1], given.shape[2]
    split = given.reshape(n, num_heads, size, width).transpose(1, 2)
    return split.reshape(n, size, num_heads * width)


__all__ = ["multi_head_attention_forward"]
