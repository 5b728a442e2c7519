"""``jax.example_libraries.stax``: ``dt.keyed.layers`` of JAX's arrays."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....keyed.layers import Layers
from .. import lax, nn, numpy, random
from ..avals import ShapeDtypeStruct
from ..jit import eval_shape
from ..nn import initializers

_WEIGHTS: Any = {n: initializers.NAMES[n] for n in ("glorot_normal", "normal", "constant")}


def _shape_of(fun: Callable, shape: tuple) -> tuple:
    return eval_shape(fun, ShapeDtypeStruct(shape, np.dtype(np.float32))).shape


_OPS = {**lax.NAMES, **_WEIGHTS, "standardize": nn.NAMES["standardize"], "shape_of": _shape_of}
for _from, _names in ((numpy, "concatenate where ones"), (random, "split bernoulli")):
    _OPS |= {n: _from.NAMES[n] for n in _names.split()}
LAYERS = Layers(SimpleNamespace(**_OPS))
_FUNCTIONS = "elu gelu leaky_relu log_softmax relu selu sigmoid softmax softplus standardize"
_LAYERS = """
elementwise serial parallel shape_dependent Dense=dense BatchNorm=batch_norm Dropout=dropout
GeneralConv=general_conv GeneralConvTranspose=general_conv_transpose Conv=conv
Conv1DTranspose=conv1d_transpose ConvTranspose=conv_transpose MaxPool=max_pool SumPool=sum_pool
AvgPool=avg_pool FanOut=fan_out FanInConcat=fan_in_concat FanInSum=fan_in_sum Identity=identity
Flatten=flatten
"""
_ACTIVATIONS = "Tanh=tanh Relu=relu Softplus=softplus Sigmoid=sigmoid Elu=elu Selu=selu Gelu=gelu"
NAMES: dict[str, Any] = {n: nn.NAMES[n] for n in _FUNCTIONS.split()}
for _row in _LAYERS.split():
    _name, _, _source = _row.partition("=")
    NAMES[_name] = getattr(LAYERS, _source or _name)
for _row in f"{_ACTIVATIONS} LeakyRelu=leaky_relu".split():
    _name, _, _source = _row.partition("=")
    NAMES[_name] = LAYERS.elementwise(nn.NAMES[_source])
NAMES.update(
    Exp=LAYERS.elementwise(numpy.NAMES["exp"]), logsoftmax=nn.NAMES["log_softmax"],
    LogSoftmax=LAYERS.elementwise(nn.NAMES["log_softmax"], axis=-1), randn=_WEIGHTS["normal"],
    Softmax=LAYERS.elementwise(nn.NAMES["softmax"], axis=-1), glorot=_WEIGHTS["glorot_normal"],
    glorot_normal=_WEIGHTS["glorot_normal"], normal=_WEIGHTS["normal"],
    zeros=initializers.NAMES["zeros"], ones=initializers.NAMES["ones"],
)  # fmt: skip
globals().update(NAMES)
