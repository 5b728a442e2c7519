"""``jax.nn``: activations, the family of softmax, attention; ``jax.nn.initializers`` beside it."""

from __future__ import annotations

from typing import Any

from ....arrays import activations
from ....nn import functional
from ....ops import api as ops
from .. import types
from ..array import Array
from ..numpy.lifting import RULES, cast, given_back, one, table, unary
from ..numpy.making import asarray

_ELEMENTS = """
relu=relu:same relu6=relu6:same sigmoid=sigmoid:inexact silu=silu:inexact swish=silu:inexact
tanh=tanh:inexact soft_sign=softsign:inexact selu=selu:inexact mish=mish:inexact
hard_tanh=hardtanh:same hard_sigmoid=hardsigmoid:inexact hard_silu=hardswish:inexact
hard_swish=hardswish:inexact
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
for _row in _ELEMENTS.split():
    _name, _source, _rule = _row.replace("=", ":").split(":")
    _fn = getattr(functional, _source, None) or getattr(ops, _source)
    NAMES[_name] = unary(_name, _fn, RULES[_rule])


def identity(x: Any) -> Array:
    """``x`` as an array."""
    return asarray(x)


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Array:
    """Which class each element is, along a new axis."""
    kind = types.canonical("float64") if dtype is None else types.asked(dtype, "one_hot")
    out = activations.one_hot(one("one_hot", asarray(x)), int(num_classes), axis)
    return given_back(cast(out, kind))


NAMES.update(identity=identity, one_hot=one_hot)
globals().update(NAMES)
__all__ = list(NAMES)
