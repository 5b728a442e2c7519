"""Scaled dot product attention: the arguments, checked and put in form. Torch's name."""

from __future__ import annotations

import math
from typing import Any

from ....context import thread
from ....core.grad_mode import is_grad_enabled
from ....core.tensor import Tensor
from ....errors import ConfigError, DTypeError, ShapeError
from ...primitives.attention import attention, probabilities
from ...primitives.linalg import matmul
from ..args import tensor as as_input
from ..random import dropout
from ..repeating import repeat_interleave


# --- what programs call ------------------------------------------------------------------------
def _check(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    where = "scaled_dot_product_attention"
    for t, name in ((q, "query"), (k, "key"), (v, "value")):
        if as_input(t, where, name).ndim < 2:
            raise ShapeError(
                f"{where}: {name} of shape {list(t.shape)} given; needed (..., length, width)"
            )
        other = thread.autocast is None and t.meta()[1] != q.meta()[1]
        if other or not t.dtype.is_floating_point:
            raise DTypeError(
                f"{where}: query, key and value are {q.dtype!r}, {k.dtype!r} and {v.dtype!r}; they "
                "must be of one floating-point type"
            )
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{where}: query {list(q.shape)}, key {list(k.shape)} and value {list(v.shape)} do not "
            "fit: query and key must agree in their last size, key and value in their length"
        )
    if mask is not None:
        scores = (q.shape[-2], k.shape[-2])
        for have, need in zip(reversed(tuple(mask.shape)), reversed(scores), strict=False):
            if have not in (1, need):
                raise ShapeError(
                    f"{where}: attn_mask of shape {list(mask.shape)} given; it must broadcast to "
                    f"the scores, (..., {scores[0]}, {scores[1]})"
                )


def _shared_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values repeated so that there is one head for each head of the query."""
    heads = query.shape[-3]
    out = []
    for t in (key, value):
        if heads % t.shape[-3]:
            raise ShapeError(
                f"scaled_dot_product_attention: {heads} query heads cannot share {t.shape[-3]} key "
                "or value heads; the first must be divisible by the second"
            )
        times = heads // t.shape[-3]
        out.append(t if times == 1 else repeat_interleave(t, times, -3))
    return out[0], out[1]


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(Q K^T scale + mask) V for (..., L, E), (..., S, E), (..., S, V).

    ``attn_mask``: booleans (True: takes part) or numbers to add, broadcast to (..., L, S). A query
    that sees nothing gives zeros. ``scale`` is 1 / sqrt(E) unless given. ``enable_gqa``: keys and
    values have fewer heads (dimension -3), each shared by several queries.
    """
    _check(query, key, value, attn_mask)
    if is_causal and attn_mask is not None:
        raise ConfigError(
            "scaled_dot_product_attention: attn_mask and is_causal=True given; pass one of them"
        )
    if enable_gqa:
        key, value = _shared_heads(query, key, value)
    factor = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else float(scale)
    if dropout_p > 0.0:
        p = probabilities(query, key, attn_mask, is_causal, factor)
        return matmul(dropout(p, dropout_p), value)
    how: dict[str, Any] = {"causal": bool(is_causal), "scale": factor}
    if not is_grad_enabled():
        how["keep"] = False
    return attention(query, key, value, attn_mask, **how)[0]


__all__ = ["scaled_dot_product_attention"]
