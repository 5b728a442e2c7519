"""``tf.nn``: layers' functions, with TensorFlow's order of dimensions (channels last) and padding."""

from __future__ import annotations

import math as numbers
from typing import Any

import disttrain as dt

from . import math
from .dispatch import FLOATS, execute, op, unary
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


@op("L2Loss", "t")
def l2_loss(t):
    return dt.sum(t * t) / 2


@op("L2Normalize", "x")
def l2_normalize(x, axis=None, epsilon=1e-12):
    dims = math._axes(x, axis)
    return x * dt.rsqrt(dt.maximum(dt.sum(x * x, dim=dims, keepdim=True), dt.full((), epsilon,
                                                                               dtype=x.dtype)))  # fmt: skip


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


# --- windows ---------------------------------------------------------------------------------------
def _each(value: Any, n: int, first: bool = False) -> list[int]:
    """``n`` numbers, from one, ``n`` or ``n + 2`` (with those of batch and channels)."""
    found = [value] if isinstance(value, int) else list(value)
    if len(found) == 1:
        return found * n
    if len(found) == n + 2:
        return found[2:] if first else found[1:-1]
    return found


def _edges(sizes: Any, window: list, strides: list, dilations: list, padding: Any) -> list:
    """How much is padded before and after each dimension."""
    if not isinstance(padding, str):
        return [tuple(p) for p in padding][1:-1]
    if padding.upper() == "VALID":
        return [(0, 0)] * len(window)
    if padding.upper() != "SAME":
        raise ValueError(f"Value for attr 'padding' of {padding!r} is not in the list of allowed "
                         "values: \"SAME\", \"VALID\", \"EXPLICIT\"")  # fmt: skip
    out = []
    for n, k, s, d in zip(sizes, window, strides, dilations, strict=True):
        total = max((numbers.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        out.append((total // 2, total - total // 2))
    return out


def _padded(x: Any, edges: list, value: float = 0.0) -> Any:
    flat = [n for pair in reversed(edges) for n in pair]
    return _F.pad(x, flat, value=value) if any(flat) else x


def _first(x: Any, n: int, data_format: Any) -> tuple[Any, bool]:
    """``x`` with its channels first, and whether it came so."""
    came = bool(data_format) and data_format.startswith("NC")
    return (x, True) if came else (x.movedim(-1, 1), False)


_CONV = {1: _F.conv1d, 2: _F.conv2d, 3: _F.conv3d}


def _convolved(x: Any, filters: Any, n: int, strides: Any, padding: Any, data_format: Any,
               dilations: Any, groups: int | None = None) -> Any:  # fmt: skip
    moved, came = _first(x, n, data_format)
    depth, inside = moved.shape[1], filters.shape[n]
    if groups is None:
        if depth % inside:
            raise ValueError(f"input depth must be evenly divisible by filter depth: {depth} vs "
                             f"{inside}")  # fmt: skip
        groups = depth // inside
    steps, spread = _each(strides, n, came), _each(dilations or 1, n, came)
    window = list(filters.shape[:n])
    moved = _padded(moved, _edges(moved.shape[2:], window, steps, spread, padding))
    kernel = dt.permute(filters, [n + 1, n, *_line(n)])
    found = _CONV[n](moved, kernel, None, tuple(steps), 0, tuple(spread), groups)
    return found if came else found.movedim(1, -1)


def _line(n: int) -> list[int]:
    return [d for d, _ in enumerate([0] * n)]


def _convolution(word: str, kind: str, n: int) -> Any:
    def conv(input, filters, strides, padding, data_format=None, dilations=None):  # noqa: A002
        return _convolved(input, filters, n, strides, padding, data_format, dilations)

    conv.__name__ = word
    return op(kind, same="input filters", types=FLOATS)(conv)


@op("Convolution", same="input filters")
def convolution(input, filters, strides=None, padding="VALID", data_format=None,  # noqa: A002
                dilations=None):  # fmt: skip
    n = input.ndim - 2
    return _convolved(input, filters, n, strides or 1, padding, data_format, dilations)


@op("DepthwiseConv2dNative", same="input filter")
def depthwise_conv2d(input, filter, strides, padding, data_format=None, dilations=None):  # noqa: A002
    rows, columns, depth, several = filter.shape
    kernel = filter.reshape(rows, columns, 1, depth * several)
    return _convolved(input, kernel, 2, strides, padding, data_format, dilations, depth)


@op("SeparableConv2d", same="input depthwise_filter pointwise_filter")
def separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding,  # noqa: A002
                     data_format=None, dilations=None):  # fmt: skip
    rows, columns, depth, several = depthwise_filter.shape
    kernel = depthwise_filter.reshape(rows, columns, 1, depth * several)
    found = _convolved(input, kernel, 2, strides, padding, data_format, dilations, depth)
    return _convolved(found, pointwise_filter, 2, 1, "VALID", data_format, None)


@op("Conv2DBackpropInput", same="input filters")
def conv2d_transpose(input, filters, output_shape, strides, padding="SAME",  # noqa: A002
                     data_format="NHWC", dilations=None):  # fmt: skip
    moved, came = _first(input, 2, data_format)
    steps, spread, window = _each(strides, 2, came), _each(dilations or 1, 2), list(filters.shape[:2])
    sizes = list(output_shape)[2:] if came else list(output_shape)[1:-1]
    edges = _edges(sizes, window, steps, spread, padding)
    found = _F.conv_transpose2d(moved, dt.permute(filters, [3, 2, 0, 1]), None, tuple(steps), 0, 0, 1,
                                tuple(spread))  # fmt: skip
    for d, ((before, _), n) in enumerate(zip(edges, sizes, strict=True), 2):
        short = before + n - found.shape[d]
        if short > 0:
            found = _F.pad(found, [0, 0] * (3 - d) + [0, short])
        found = found.narrow(d, before, n)
    return found if came else found.movedim(1, -1)


_MAX = {1: _F.max_pool1d, 2: _F.max_pool2d, 3: _F.max_pool3d}
_AVG = {1: _F.avg_pool1d, 2: _F.avg_pool2d, 3: _F.avg_pool3d}


def _pooled(x: Any, n: int, ksize: Any, strides: Any, padding: Any, data_format: Any,
            largest: bool) -> Any:  # fmt: skip
    moved, came = _first(x, n, data_format)
    window, steps = _each(ksize, n, came), _each(strides, n, came)
    edges = _edges(moved.shape[2:], window, steps, [1] * n, padding)
    if largest:
        low = float("-inf")
        found = _MAX[n](_padded(moved, edges, low), tuple(window), tuple(steps))
    else:
        found = _AVG[n](_padded(moved, edges), tuple(window), tuple(steps))
        if any(map(any, edges)):  # what was padded does not count
            ones = _padded(dt.ones_like(moved[:1, :1].detach()), edges)
            found = found / _AVG[n](ones, tuple(window), tuple(steps))
    return found if came else found.movedim(1, -1)


def _pool(word: str, kind: str, n: int | None, largest: bool) -> Any:
    def pool(input, ksize, strides, padding, data_format=None):  # noqa: A002
        return _pooled(input, n or input.ndim - 2, ksize, strides, padding, data_format, largest)

    pool.__name__ = word
    return op(kind, "input", types=FLOATS)(pool)


@op("SpaceToDepth", "input")
def space_to_depth(input, block_size, data_format="NHWC"):  # noqa: A002
    b, h, w, c = input.shape
    parts = input.reshape(b, h // block_size, block_size, w // block_size, block_size, c)
    return dt.permute(parts, [0, 1, 3, 2, 4, 5]).reshape(b, h // block_size, w // block_size, -1)


@op("DepthToSpace", "input")
def depth_to_space(input, block_size, data_format="NHWC"):  # noqa: A002
    b, h, w, c = input.shape
    parts = input.reshape(b, h, w, block_size, block_size, c // block_size**2)
    return dt.permute(parts, [0, 1, 3, 2, 4, 5]).reshape(b, h * block_size, w * block_size, -1)


# --- losses ----------------------------------------------------------------------------------------
@op("SoftmaxCrossEntropyWithLogits", same="labels logits", types=FLOATS)
def softmax_cross_entropy_with_logits(labels, logits, axis=-1):
    return -dt.sum(labels * dt.log_softmax(logits, dim=axis), dim=axis)


@op("SparseSoftmaxCrossEntropyWithLogits", "labels logits")
def sparse_softmax_cross_entropy_with_logits(labels, logits):
    count = logits.shape[-1]
    for label in labels.reshape(-1).tolist():
        if not 0 <= label < count:
            raise ValueError(f"Received a label value of {label} which is outside the valid range of "
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
    squares = _F.pad(input * input, [depth_radius, depth_radius])
    total = squares.unfold(-1, 2 * depth_radius + 1, 1).sum(-1)
    return input / (bias + alpha * total) ** beta


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
    return execute("GlobalNorm", lambda *v: dt.sqrt(sum(dt.sum(x * x) for x in v)), there, name)


def clip_by_global_norm(t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None):
    """The tensors scaled so that their norm together is at most ``clip_norm``, and that norm."""
    norm = global_norm(t_list) if use_norm is None else convert(use_norm)
    scale = clip_norm / math.NAMES["maximum"](norm, clip_norm)
    return [None if t is None else convert(t) * math.cast(scale, convert(t).dtype) for t in t_list], norm


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
    **{f"conv{n}d": _convolution(f"conv{n}d", f"Conv{n}D", n) for n in (1, 2, 3)},
    **{f"{w}_pool{s}": _pool(f"{w}_pool{s}", kind + "Pool" + s.upper(), n, w == "max")
       for w, kind in (("max", "Max"), ("avg", "Avg"))
       for s, n in (("", None), ("1d", 1), ("2d", 2), ("3d", 3))},
}  # fmt: skip
TOP = {"clip_by_norm": clip_by_norm, "global_norm": global_norm,
       "clip_by_global_norm": clip_by_global_norm}  # fmt: skip

__all__ = ["NAMES", "TOP"]
