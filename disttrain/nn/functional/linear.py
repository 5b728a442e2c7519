"""Linear maps, embeddings, dropout and attention."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ... import ops
from ...core import Tensor, no_grad
from ...core.backward.function import Function
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import ConfigError, DTypeError, PaddingError, ShapeError
from ...ops.functions.args import in_float32
from ...ops.promotion import same_type
from ...trace import warn
from .common import into, need_dims
from .rows import sparse_gradient


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b for (..., in) and weights (out, in)"""
    return ops.linear(input, weight, bias)


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """Products group by group, put together: groups are the first dimension of what has three, and
    end at ``offs`` in what has two (rows of ``mat_a``, columns of ``mat_b``; the dimension that is
    summed over where both have two)."""
    if mat_a.ndim not in (2, 3) or mat_b.ndim not in (2, 3):
        raise ShapeError(
            f"grouped_mm: operands of shape {list(mat_a.shape)} and {list(mat_b.shape)} given; "
            "needed 2 or 3 dimensions each"
        )
    if (offs is None) != (mat_a.ndim == mat_b.ndim == 3):
        raise ConfigError("grouped_mm: offs must be given where an operand has 2 dimensions")
    if offs is None:
        out = ops.matmul(mat_a, mat_b)
    else:
        products = [
            ops.matmul(_group(mat_a, i, *ends, dim=mat_b.ndim - 3),
                       _group(mat_b, i, *ends, dim=2 - mat_a.ndim))
            for i, ends in enumerate(itertools.pairwise([0, *offs.tolist()]))
        ]  # fmt: skip
        out = ops.stack(products) if mat_a.ndim == mat_b.ndim else ops.cat(products, mat_a.ndim - 2)
    out = out if bias is None else out + bias
    return out if out_dtype is None else out.to(out_dtype)


def _group(mat: Tensor, i: int, start: int, end: int, dim: int) -> Tensor:
    return mat[i] if mat.ndim == 3 else mat.narrow(dim, start, end - start)


@computes_in("widest")
@in_float32
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1ᵀ W_o x2 + b_o for each output o; weights (out, in1, in2)"""
    if weight.ndim != 3:
        raise ShapeError(
            f"bilinear: weight of shape {list(weight.shape)} given; needed (out, in1, in2)"
        )
    if input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(
            f"bilinear: inputs of shapes {list(input1.shape)} and {list(input2.shape)} given; all "
            "sizes but the last must be equal"
        )
    if input1.shape[-1] != weight.shape[1] or input2.shape[-1] != weight.shape[2]:
        raise ShapeError(
            f"bilinear: inputs of shapes {list(input1.shape)} and {list(input2.shape)} given; "
            f"their last dimensions must be {weight.shape[1]} and {weight.shape[2]}, those of the "
            f"weight {list(weight.shape)}"
        )
    same_type("bilinear", input1, input2, weight, bias)
    left = ops.matmul(input1.unsqueeze(-2).unsqueeze(-2), weight).squeeze(-2)
    out = (left * input2.unsqueeze(-2)).sum(-1, dtype=input1.dtype)
    return out if bias is None else out + bias


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` by number; row ``padding_idx`` gets no gradient.

    ``max_norm``: the rows that are asked for are first shortened to that norm, in place.
    ``scale_grad_by_freq``: the gradient of a row is divided by how often it is asked for here.
    ``sparse``: the gradient of a leaf ``weight`` is a sparse tensor of the rows asked for (what is
    computed is the same, and needs the memory of a dense one for a while).
    """
    if input.dtype.is_floating_point or input.dtype.is_complex:
        raise DTypeError(
            f"embedding: indices of type {input.dtype!r} given; needed integers, for example "
            "input.long()"
        )
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise PaddingError(
                f"embedding: Padding_idx must be within num_embeddings={rows}; {padding_idx} given"
            )
        padding_idx %= rows
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    out = ops.embedding(input, weight, padding_idx)
    if scale_grad_by_freq:
        times = ops.bincount(input.reshape(-1), minlength=rows)[input]
        out = _Weighted.apply(out, (1 / times.double()).to(out.dtype).unsqueeze(-1))
    if sparse and out.requires_grad and weight.is_leaf and weight.requires_grad:
        sparse_gradient(weight, out, input, padding_idx)
    return out


