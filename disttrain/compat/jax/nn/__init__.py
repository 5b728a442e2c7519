"""``jax.nn``: activations, the family of softmax, attention; ``jax.nn.initializers`` beside it."""

from __future__ import annotations

from typing import Any

from ....arrays import activations
from ....nn import functional
from ....ops import api as ops
from .. import types
from ..array import Array
from ..numpy import rows
from ..numpy.lifting import cast, given_back, one, operands, unary
from ..numpy.making import asarray

_ELEMENTS = """
relu=relu:same relu6=relu6:same sigmoid=sigmoid:inexact silu=silu:inexact swish=silu:inexact
tanh=tanh:inexact soft_sign=softsign:inexact selu=selu:inexact mish=mish:inexact
hard_tanh=hardtanh:same hard_sigmoid=hardsigmoid:inexact hard_silu=hardswish:inexact
hard_swish=hardswish:inexact
"""
_TABLE = """
celu! x alpha -> inexact
elu! x alpha -> inexact
gelu! x -> inexact
glu! x -> inexact
leaky_relu! x negative_slope -> inexact
log1mexp! x -> inexact
log_sigmoid! x -> inexact
log_softmax! x | where:own -> inexact
logmeanexp x | where:own -> inexact
logsumexp a b | where:own -> inexact
softmax! x | where:own -> inexact
softplus! x -> inexact
sparse_plus! x -> inexact
sparse_sigmoid! x -> inexact
squareplus! x b -> inexact
standardize! x mean variance | where:own -> inexact
"""
NAMES: dict[str, Any] = rows.table(_TABLE, (activations,))
for _row in _ELEMENTS.split():
    _name, _source, _rule = _row.replace("=", ":").split(":")
    _fn = getattr(functional, _source, None) or getattr(ops, _source)
    NAMES[_name] = unary(_name, _fn, rows.RULES[_rule])


def identity(x: Any) -> Array:
    """``x`` as an array."""
    return asarray(x)


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Array:
    """Which class each element is, along a new axis."""
    kind = types.canonical("float64") if dtype is None else types.asked(dtype, "one_hot")
    out = activations.one_hot(one("one_hot", asarray(x)), int(num_classes), axis)
    return given_back(cast(out, kind), False, x)


def dot_product_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *,
    scale: float | None = None, is_causal: bool = False, query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None, local_window_size: Any = None, implementation: Any = None,
) -> Array:  # fmt: skip
    """Attention of arrays (batch, places, heads, features), or without the batch."""
    given = [query, key, value, bias, mask, query_seq_lengths, key_value_seq_lengths]
    (q, k, v), _ = operands("dot_product_attention", (query, key, value))
    if not q.ndim == k.ndim == v.ndim or q.ndim not in (3, 4):
        raise ValueError(f"query, key and value must have 3 or 4 dimensions, got {q.ndim}, {k.ndim}, {v.ndim}")  # noqa: E501
    if k.shape != v.shape or q.shape[-1] != k.shape[-1] or q.shape[-2] % k.shape[-2]:
        raise ValueError(f"query {tuple(q.shape)}, key {tuple(k.shape)}, value {tuple(v.shape)} do not fit")  # noqa: E501
    batched = q.ndim == 4
    q, k, v = (x if batched else ops.unsqueeze(x, 0) for x in (q, k, v))
    rest = [None if x is None else one("dot_product_attention", x) for x in given[3:]]
    out = activations.attention(
        q, k, v, rest[0], rest[1], scale, is_causal, rest[2], rest[3], local_window_size
    )
    return given_back(out if batched else out[0], False, *given)


NAMES.update(identity=identity, one_hot=one_hot, dot_product_attention=dot_product_attention)
globals().update(NAMES)
__all__ = sorted(NAMES)
