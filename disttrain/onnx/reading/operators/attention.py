"""Attention with its masks and caches, rotary embeddings, linear attention."""

from __future__ import annotations

import math
from typing import Any

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import ShapeError
from ....nn import functional as F
from ....ops import api
from ..elements import held_in
from ..table import PREVIEW, operator


def _heads(x: Tensor, count: Any) -> Tensor:
    """(batch, length, features) as (batch, heads, length, features of a head)."""
    if x.ndim == 4:
        return x
    if not count:
        raise ShapeError("three dimensions need the number of heads")
    b, n, width = x.shape
    return x.reshape(b, n, count, width // count).transpose(1, 2)


@operator("Attention")
def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, lengths: Tensor | None = None, *, is_causal: int = 0,
    q_num_heads: int = 0, kv_num_heads: int = 0, qk_matmul_output_mode: int = 0,
    scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
    left_window_size: int = -1, right_window_size: int = -1, node: Any,
) -> Any:  # fmt: skip
    three = q.ndim == 3
    q, k, v = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = api.cat([past_key, k], 2), api.cat([past_value, v], 2)
    present = k, v
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (api.repeat_interleave(t, groups, 1) for t in (k, v))
    windows = left_window_size >= 0 or right_window_size >= 0
    usual = not softcap and node.num_outputs < 4 and softmax_precision is None
    plain = mask is None and lengths is None and not windows and past == 0
    if usual and plain and (not is_causal or q.shape[2] == k.shape[2]):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(is_causal), scale=scale)
        return (_joined(out, three), *present, None)
    bias = _bias(q, k, mask, past, lengths, is_causal, left_window_size, right_window_size)
    out, scores = _weighted(q, k, v, bias, scale, softcap, softmax_precision, qk_matmul_output_mode)
    return (_joined(out, three), *present, scores)


def _joined(x: Tensor, three: bool) -> Tensor:
    return x.transpose(1, 2).flatten(2) if three else x


def _bias(
    q: Tensor, k: Tensor, mask: Tensor | None, past: Any, lengths: Tensor | None, is_causal: int,
    left: int, right: int,
) -> Tensor | None:  # fmt: skip
    """What is added to scores: 0 and -inf of all masks, and a mask of numbers."""
    n, m = q.shape[2], k.shape[2]
    bias: Tensor | None = None
    if mask is not None:
        missing = m - mask.shape[-1]
        bias = mask
        if mask.dtype == dtypes.bool:
            bias = _closed(mask, q.dtype)
        if missing > 0:
            shape = (*mask.shape[:-1], missing)
            bias = api.cat([bias, api.full(shape, -math.inf, dtype=q.dtype)], -1)
    allowed: Tensor | None = None
    columns = api.arange(m).reshape(1, m)
    rows = api.arange(n).reshape(n, 1) + past
    if lengths is not None:
        allowed = columns < lengths.reshape(-1, 1, 1, 1)
        if past == 0:
            rows = api.arange(n).reshape(n, 1) + (lengths.reshape(-1, 1, 1, 1) - n)
    if is_causal:
        allowed = _both(allowed, columns <= rows)
    if left >= 0:
        allowed = _both(allowed, rows - columns <= left)
    if right >= 0:
        allowed = _both(allowed, columns - rows <= right)
    if allowed is not None:
        closed = _closed(allowed, q.dtype)
        bias = closed if bias is None else bias + closed
    return bias