def _shorten(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Rows of ``weight`` that are longer than ``max_norm``, to that length."""
    with no_grad():
        found = ops.unique(input)
        rows = weight[found]
        norms = rows.norm(norm_type, dim=1, keepdim=True)
        weight[found] = ops.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)


class _Weighted(Function):
    """The same values; gradients times ``weight``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return g * ctx.saved_tensors[0], None


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers (...) as rows (..., C) of zeros with a one; -1: as many classes as needed"""
    if num_classes == -1 and not tensor.numel():
        raise ShapeError("one_hot: an empty tensor says nothing of num_classes; pass it")
    return ops.one_hot(tensor, num_classes)


# --- dropout ----------------------------------------------------------------------------------
def _check_p(where: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ConfigError(f"{where}: dropout probability has to be between 0 and 1, but got p={p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p)"""
    _check_p("dropout", p)
    if not training or p == 0:
        return input
    return into(input, lambda x: ops.dropout(x, p, True), inplace)


def channel_dropout(where: str, input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    """Zero whole channels, of which the first two dimensions are the numbers."""
    _check_p(where, p)
    if not training or p == 0:
        return input
    shape = tuple(input.shape[:2]) + (1,) * (input.ndim - 2)
    mask = ops.dropout(ops.ones(*shape, dtype=input.dtype, device=input.device), p, True)
    return into(input, lambda x: x * mask, inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L)"""
    need_dims("dropout1d", input, (2, 3), "(N, C, L) or (C, L)")
    if input.ndim == 2:
        return dropout1d(input.unsqueeze(0), p, training, inplace).squeeze(0)
    return channel_dropout("dropout1d", input, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, H, W); 3-d input is taken as (N, C, L)"""
    if input.ndim == 3:
        warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim; use dropout1d for that"
        )
    _warn_of_dims("dropout2d", input, (3, 4))
    return channel_dropout("dropout2d", input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W)"""
    _warn_of_dims("dropout3d", input, (4, 5))
    if input.ndim != 5:
        return channel_dropout("dropout3d", input.unsqueeze(0), p, training, inplace).squeeze(0)
    return channel_dropout("dropout3d", input, p, training, inplace)


def _warn_of_dims(where: str, input: Tensor, known: tuple[int, ...]) -> None:
    if input.ndim not in known:
        warn(
            f"{where}: Received a {input.ndim}-D input to {where}, which is deprecated and will "
            f"result in an error in a future release; give one of {known[0]} or {known[1]} "
            "dimensions"
        )


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance of SELU activations (Klambauer et al., 2017)"""
    _check_p("alpha_dropout", p)
    if not training or p == 0:
        return input
    return _saturated(input, p, tuple(input.shape), inplace)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``alpha_dropout`` of whole channels of (N, C, ...)"""
    _check_p("feature_alpha_dropout", p)
    if not training or p == 0:
        return input
    if input.ndim < 2:
        raise ShapeError(
            "feature_alpha_dropout: Feature dropout requires at least 2 dimensions in the input, "
            f"(N, C, ...); shape {list(input.shape)} given"
        )
    return _saturated(input, p, (*input.shape[:2], *(1,) * (input.ndim - 2)), inplace)


def _saturated(input: Tensor, p: float, shape: tuple[int, ...], inplace: bool) -> Tensor:
    """``input`` with the value that SELU tends to in a share p, drawn for each place of ``shape``,
    scaled and shifted to the mean and the variance that it had."""
    if p == 1:
        return into(input, lambda x: x * 0, inplace)
    saturated = -1.7580993408473766
    scale = 1.0 / math.sqrt((1 - p) * (1 + p * saturated * saturated))
    keep = ops.rand_like(input.detach()[tuple(slice(n) for n in shape)]) >= p
    shift = saturated * p * scale
    return into(input, lambda x: ops.where(keep, x, saturated) * scale - shift, inplace)


# --- attention --------------------------------------------------------------------------------
def _before(mask: Tensor, queries: int, keys: int) -> Tensor:
    """``mask``, but for keys that stand behind a query."""
    seen = ops.tril(ops.ones(queries, keys, dtype=dtypes.bool, device=mask.device))
    return mask & seen if mask.dtype is dtypes.bool else mask.masked_fill(~seen, -math.inf)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(Q Kᵀ scale + mask) V for (..., L, E), (..., S, E), (..., S, V).

    ``attn_mask``: booleans (True: takes part) or numbers to add. ``enable_gqa``: keys and values
    have fewer heads (dimension -3), each shared by several queries. ``is_causal``: no query takes
    what stands behind it, beside what ``attn_mask`` says.
    """
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: query {list(query.shape)}, key {list(key.shape)}, "
            f"value {list(value.shape)} given; query and key need the same last dimension, key and "
            "value the same length"
        )
    if is_causal and attn_mask is not None:
        attn_mask, is_causal = _before(attn_mask, query.shape[-2], key.shape[-2]), False
    if enable_gqa:
        key, value = _repeat_heads(query, key), _repeat_heads(query, value)
    return ops.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale
    )


def _repeat_heads(query: Tensor, x: Tensor) -> Tensor:
    if query.shape[-3] % x.shape[-3]:
        raise ShapeError(
            f"scaled_dot_product_attention: {query.shape[-3]} query heads are no multiple of "
            f"{x.shape[-3]} key or value heads"
        )
    return x.repeat_interleave(query.shape[-3] // x.shape[-3], -3)


def attention_weights(
    query: Tensor, key: Tensor, attn_mask: Any, is_causal: bool, scale: float | None = None
) -> Tensor:
    """softmax(Q Kᵀ scale + mask), for those who want to see it."""
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = ops.matmul(query * factor, key.transpose(-2, -1))
    if is_causal:
        length, width = scores.shape[-2:]
        attn_mask = ops.ones(length, width, device=query.device).tril() > 0
    if attn_mask is None:
        return ops.softmax(scores, -1)
    if not attn_mask.dtype.is_floating_point:
        return ops.softmax(ops.where(attn_mask, scores, float("-inf")), -1)
    return ops.softmax(scores + attn_mask, -1)
