"""MultiheadAttention."""

from __future__ import annotations

from ... import ops
from ...core import Tensor
from ...core.annotations import DeviceLike, DTypeLike
from ...core.types import dtypes
from ...errors import ConfigError, ShapeError
from .. import functional as F
from .. import init
from ..functional.linear import attention_weights
from ..module import Module
from ..parameter import Parameter, empty
from .linear import Linear


class MultiheadAttention(Module):
    """Attention with several heads (Vaswani et al., 2017): forward(query, key, value).

    Inputs are (L, N, E), or (N, L, E) with ``batch_first``, or (L, E). Gives the output and, with
    ``need_weights``, the attention weights (averaged over heads unless told otherwise).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ConfigError(
                f"MultiheadAttention: embed_dim={embed_dim} must be divisible by "
                f"num_heads={num_heads}, both positive"
            )
        if add_bias_kv or add_zero_attn:
            raise ConfigError("MultiheadAttention: add_bias_kv and add_zero_attn are not supported")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.head_dim = batch_first, embed_dim // num_heads
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        same = self._qkv_same_embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if same else None,
            "q_proj_weight": None if same else (embed_dim, embed_dim),
            "k_proj_weight": None if same else (embed_dim, self.kdim),
            "v_proj_weight": None if same else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
        }
        for name, shape in shapes.items():
            value = None if shape is None else Parameter(empty(shape, dtype, device))
            self.register_parameter(name, value)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        self._check(query, key, value)
        batched = query.ndim == 3
        q, k, v = self._project(query, key, value)
        if not batched:
            q, k, v = (t.unsqueeze(0) for t in (q, k, v))
        elif not self.batch_first:
            q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        q, k, v = (self._split(t) for t in (q, k, v))
        mask = self._mask(q, k, attn_mask, key_padding_mask)
        causal = is_causal and mask is None
        drop = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = attention_weights(q, k, mask, causal)
            out = ops.matmul(F.dropout(weights, drop), v)
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, drop, causal)
        n, _, length, _ = out.shape
        out = self.out_proj(out.transpose(1, 2).reshape(n, length, self.embed_dim))
        if not batched:
            return out.squeeze(0), weights
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        for name, t, width in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            if t.ndim != query.ndim or t.ndim not in (2, 3) or t.shape[-1] != width:
                order = "(N, L, " if self.batch_first else "(L, N, "
                raise ShapeError(
                    f"MultiheadAttention(embed_dim={self.embed_dim}, num_heads={self.num_heads}): "
                    f"{name} of shape {list(t.shape)} given; needed {order}{width}) or (L, {width})"
                )

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        e, b = self.embed_dim, self.in_proj_bias
        if self._qkv_same_embed_dim and query is key and key is value:
            return tuple(ops.chunk(ops.linear(query, self.in_proj_weight, b), 3, -1))
        if self._qkv_same_embed_dim:
            weights = ops.chunk(self.in_proj_weight, 3, 0)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if b is None else (b[:e], b[e : 2 * e], b[2 * e :])
        inputs = (query, key, value)
        return tuple(ops.linear(x, w, c) for x, w, c in zip(inputs, weights, biases, strict=True))

    def _split(self, t: Tensor) -> Tensor:
        """(N, L, E) to (N, heads, L, E / heads)"""
        n, length, _ = t.shape
        return t.reshape(n, length, self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(
        self, q: Tensor, k: Tensor, attn_mask: Tensor | None, padding: Tensor | None
    ) -> Tensor | None:
        """Both masks as one number to add, shaped to broadcast over (N, heads, L, S)."""
        n, _, length, _ = q.shape
        width = k.shape[2]
        total = None
        if attn_mask is not None:
            shape = tuple(attn_mask.shape)
            if shape not in ((length, width), (n * self.num_heads, length, width)):
                raise ShapeError(
                    f"MultiheadAttention: attn_mask of shape {list(shape)} given; needed "
                    f"{[length, width]} or {[n * self.num_heads, length, width]}"
                )
            total = _additive(attn_mask, q.dtype)
            if len(shape) == 3:
                total = total.reshape(n, self.num_heads, length, width)
        if padding is not None:
            if tuple(padding.shape) not in ((n, width), (width,)):
                raise ShapeError(
                    f"MultiheadAttention: key_padding_mask of shape {list(padding.shape)} given; "
                    f"needed {[n, width]}"
                )
            extra = _additive(padding, q.dtype).reshape(-1, 1, 1, width)
            total = extra if total is None else total + extra
        return total


def _additive(mask: Tensor, kind: dtypes.dtype) -> Tensor:
    """A mask of booleans (True: takes no part) as numbers to add."""
    if mask.dtype is not dtypes.bool:
        return mask.to(kind)
    zeros = ops.zeros(*mask.shape, dtype=kind, device=mask.device)
    return ops.where(mask, float("-inf"), zeros)
