"""Primitives of convolution, in any number of dimensions, and of unfold / fold.

Three primitives, each bilinear, whose derivatives are each other:

    conv(x, w, b)                 x (N, C, ...), w (O, C / groups, ...) -> (N, O, ...)
    conv_input_grad(g, w; size)   the adjoint in x; also the transposed convolution
    conv_weight_grad(g, x)        the adjoint in w

Where generated code gains (``backends/fused/convolutions/``), there are fewer products
(``winograd``), or windows are multiplied where they lie (``convolution``, ``small_planes`` for what
is small, ``depthwise`` for single channels). What ``winograd`` finds not to be finite is computed
by the others, where it stays in its windows. Else a convolution unfolds its input into columns, a
few samples at a time so that they stay in the cache, and multiplies matrices. (Unfolding a whole
batch, one product per kernel position and long rows without cropping were measured too; they lose
nearly everywhere.)
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np

from ...backends.fused.convolutions import convolution, depthwise, residues, small_planes, winograd
from ...backends.fused.convolutions.taps import products, weighted_sum
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...core.types.wide import through_float32
from ..declare import primitive
from . import windows as win
from .batching import front, fronted, merge, split
from .elementwise import H
from .reduce import sum_
from .views import getitem, permute, reshape

_FEW_PLACES = 64  # of a gradient, in which a matrix of weights is not turned (measured)


class Steps(TypedDict):
    """How a kernel goes over its input."""

    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int


# --- on arrays ---------------------------------------------------------------------------------
def _conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    groups: int,
) -> Any:
    out = win.out_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    y = np.empty((x.shape[0], w.shape[0], *out), np.result_type(x, w))
    how: Steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if w.shape[1] == 1 and groups > 1 and depthwise.convolve(x, w, b, y, **how):
        return y
    if small_planes.convolve(x, w, b, y, **how):
        return y
    left = winograd.convolve(x, w, b, y, **how)
    if left is None:
        return _conv_directly(x, w, b, y, **how)
    for k in left:
        _conv_directly(x[k : k + 1], w, b, y[k : k + 1], **how)
    return y


def _conv_directly(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None,
    y: np.ndarray,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    groups: int,
) -> np.ndarray:
    """``y`` as sums of products."""
    n, channels, *out = y.shape
    kernel = w.shape[2:]
    how: Steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if math.prod(kernel) > 1 and convolution.convolve(x, w, b, y, **how):
        return y
    flat = y.reshape(n, groups, channels // groups, math.prod(out))
    x = win.padded(x, padding)
    bias = None if b is None else b.reshape(groups, channels // groups, 1)
    if w.shape[1] == 1 and groups > 1:
        _depthwise(x, w, y, tuple(out), stride, dilation)
        if bias is not None:
            flat += bias
        return y
    rows = np.ascontiguousarray(w)
    rows = rows.reshape(groups, channels // groups, w.shape[1] * math.prod(kernel))
    for part, columns in win.unfolded(x, kernel, tuple(out), stride, dilation, groups):
        region = flat[part]
        np.matmul(rows, columns, out=region)
        if bias is not None:
            region += bias
    return y


def _depthwise(
    x: np.ndarray, w: Any, y: np.ndarray, out: tuple, stride: tuple, dilation: tuple
) -> None:
    """One input channel per group: a sum of scaled shifts."""
    n, c = x.shape[:2]
    each = w.shape[0] // c
    w = w.reshape(c, each, 1, *w.shape[2:])
    spread = (slice(None),) * 3
    views, scales = [], []
    for tap, where in win.taps(w.shape[3:], out, stride, dilation):
        scales.append(w[(*spread, *tap)].reshape(c, each, *(1,) * len(out)))
        views.append(x[(slice(None), slice(None), None, *where)])
    weighted_sum(views, scales, y.reshape(n, c, each, *out))


def _input_grad(
    g: np.ndarray,
    w: Any,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    groups: int,
    size: tuple,
) -> Any:
    dx = np.empty((g.shape[0], w.shape[1] * groups, *size), np.result_type(g, w))
    how: Steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if w.shape[1] == 1 and groups > 1 and depthwise.input_grad(g, w, dx, **how):
        return dx
    if small_planes.input_grad(g, w, dx, **how):
        return dx
    left = residues.input_grad(g, w, dx, **how)
    if left is None:
        return _input_grad_directly(g, w, dx, **how)
    for k in left:
        dx[k : k + 1] = _input_grad_directly(g[k : k + 1], w, dx[k : k + 1], **how)
    return dx


def _input_grad_directly(
    g: np.ndarray,
    w: Any,
    dx: np.ndarray,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    groups: int,
) -> np.ndarray:
    """As sums of products, perhaps in ``dx``."""
    kernel, out, size = w.shape[2:], g.shape[2:], dx.shape[2:]
    how: Steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if math.prod(kernel) > 1 and convolution.input_grad(g, w, dx, **how):
        return dx
    if groups == 1 or w.shape[1] == 1:
        back = tuple(d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True))
        # Unfolding g costs what g has channels, folding back what x has.
        cheaper = 2 * w.shape[0] <= 3 * w.shape[1] * groups
        # (A transposed convolution may be asked for more than that: its output_padding.)
        exact = size == tuple(o + b - p for o, b, p in zip(out, back, padding, strict=True))
        plain = all(s == 1 for s in stride) and min(back) >= 0 and cheaper and exact
        if plain and np.isfinite(w).all():  # zeros around g are multiplied, too
            w = residues.flipped(w, groups)
            return _conv_directly(g, w, None, dx, stride=stride, padding=back, dilation=dilation,
                                  groups=groups)  # fmt: skip
    n, channels = g.shape[0], w.shape[1] * groups
    shape = tuple(s + 2 * p for s, p in zip(size, padding, strict=True))
    full = np.zeros((n, groups, w.shape[1], *shape), np.result_type(g, w))
    count, places = math.prod(kernel), math.prod(out)
    each = w.shape[0] // groups
    flat = g.reshape(n, groups, each, places)
    if places <= _FEW_PLACES:  # the matrix as it is: to turn it takes longer than the sums
        rows = w.reshape(groups, each, w.shape[1] * count).swapaxes(1, 2)
        split = (groups, w.shape[1], count, *out)
    else:  # its rows by kernel position, then channel, so that one position's rows are together
        rows = w.reshape(groups, each, w.shape[1], count).transpose(0, 3, 2, 1)
        rows = np.ascontiguousarray(rows).reshape(groups, count * w.shape[1], each)
        split = (groups, count, w.shape[1], *out)
    for part in win.chunks(n, channels * count * places):
        columns = np.matmul(rows, flat[part])
        columns = columns.reshape(len(columns), *split)
        columns = columns.swapaxes(2, 3) if places <= _FEW_PLACES else columns
        win.fold_into(full[part], columns, kernel, out, stride, dilation)
    full = full.reshape(n, channels, *shape)
    return np.ascontiguousarray(full[win.inside(size, padding)]) if any(padding) else full


def _weight_grad(
    g: np.ndarray,
    x: np.ndarray,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    groups: int,
    kernel: tuple,
) -> Any:
    n, channels = g.shape[:2]
    out = g.shape[2:]
    each = x.shape[1] // groups
    dw = np.empty((channels, each, *kernel), np.result_type(g, x))
    how: Steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if each == 1 and groups > 1 and depthwise.weight_grad(g, x, dw, **how):
        return dw
    if small_planes.weight_grad(g, x, dw, **how):
        return dw
    if winograd.weight_grad(g, x, dw, **how):
        return dw
    if math.prod(kernel) > 1 and convolution.weight_grad(g, x, dw, **how):
        return dw
    x = win.padded(x, padding)
    if each == 1 and groups > 1:
        return _depthwise_grad(g, x, kernel, stride, dilation)
    flat = g.reshape(n, groups, channels // groups, math.prod(out))
    total: Any = None
    for part, columns in win.unfolded(x, kernel, out, stride, dilation, groups):
        products = np.matmul(flat[part], columns.swapaxes(-1, -2))
        term = products[0] if len(products) == 1 else products.sum(axis=0)
        if total is None:
            total = term
        else:
            total += term
    if total is None:
        total = np.zeros((channels, each * math.prod(kernel)), np.result_type(g, x))
    return total.reshape(channels, each, *kernel)


def _depthwise_grad(
    g: np.ndarray, x: np.ndarray, kernel: tuple, stride: tuple, dilation: tuple
) -> Any:
    out = g.shape[2:]
    n, c = x.shape[:2]
    g = g.reshape(n, c, g.shape[1] // c, *out)
    dw = np.empty((c, g.shape[2], *kernel), np.result_type(g, x))
    dims = (0, *range(3, g.ndim - 1))
    taps = list(win.taps(kernel, out, stride, dilation))
    channels: tuple = (slice(None), slice(None), None)
    views = [x[channels + where] for _, where in taps]
    for (tap, _), rows in zip(taps, products(g, views), strict=True):
        dw[channels[:2] + tap] = rows.sum(axis=dims)
    return dw.reshape(-1, 1, *kernel)


# --- the primitives ----------------------------------------------------------------------------
def _conv_shape(
    x: Shaped,
    w: Shaped,
    b: object = None,
    *,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    groups: int,
) -> tuple:
    out = win.out_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    return (x.shape[0], w.shape[0], *out), x.dtype


def _conv_rule(
    g: Value, x: Value, w: Value, needs: tuple, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> tuple:  # fmt: skip
    how: Steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    dx = dw = db = None
    if needs[0]:
        dx = conv_input_grad(g, H(w), **how, size=tuple(x.shape)[2:])
    if needs[1]:
        dw = conv_weight_grad(g, H(x), **how, kernel=tuple(w.shape)[2:])
    if len(needs) > 2 and needs[2]:
        db = sum_(g, dims=(0, *range(2, len(g.shape))), keepdim=False)
    return (dx, dw, db)[: len(needs)]


def _conv_jvp(primals: tuple, tangents: tuple, params: dict) -> Any:
    x, w = primals[:2]
    dx, dw, db = (*tangents, None)[:3]
    parts = []
    if dx is not None:
        parts.append(conv(dx, w, None, **params))
    if dw is not None:
        parts.append(conv(x, dw, None, **params))
    total = None
    for part in parts:
        total = part if total is None else total + part
    if db is None:
        return total
    column = reshape(db, shape=(-1, *(1,) * (len(x.shape) - 2)))
    if total is None:
        total = conv(x, w, None, **params) * 0
    return total + column


def _channels(x: Any, dim: int | None, size: int) -> Any:
    """A batch dimension folded into the channels: (N, B C, ...)."""
    x = fronted(x, dim, size)
    return merge(permute(x, dims=(1, 0, *range(2, len(x.shape)))), 1)


def _grouped(params: dict, size: int) -> dict:
    return {**params, "groups": params["groups"] * size}


def _conv_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    x, w = args[:2]
    b, b_dim = (args[2], dims[2]) if len(args) > 2 else (None, None)
    if dims[1] is None and b_dim is None:
        out = conv(merge(front(x, dims[0])), w, b, **params)
        return split(out, size), 0
    w = merge(fronted(w, dims[1], size))
    if b is not None:
        b = merge(fronted(b, b_dim, size))
    out = conv(_channels(x, dims[0], size), w, b, **_grouped(params, size))
    return split(out, size, 1), 1


def _input_grad_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    g, w = args
    if dims[1] is None:
        return split(conv_input_grad(merge(front(g, dims[0])), w, **params), size), 0
    w = merge(fronted(w, dims[1], size))
    out = conv_input_grad(_channels(g, dims[0], size), w, **_grouped(params, size))
    return split(out, size, 1), 1


def _weight_grad_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    g, x = (_channels(a, d, size) for a, d in zip(args, dims, strict=True))
    return split(conv_weight_grad(g, x, **_grouped(params, size)), size), 0


def _how(stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1, n: int = 2) -> dict:
    return {"stride": (stride,) * n, "padding": (padding,) * n, "dilation": (dilation,) * n,
            "groups": groups}  # fmt: skip


def _conv_samples(rng: np.random.Generator) -> list:
    x, w, b = rng.normal(size=(2, 2, 5, 4)), rng.normal(size=(4, 2, 3, 2)), rng.normal(size=4)
    return [
        ((x, w, b), _how()),
        ((x, w[:, :1], None), _how(2, 1, 1, 2)),
        ((x, w[:2], b[:2]), _how(1, 2, 2)),
        ((x[:, :, 0], w[:, :, 0], None), _how(n=1)),
    ]


def _cut(a: Value, shape: tuple) -> Any:
    """The first places of ``a``: a size may have room for more than there were (output_padding)."""
    if tuple(a.shape) == tuple(shape):
        return a
    return getitem(a, index=tuple(slice(0, n) for n in shape))


def _input_grad_samples(rng: np.random.Generator) -> list:
    g, w = rng.normal(size=(2, 4, 3, 2)), rng.normal(size=(4, 2, 3, 2))
    return [
        ((g, w), {**_how(2, 1), "size": (5, 3)}),
        ((g, w[:, :1]), {**_how(1, 0, 1, 2), "size": (5, 3)}),
        ((g, w), {**_how(1, 1, 2), "size": (6, 3)}),
    ]


def _weight_grad_samples(rng: np.random.Generator) -> list:
    g, x = rng.normal(size=(2, 4, 3, 2)), rng.normal(size=(2, 2, 5, 3))
    return [
        ((g, x), {**_how(2, 1), "kernel": (3, 2)}),
        ((g, x), {**_how(1, 0, 1, 2), "kernel": (3, 2)}),
    ]


conv: Primitive = primitive(
    "conv", through_float32(_conv), "x w b", vjp=_conv_rule, jvp=_conv_jvp, batch=_conv_batch,
    shape=_conv_shape, samples=_conv_samples,
)  # fmt: skip
conv_input_grad: Primitive = primitive(
    "conv_input_grad", through_float32(_input_grad), "g_out w",
    vjp={
        "g_out": lambda g, w, g_out_shape, stride, padding, dilation, groups: _cut(
            conv(g, H(w), None, stride=stride, padding=padding, dilation=dilation, groups=groups),
            g_out_shape,
        ),
        "w": lambda g, g_out, w_shape, stride, padding, dilation, groups: conv_weight_grad(
            H(g_out), g, stride=stride, padding=padding, dilation=dilation, groups=groups,
            kernel=tuple(w_shape)[2:],
        ),
    },
    jvp="multilinear", batch=_input_grad_batch, samples=_input_grad_samples,
    shape=lambda g_out, w, groups, size, **rest: (
        (g_out.shape[0], w.shape[1] * groups, *size), g_out.dtype
    ),
)  # fmt: skip
conv_weight_grad: Primitive = primitive(
    "conv_weight_grad", through_float32(_weight_grad), "g_out x",
    vjp={
        "g_out": lambda g, x, g_out_shape, stride, padding, dilation, groups: _cut(
            conv(H(x), g, None, stride=stride, padding=padding, dilation=dilation, groups=groups),
            g_out_shape,
        ),
        "x": lambda g, g_out, x_shape, stride, padding, dilation, groups: conv_input_grad(
            H(g_out), g, stride=stride, padding=padding, dilation=dilation, groups=groups,
            size=tuple(x_shape)[2:],
        ),
    },
    jvp="multilinear", batch=_weight_grad_batch, samples=_weight_grad_samples,
    shape=lambda g_out, x, groups, kernel, **rest: (
        (g_out.shape[1], x.shape[1] // groups, *kernel), x.dtype
    ),
)  # fmt: skip


# --- windows as columns ------------------------------------------------------------------------
def _unfold(x: np.ndarray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple) -> Any:
    out = win.out_sizes(x.shape[2:], kernel, stride, padding, dilation)
    view = win.windows(win.padded(x, padding), kernel, out, stride, dilation)
    columns = view.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out))
    return columns.copy() if np.may_share_memory(columns, x) else columns


def _fold(
    columns: np.ndarray, size: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> Any:
    out = win.out_sizes(size, kernel, stride, padding, dilation)
    n, count = columns.shape[0], math.prod(kernel)
    channels = columns.shape[1] // count
    shape = tuple(s + 2 * p for s, p in zip(size, padding, strict=True))
    full = np.zeros((n, 1, channels, *shape), columns.dtype)
    columns = columns.reshape(n, 1, channels, count, *out).swapaxes(2, 3)
    win.fold_into(full, columns, kernel, out, stride, dilation)
    return np.ascontiguousarray(full[:, 0][win.inside(size, padding)])


def _fold_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    return split(fold_columns(merge(front(args[0], dims[0])), **params), size), 0


def _unfold_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    return split(unfold_columns(merge(front(args[0], dims[0])), **params), size), 0


def _unfold_shape(
    x: Shaped, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> tuple:
    out = win.out_sizes(x.shape[2:], kernel, stride, padding, dilation)
    return (x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out)), x.dtype


_WINDOW = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}

unfold_columns: Primitive = primitive(
    "im2col", _unfold, "x",
    vjp={
        "x": lambda g, x_shape, kernel, stride, padding, dilation: fold_columns(
            g, size=tuple(x_shape)[2:], kernel=kernel, stride=stride, padding=padding,
            dilation=dilation,
        )
    },
    jvp="linear", batch=_unfold_batch, shape=_unfold_shape,
    samples=lambda rng: [((rng.normal(size=(2, 2, 5, 4)),), dict(_WINDOW))],
)  # fmt: skip
fold_columns: Primitive = primitive(
    "col2im", _fold, "columns",
    vjp={
        "columns": lambda g, kernel, stride, padding, dilation: unfold_columns(
            g, kernel=kernel, stride=stride, padding=padding, dilation=dilation
        )
    },
    jvp="linear", batch=_fold_batch,
    shape=lambda columns, size, kernel, **rest: (
        (columns.shape[0], columns.shape[1] // math.prod(kernel), *size), columns.dtype
    ),
    samples=lambda rng: [((rng.normal(size=(2, 12, 6)),), {**_WINDOW, "size": (5, 4)})],
)  # fmt: skip
