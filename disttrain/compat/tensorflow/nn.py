"""``tf.nn``: layers' functions, with TensorFlow's order of dimensions (channels last) and
padding."""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ...nn import channels_last
from . import math
from .dispatch import COMPLEX, FLOATS, execute, named, op, unary
from .tensor import convert
from .variable import gather_rows

_F: Any = dt.nn.functional

_UNARY = {
    "relu": ("Relu", _F.relu, math.REAL), "relu6": ("Relu6", _F.relu6, math.REAL),
    "elu": ("Elu", _F.elu, FLOATS), "selu": ("Selu", _F.selu, FLOATS),
    "softplus": ("Softplus", _F.softplus, FLOATS), "softsign": ("Softsign", _F.softsign, FLOATS),
}  # fmt: skip


@op("LeakyRelu", "features")
def leaky_relu(features, alpha=0.2):
    features = features if features.dtype.is_floating_point else features.float()
    return _F.leaky_relu(features, alpha)


@op("Gelu", "features", types=FLOATS)
def gelu(features, approximate=False):
    return _F.gelu(features, approximate="tanh" if approximate else "none")


@op("Silu", "features", types=FLOATS)
def silu(features, beta=1.0):
    return features * dt.sigmoid(features * beta)


@op("Concat", "features")
def crelu(features, axis=-1):
    return _F.relu(dt.cat([features, -features], axis))


def _softmax(word: str, kind: str, fn: Any) -> Any:
    def made(logits, axis=None):
        return fn(logits, dim=-1 if axis is None else axis)

    made.__name__ = word
    return op(kind, "logits", types=FLOATS)(made)


@op("Dropout", "x")
def dropout(x, rate, noise_shape=None, seed=None):
    if not 0 <= rate < 1:
        raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). "
                         f"Received: rate={rate}")  # fmt: skip
    if noise_shape is None:
        return _F.dropout(x, rate)
    return x * _F.dropout(dt.ones(noise_shape, dtype=x.dtype), rate)


@op("L2Loss", "t", types=FLOATS)
def l2_loss(t):
    return dt.sum(t * t) / 2


@op("L2Normalize", "x", types=COMPLEX)
def l2_normalize(x, axis=None, epsilon=1e-12):
    dims = math._axes(x, axis)
    least = dt.full((), epsilon, dtype=x.dtype)
    return x * dt.rsqrt(dt.maximum(dt.sum(x * x, dim=dims, keepdim=True), least))


@op("Moments", "x")
def moments(x, axes, shift=None, keepdims=False):
    dims = math._axes(x, axes)
    mean = dt.mean(x, dim=dims, keepdim=True)
    spread = dt.mean(dt.square(x - mean), dim=dims, keepdim=keepdims)
    return (mean if keepdims else dt.mean(x, dim=dims)), spread


@op("BatchNormalization", same="x mean variance offset scale")
def batch_normalization(x, mean, variance, offset, scale, variance_epsilon):
    factor = dt.rsqrt(variance + variance_epsilon)
    factor = factor if scale is None else factor * scale
    shift = -mean * factor if offset is None else offset - mean * factor
    return x * factor + shift


@op("BiasAdd", same="value bias")
def bias_add(value, bias, data_format=None):
    if data_format and data_format.startswith("NC"):
        return value + bias.reshape(-1, *[1] * (value.ndim - 2))
    if value.shape[-1] != bias.shape[0]:
        raise ValueError(f"Must provide as many biases as the last dimension of the input tensor: "
                         f"{list(bias.shape)} vs. {list(value.shape)}")  # fmt: skip
    return value + bias


# --- windows ----------------------------------------------------------------------------------
def _each(value: Any, first: bool) -> Any:
    """Strides and the like, without those of batch and channels."""
    if isinstance(value, int) or len(value) < 3 or (len(value) == 3 and value[0] != 1):
        return value
    return value[2:] if first else value[1:-1]


def _first(data_format: Any) -> bool:
    return bool(data_format) and data_format.startswith("NC")


@op("Convolution", same="input filters", types=FLOATS)
def convolution(input, filters, strides=1, padding="VALID", data_format=None, dilations=1):  # noqa: A002
    first = _first(data_format)
    steps, spread = _each(strides or 1, first), _each(dilations or 1, first)
    return channels_last.conv(input, filters, steps, padding, spread, None, first)


@op("DepthwiseConv2dNative", same="input filter")
def depthwise_conv2d(input, filter, strides, padding, data_format=None, dilations=1):  # noqa: A002
    first = _first(data_format)
    steps, spread = _each(strides, first), _each(dilations or 1, first)
    return channels_last.depthwise_conv(input, filter, steps, padding, spread, first)


@op("SeparableConv2d", same="input depthwise_filter pointwise_filter")
def separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding,  # noqa: A002
                     data_format=None, dilations=1):  # fmt: skip
    first = _first(data_format)
    steps, spread = _each(strides, first), _each(dilations or 1, first)
    found = channels_last.depthwise_conv(input, depthwise_filter, steps, padding, spread, first)
    return channels_last.conv(found, pointwise_filter, first=first)


@op("Conv2DBackpropInput", same="input filters")
def conv2d_transpose(input, filters, output_shape, strides, padding="SAME",  # noqa: A002
                     data_format="NHWC", dilations=1):  # fmt: skip
    first = _first(data_format)
    sizes = list(output_shape)[2:] if first else list(output_shape)[1:-1]
    steps, spread = _each(strides, first), _each(dilations or 1, first)
    return channels_last.conv_transpose(input, filters, sizes, steps, padding, spread, first)