def _both(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b


def _closed(allowed: Tensor, kind: dtypes.dtype) -> Tensor:
    zero = api.zeros((), dtype=kind)
    return api.where(allowed, zero, api.full((), -math.inf, dtype=kind))


def _weighted(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None, softcap: float,
    precision: int | None, mode: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result, and the scores of a stage: 0 products, 1 capped, 2 with the bias, 3 shares."""
    root = math.sqrt(1 / math.sqrt(q.shape[3]) if scale is None else scale)
    scores = stage = api.matmul(q * root, k.transpose(-1, -2) * root)
    if softcap > 0:
        scores = softcap * api.tanh(scores / softcap)
    stage = scores if mode == 1 else stage
    closed = None
    if bias is not None:
        scores = scores + bias
        closed = bias.amax(-1, True) == -math.inf
    stage = scores if mode == 2 else stage
    wide = scores if precision is None else scores.to(held_in(precision))
    if closed is not None:
        wide = api.where(closed, api.zeros_like(wide), wide)
    shares = F.softmax(wide, -1)
    if closed is not None:
        shares = api.where(closed, api.zeros_like(shares), shares)
    shares = shares.to(q.dtype)
    return api.matmul(shares, v), shares if mode == 3 else stage


@operator("FlexAttention", domain=PREVIEW)
def _flex_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None,
    softmax_precision: int | None = None, score_mod: Any = None, prob_mod: Any = None,
) -> Tensor:  # fmt: skip
    """Attention whose scores and shares go through graphs of the model."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (api.repeat_interleave(t, groups, 1) for t in (k, v))
    usual = q.dtype if q.dtype == dtypes.float64 else dtypes.float32
    wide = usual if softmax_precision is None else held_in(softmax_precision)
    factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    scores = api.matmul(q.to(wide), k.to(wide).transpose(-1, -2)) * factor
    scores = scores if score_mod is None else score_mod(scores)[0]
    shares = F.softmax(scores, -1)
    shares = shares if prob_mod is None else prob_mod(shares)[0]
    return api.matmul(shares, v.to(wide)).to(q.dtype)


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None, *, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Tensor:  # fmt: skip
    three = x.ndim == 3
    x = _heads(x, num_heads)
    width = rotary_embedding_dim or x.shape[3]
    if positions is not None:
        cos, sin = F.embedding(positions, cos), F.embedding(positions, sin)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = api.chunk(turned, 2, -1)
    real, imag = cos * a - sin * b, sin * a + cos * b
    if interleaved:
        turned = api.stack([real, imag], -1).reshape(turned.shape)
    else:
        turned = api.cat([real, imag], -1)
    return _joined(api.cat([turned, rest], -1), three)


@operator("LinearAttention")
def _linear_attention(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None = None, decay: Tensor | None = None,
    beta: Tensor | None = None, *, chunk_size: int = 64, kv_num_heads: int, q_num_heads: int,
    scale: float = 0.0, update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """S = g S + b k (v - g S'k)', o = scale S'q: step by step."""
    kind = q.dtype
    q, k, v = (_heads(t, n).to(dtypes.float32) for t, n in
               ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))  # fmt: skip
    batch, heads, times, width = k.shape
    groups = q_num_heads // kv_num_heads
    scale = scale or 1 / math.sqrt(q.shape[3])
    s = api.zeros((batch, heads, width, v.shape[3])) if state is None else state.to(dtypes.float32)
    out = []
    for t in range(times):
        key, value = k[:, :, t].unsqueeze(-1), v[:, :, t].unsqueeze(-2)
        if "gated" in update_rule and decay is not None:
            g = decay[:, t].to(dtypes.float32).reshape(batch, heads, -1, 1)
            s = s * api.exp(g)
        if "delta" in update_rule and beta is not None:
            value = value - api.matmul(key.transpose(-1, -2), s)
            value = value * beta[:, t].to(dtypes.float32).reshape(batch, -1, 1, 1)
        s = s + key * value
        shared = s if groups == 1 else api.repeat_interleave(s, groups, 1)
        out.append(api.matmul(q[:, :, t].unsqueeze(-2) * scale, shared))
    joined = _joined(api.cat(out, 2), True)
    return joined.to(kind), s.to(kind if state is None else state.dtype)


@operator("CausalConvWithState")
def _causal_conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, state: Tensor | None = None, *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    n, channels, _ = x.shape
    before = w.shape[2] - 1
    start = api.zeros((n, channels, before), dtype=x.dtype) if state is None else state
    full = api.cat([start, x], 2)
    out = F.conv1d(full, w, b, groups=channels)
    if activation in ("silu", "swish"):
        out = F.silu(out)
    return out, api.narrow(full, 2, full.shape[2] - before, before)
