"""``tf.nn``: layers' functions, with TensorFlow's order of dimensions (channels last) and
padding."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ...arrays import normalizing
from ...nn import channels_last, logits
from . import math
from .dispatch import FLOATS, execute, op, table, unary
from .tensor import convert
from .variable import gather_rows

_F: Any = dt.nn.functional


# --- windows ----------------------------------------------------------------------------------
def _each(value: Any, first: bool) -> Any:
    """Strides and the like, without those of batch and channels."""
    if isinstance(value, int) or len(value) < 3 or (len(value) == 3 and value[0] != 1):
        return value
    return value[2:] if first else value[1:-1]


def _first(data_format: Any) -> bool:
    return bool(data_format) and data_format.startswith("NC")


def _conv(x, filters, strides, padding, layout, dilations):
    first = _first(layout)
    steps, spread = _each(strides or 1, first), _each(dilations or 1, first)
    return channels_last.conv(x, filters, steps, padding, spread, None, first)


def _depthwise(x, filters, strides, padding, layout, dilations):
    first = _first(layout)
    steps, spread = _each(strides, first), _each(dilations or 1, first)
    return channels_last.depthwise_conv(x, filters, steps, padding, spread, first)


def _separable(x, depthwise, pointwise, strides, padding, layout, dilations):
    found = _depthwise(x, depthwise, strides, padding, layout, dilations)
    return channels_last.conv(found, pointwise, first=_first(layout))


def _transposed(x, filters, shape, strides, padding, layout, dilations):
    first = _first(layout)
    sizes = list(shape)[2:] if first else list(shape)[1:-1]
    steps, spread = _each(strides, first), _each(dilations or 1, first)
    return channels_last.conv_transpose(x, filters, sizes, steps, padding, spread, first)


def _pool(fn: Any) -> Any:
    def pool(x, window, strides, padding, layout):
        first = _first(layout)
        return fn(x, _each(window, first), _each(strides, first), padding, first)

    return pool


def _dropout(x, rate, shape):
    if not 0 <= rate < 1:
        raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). "
                         f"Received: rate={rate}")  # fmt: skip
    ones = x if shape is None else dt.ones(shape, dtype=x.dtype)
    return _F.dropout(ones, rate) * (1 if shape is None else x)


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Any:
    """The rows of ``params`` at ``ids``."""
    found = gather_rows(params, ids, name=name)
    return found if max_norm is None else clip_by_norm(found, max_norm, -1)


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The norm of all tensors together."""
    there = [convert(t) for t in t_list if t is not None]
    return execute("GlobalNorm", normalizing.global_norm, there, name)


def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None):
    """The tensors scaled so that their norm together is at most ``clip_norm``, and that norm."""
    norm = global_norm(t_list) if use_norm is None else convert(use_norm)
    scale = clip_norm / math.NAMES["maximum"](norm, clip_norm)
    given = [None if t is None else convert(t) for t in t_list]
    return [None if t is None else t * math.cast(scale, t.dtype) for t in given], norm


clip_by_norm = op("clip_by_norm", "ClipByNorm", normalizing.clip_by_norm, "t! clip_norm axes=None")
_CONV = "input~ filters~ strides=1 padding='VALID' data_format=None dilations=1"
_POOL = "input! ksize strides padding data_format=None"
_TWO = "strides padding data_format=None dilations=1"
_ROWS: dict[str, tuple] = {
    "leaky_relu": ("LeakyRelu", lambda x, alpha: _F.leaky_relu(
        x if x.dtype.is_floating_point else x.float(), alpha), "features! alpha=0.2"),
    "gelu": ("Gelu", lambda x, near: _F.gelu(x, approximate="tanh" if near else "none"),
             "features! approximate=False", FLOATS),
    "silu": ("Silu", lambda x, beta: x * dt.sigmoid(x * beta), "features! beta=1.0", FLOATS),
    "crelu": ("Concat", lambda x, axis: _F.relu(dt.cat([x, -x], axis)), "features! axis=-1"),
    "dropout": ("Dropout", _dropout, "x! rate noise_shape=None _seed=None"),
    "l2_loss": ("L2Loss", lambda t: dt.sum(t * t) / 2, "t!", FLOATS),
    "moments": ("Moments", normalizing.moments, "x! axes _shift=None keepdims=False"),
    "batch_normalization": ("BatchNormalization", normalizing.batch_normalization,
                            "x~ mean~ variance~ offset~ scale~ variance_epsilon"),
    "bias_add": ("BiasAdd", normalizing.bias_add, "value~ bias~ data_format=None"),
    "convolution": ("Convolution", _conv, _CONV, FLOATS),
    **{f"conv{n}d": (f"Conv{n}D", _conv, _CONV, FLOATS) for n in (1, 2, 3)},
    "depthwise_conv2d": ("DepthwiseConv2dNative", _depthwise, f"input~ filter~ {_TWO}"),
    "separable_conv2d": ("SeparableConv2d", _separable,
                         f"input~ depthwise_filter~ pointwise_filter~ {_TWO}"),
    "conv2d_transpose": ("Conv2DBackpropInput", _transposed, "input~ filters~ output_shape "
                         "strides padding='SAME' data_format='NHWC' dilations=1"),
    **{f"{w}_pool{s}": (w.title() + "Pool" + s.upper(), _pool(fn), _POOL, FLOATS)
       for w, fn in (("max", channels_last.max_pool), ("avg", channels_last.avg_pool))
       for s in ("", "1d", "2d", "3d")},
    "space_to_depth": ("SpaceToDepth", channels_last.space_to_depth,
                       "input! block_size _data_format='NHWC'"),
    "depth_to_space": ("DepthToSpace", channels_last.depth_to_space,
                       "input! block_size _data_format='NHWC'"),
    "local_response_normalization": ("LRN", channels_last.local_response_norm,
                                     "input! depth_radius=5 bias=1 alpha=1 beta=0.5"),
    "softmax_cross_entropy_with_logits": (
        "SoftmaxCrossEntropyWithLogits", logits.softmax_cross_entropy,
        "labels~ logits~ axis=-1", FLOATS),
    "sparse_softmax_cross_entropy_with_logits": (
        "SparseSoftmaxCrossEntropyWithLogits", logits.sparse_softmax_cross_entropy,
        "labels! logits!"),
    "sigmoid_cross_entropy_with_logits": (
        "SigmoidCrossEntropyWithLogits", logits.sigmoid_cross_entropy, "labels~ logits~", FLOATS),
    "weighted_cross_entropy_with_logits": (
        "WeightedCrossEntropyWithLogits", logits.weighted_cross_entropy,
        "labels~ logits~ pos_weight"),
    "log_poisson_loss": ("LogPoissonLoss", logits.log_poisson,
                         "targets~ log_input~ _compute_full_loss=False"),
}  # fmt: skip
NAMES: dict[str, Any] = {
    **{w: unary(w, w.title(), getattr(_F, w), math.REAL) for w in ("relu", "relu6")},
    **{w: unary(w, w.title(), getattr(_F, w), FLOATS) for w in ("elu", "selu")},
    **table(_ROWS), "embedding_lookup": embedding_lookup,
    **{w: math.NAMES[w] for w in """softplus softsign softmax log_softmax l2_normalize
       zero_fraction sigmoid tanh top_k in_top_k""".split()},
}  # fmt: skip
NAMES |= {"swish": NAMES["silu"], "lrn": NAMES["local_response_normalization"]}
TOP = {"clip_by_norm": clip_by_norm, "clip_by_global_norm": clip_by_global_norm}