def _pool(word: str, kind: str, fn: Any) -> Any:
    def pool(input, ksize, strides, padding, data_format=None):  # noqa: A002
        first = _first(data_format)
        return fn(input, _each(ksize, first), _each(strides, first), padding, first)

    return named(op(kind, "input", types=FLOATS)(pool), word)


@op("SpaceToDepth", "input")
def space_to_depth(input, block_size, data_format="NHWC"):  # noqa: A002
    return channels_last.space_to_depth(input, block_size)


@op("DepthToSpace", "input")
def depth_to_space(input, block_size, data_format="NHWC"):  # noqa: A002
    return channels_last.depth_to_space(input, block_size)


# --- losses -----------------------------------------------------------------------------------
@op("SoftmaxCrossEntropyWithLogits", same="labels logits", types=FLOATS)
def softmax_cross_entropy_with_logits(labels, logits, axis=-1):
    return -dt.sum(labels * dt.log_softmax(logits, dim=axis), dim=axis)


@op("SparseSoftmaxCrossEntropyWithLogits", "labels logits")
def sparse_softmax_cross_entropy_with_logits(labels, logits):
    count = logits.shape[-1]
    for label in labels.reshape(-1).tolist():
        if not 0 <= label < count:
            raise ValueError(f"Received a label value of {label} which is outside the valid "
                             "range of "
                             f"[0, {count}).  Label values: "
                             f"{' '.join(map(str, labels.reshape(-1).tolist()))}")  # fmt: skip
    found = dt.log_softmax(logits, dim=-1).gather(-1, labels.long().unsqueeze(-1))
    return -found.squeeze(-1)


@op("SigmoidCrossEntropyWithLogits", same="labels logits", types=FLOATS)
def sigmoid_cross_entropy_with_logits(labels, logits):
    if labels.shape != logits.shape:
        raise ValueError(f"`logits` and `labels` must have the same shape, received "
                         f"({tuple(logits.shape)} vs {tuple(labels.shape)}).")  # fmt: skip
    return _F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


@op("WeightedCrossEntropyWithLogits", same="labels logits")
def weighted_cross_entropy_with_logits(labels, logits, pos_weight):
    weight = 1 + (pos_weight - 1) * labels
    return (1 - labels) * logits + weight * _F.softplus(-logits)


@op("LogPoissonLoss", same="targets log_input")
def log_poisson_loss(targets, log_input, compute_full_loss=False):
    return dt.exp(log_input) - log_input * targets


@op("LRN", "input")
def local_response_normalization(input, depth_radius=5, bias=1, alpha=1, beta=0.5):  # noqa: A002
    return channels_last.local_response_norm(input, depth_radius, bias, alpha, beta)


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Any:
    """The rows of ``params`` at ``ids``."""
    found = gather_rows(params, ids, name=name)
    return found if max_norm is None else clip_by_norm(found, max_norm, -1)


def zero_fraction(value: Any, name: str | None = None) -> Any:
    """The share of zeros."""
    t = convert(value)
    return execute("ZeroFraction", lambda v: dt.mean((v == 0).float()), [t], name)


@op("ClipByNorm", "t")
def clip_by_norm(t, clip_norm, axes=None):
    total = dt.sum(t * t, dim=math._axes(t, axes), keepdim=True) if t.ndim else t * t
    there = total > 0
    length = dt.where(there, dt.sqrt(dt.where(there, total, dt.ones_like(total))), total)
    return t * clip_norm / dt.maximum(length, dt.full((), clip_norm, dtype=t.dtype))


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The norm of all tensors together."""
    there = [convert(t) for t in t_list if t is not None]
    return execute(
        "GlobalNorm", lambda *v: dt.sqrt(dt.stack([dt.sum(x * x) for x in v]).sum()), there, name
    )


def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None):
    """The tensors scaled so that their norm together is at most ``clip_norm``, and that norm."""
    norm = global_norm(t_list) if use_norm is None else convert(use_norm)
    scale = clip_norm / math.NAMES["maximum"](norm, clip_norm)
    return [
        None if t is None else convert(t) * math.cast(scale, convert(t).dtype) for t in t_list
    ], norm


NAMES: dict[str, Any] = {
    **{w: unary(w, *row) for w, row in _UNARY.items()},
    **{w: globals()[w] for w in """leaky_relu gelu silu crelu dropout l2_loss l2_normalize moments
    batch_normalization bias_add convolution depthwise_conv2d separable_conv2d conv2d_transpose
    space_to_depth depth_to_space softmax_cross_entropy_with_logits embedding_lookup zero_fraction
    sparse_softmax_cross_entropy_with_logits sigmoid_cross_entropy_with_logits log_poisson_loss
    weighted_cross_entropy_with_logits local_response_normalization""".split()},
    "swish": silu, "lrn": local_response_normalization,
    "softmax": _softmax("softmax", "Softmax", dt.softmax),
    "log_softmax": _softmax("log_softmax", "LogSoftmax", dt.log_softmax),
    **{w: math.NAMES[w] for w in ("sigmoid", "tanh", "top_k", "in_top_k")},
    **{f"conv{n}d": op(f"Conv{n}D", same="input filters", types=FLOATS)(convolution.__wrapped__)
       for n in (1, 2, 3)},
    **{f"{w}_pool{s}": _pool(f"{w}_pool{s}", w.title() + "Pool" + s.upper(), fn)
       for w, fn in (("max", channels_last.max_pool), ("avg", channels_last.avg_pool))
       for s in ("", "1d", "2d", "3d")},
}  # fmt: skip
TOP = {"clip_by_norm": clip_by_norm,
       "clip_by_global_norm": clip_by_global_norm}  # fmt: skip

__all__ = ["NAMES", "TOP"]
