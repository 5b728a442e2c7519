"""MultiheadAttention."""

from __future__ import annotations

from ... import ops
from ...core import Tensor
from ...core.annotations import DeviceLike, DTypeLike
from ...errors import ConfigError, ShapeError
from .. import init
from ..functional import heads
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
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.head_dim = batch_first, embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
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
        self.bias_k, self.bias_v = (
            Parameter(empty((1, 1, embed_dim), dtype, device)) if add_bias_kv else None
            for _ in range(2)
        )
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for row in (self.bias_k, self.bias_v):
            if row is not None:
                init.xavier_normal_(row)

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
        if is_causal and attn_mask is None:
            raise ConfigError(
                "MultiheadAttention: Need attn_mask if specifying the is_causal hint: "
                "Transformer.generate_square_subsequent_mask makes one"
            )
        batched = query.ndim == 3
        q, k, v = self._project(query, key, value)
        if not batched:
            q, k, v = (t.unsqueeze(0) for t in (q, k, v))
        elif not self.batch_first:
            q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        out, weights = heads.attend(
            q, k, v, self.num_heads, heads.Extra(self.bias_k, self.bias_v, self.add_zero_attn),
            heads.Masks(attn_mask, key_padding_mask, is_causal),
            self.dropout if self.training else 0.0, need_weights,
        )  # fmt: skip
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        out = self.out_proj(out)
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
