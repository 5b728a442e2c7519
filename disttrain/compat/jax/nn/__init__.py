"""``jax.nn``: activations, the family of softmax, attention; ``jax.nn.initializers`` beside it."""

from __future__ import annotations

from typing import Any

from ....arrays import activations
from ....nn import functional
from ....ops import api as ops
from .. import types
from ..array import Array, wrap
from ..numpy.lifting import LIFTING, cast, one, table
from ..numpy.making import asarray

_ELEMENTS = """
same: relu relu6 hard_tanh=hardtanh; inexact: sigmoid silu swish=silu tanh soft_sign=softsign selu
mish hard_sigmoid=hardsigmoid hard_silu=hardswish hard_swish=hardswish
"""
_TABLE = """
. -> inexact: glu! log1mexp! log_sigmoid! softplus! sparse_plus! sparse_sigmoid!; . alpha ->
inexact: celu! elu!; x -> inexact: gelu; . negative_slope -> inexact: leaky_relu!; x | where:own ->
inexact: log_softmax! softmax!; . | where:own -> inexact: logmeanexp; a b | where:own -> inexact:
logsumexp; . b -> inexact: squareplus!; . mean variance | where:own -> inexact: standardize!; . key
value | bias:own | mask:own | query_seq_lengths:own | key_value_seq_lengths:own -> same:
dot_product_attention=attention
"""
NAMES: dict[str, Any] = table(_TABLE, (activations,))
NAMES |= LIFTING.elementwise(_ELEMENTS, LIFTING.unary, (functional, ops))


def identity(x: Any) -> Array:
    """``x`` as an array."""
    return asarray(x)


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Array:
    """Which class each element is, along a new axis."""
    out = activations.one_hot(one("one_hot", asarray(x)), int(num_classes), axis)
    return wrap(cast(out, types.asked(dtype, "one_hot", float)))


NAMES.update(identity=identity, one_hot=one_hot)
globals().update(NAMES)
__all__ = list(NAMES)
