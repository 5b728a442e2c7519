"""Primitives of quantization: floating-point numbers as integers on a grid, and products of such.

    quantize(x, scale, zero)         clamp(round(x / scale) + zero) as integers
    dequantize(q, scale, zero)       (q - zero) scale
    fake_quantize(x, scale, zero)    both, with the gradient of what is not clamped (straight
                                     through the rounding: Bengio et al. 2013)
    weight_int8_linear               x (scale w)ᵀ + b for float x and integers w
    dynamic_linear                   the same with x rounded to integers, on a grid from its range
    integer_linear, integer_conv     of integers x and w, with the scales of both: float results

``scale`` and ``zero`` broadcast against x, so one primitive serves a grid for all elements, for a
channel or for a row. Rounding is to the nearest, ties to even, of x times the inverse of the scale
(as in PyTorch); a floating-point ``zero`` is added before rounding. ``w`` is (out, in) of int8, on
a grid around 0 with a scale for each row, or one for all. ``sums`` are the sums of its rows in
int32: what they are needed for is known when w is, long before x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused.convolutions import depthwise
from ...backends.fused.products import int8_product
from ...backends.fused.products.int8_product import levels
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ..declare import broadcast, primitive
from ..promotion import only
from . import windows as win
from .batching import front, merge, split
from .elementwise import cast_like, round_
from .linalg import linear, matmul
from .views import cat, getitem, reshape

F32 = np.dtype(np.float32)
INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
_EXACT, _LARGEST = 1 << 24, 255 * 128  # sums below are numbers of float32; the largest product
_REAL = "fV"  # numpy's kinds, with those of ml_dtypes
_FEW_ROWS = 16  # beyond, a product of floating-point numbers is as fast (measured)


def _computed(x: np.ndarray) -> np.ndarray:
    """In float32, or float64 where it is that."""
    return x if x.dtype.char in "fd" else x.astype(F32)


# --- elements on a grid --------------------------------------------------------------------------
def _quantize(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray, low: int, high: int, dtype: np.dtype
) -> Any:
    if dtype.itemsize > 2:  # such levels are no numbers of float32
        x, scale = x.astype(np.float64), scale.astype(np.float64)
    return levels(_computed(x), scale, zero, low, high).astype(dtype)


def _grid_samples(rng: np.random.Generator) -> list:
    x, zeros = rng.normal(size=(3, 4)), np.array([3, 0, -2], np.int32).reshape(3, 1)
    params = {"low": -8, "high": 7}
    return [
        ((x, np.array(0.3), np.array(1, np.int32)), params),
        ((x, rng.uniform(0.1, 0.5, (3, 1)), zeros), params),
    ]


quantize: Primitive = primitive(
    "quantize", _quantize, "x scale zero",
    shape=lambda x, scale, zero, low, high, dtype: (broadcast(x, scale, zero), dtype),
    samples=lambda rng: [(a, {**p, "dtype": INT8}) for a, p in _grid_samples(rng)],
    promote=only("quantize", _REAL),
)  # fmt: skip
quantize.elementwise = True


def _dequantize(q: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> Any:
    kind = scale.dtype
    if zero.dtype.kind == "f" or q.dtype.itemsize <= 2:
        return (q.astype(kind) - zero.astype(kind)) * scale
    return ((q.astype(np.int64) - zero) * scale).astype(kind)


dequantize: Primitive = primitive(
    "dequantize", _dequantize, "q scale zero",
    shape=lambda q, scale, zero: (broadcast(q, scale, zero), scale.dtype),
    samples=lambda rng: [
        ((_quantize(x, scale, zero, -8, 7, INT8), scale, zero), {})
        for (x, scale, zero), _ in _grid_samples(rng)
    ],
)  # fmt: skip
dequantize.elementwise = True


def _fake(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, low: int, high: int) -> Any:
    kind, scale = x.dtype, scale.astype(_computed(x).dtype)
    found = levels(_computed(x), scale, zero, low, high)
    return ((found - zero.astype(found.dtype)) * scale).astype(kind, copy=False)


def _inside(g: Value, x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    """The gradient where nothing was clamped."""
    level = round_(x * (1.0 / scale)) + zero
    return g * cast_like((level >= low) & (level <= high), g)


fake_quantize: Primitive = primitive(
    "fake_quantize", _fake, "x scale zero", vjp={"x": _inside},
    shape=lambda x, scale, zero, low, high: (broadcast(x, scale, zero), x.dtype),
    samples=_grid_samples, promote=only("fake_quantize", _REAL),
)  # fmt: skip
fake_quantize.elementwise, fake_quantize.takes = True, _REAL


# --- products with integer weights ---------------------------------------------------------------
def _rows(x: Any) -> Any:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _per_row(scale: np.ndarray, n: int) -> Any:
    return np.broadcast_to(scale.astype(F32, copy=False), (n,))


def _linear_shape(x: Shaped, w: Shaped, kind: Any) -> tuple:
    if x.shape[-1] != w.shape[1]:
        raise ValueError(f"the input's last size {x.shape[-1]} is not {w.shape[1]}")
    return (*x.shape[:-1], w.shape[0]), kind


def _weight_linear(
    x: np.ndarray, w: np.ndarray, scale: np.ndarray, b: np.ndarray | None = None
) -> Any:
    rows, kind = _computed(_rows(x)), x.dtype
    if rows.dtype == F32 and len(rows) <= _FEW_ROWS:
        y = int8_product.widened(rows, w, _per_row(scale, len(w)))
    else:
        y = linear.forward(rows, w.astype(rows.dtype)) * scale
    if b is not None:
        y += b
    return y.reshape(*x.shape[:-1], len(w)).astype(kind, copy=False)


def _alone(prim: Callable[[], Any]) -> Callable:
    """The batch rule of a product, of which x alone may have examples: more rows. Where others have
    them, it runs for each."""

    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        if any(d is not None for d in dims[1:]):
            return _each(prim(), args, dims, params, size), 0
        if "own" in params:
            params = {**params, "own": params["own"] + 1}
        return prim()(front(args[0], dims[0]), *args[1:], **params), 0

    return rule


def _each(prim: Any, args: tuple, dims: tuple, params: dict, size: int) -> Any:
    args = tuple(a if d is None else front(a, d) for a, d in zip(args, dims, strict=True))
    outs = []
    for k in range(size):
        one = [a if d is None else getitem(a, index=(k,)) for a, d in zip(args, dims, strict=True)]
        out = prim(*one, **params)
        outs.append(reshape(out, shape=(1, *out.shape)))
    return cat(*outs, dim=0, sizes=(1,) * size)


def _integers(rng: np.random.Generator, *shape: int, dtype: np.dtype = INT8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _weights(rng: np.random.Generator, out: int, *shape: int) -> tuple:
    """Of so many rows: integers, and scales such that results are near 1."""
    w = _integers(rng, out, *shape)
    return w, rng.uniform(0.5, 1.5, out) / (100 * math.prod(shape) ** 0.5)


weight_int8_linear: Primitive = primitive(
    "weight_int8_linear", _weight_linear, "x w scale b",
    vjp={
        "x": lambda g, w, scale: matmul(g * cast_like(scale, g), cast_like(w, g)),
        "scale": lambda g, x, w: g * linear(x, cast_like(w, x), None),
        "b": lambda g: g,
    },
    shape=lambda x, w, scale, b=None: _linear_shape(x, w, x.dtype),
    batch=_alone(lambda: weight_int8_linear), promote=only("weight_int8_linear", _REAL),
    samples=lambda rng: [
        ((rng.normal(size=(3, 5)), *_weights(rng, 4, 5), rng.normal(size=4)), {}),
        ((rng.normal(size=(2, 3, 5)), _integers(rng, 4, 5), np.array(0.02), None), {}),
    ],
)  # fmt: skip


weight_int8_linear.takes = _REAL


def _integer_linear(
    x: np.ndarray, w: np.ndarray, scale: np.ndarray, sums: np.ndarray | None = None,
    b: np.ndarray | None = None, *, x_scale: float, x_zero: int,
) -> Any:  # fmt: skip
    rows = _rows(x)
    m, n = len(rows), len(w)
    zero, own = np.full(m, x_zero, np.int32), np.full(m, x_scale, F32)
    sums = int8_product.row_sums(w) if sums is None else sums
    y = int8_product.scaled(rows, zero, own, w, _per_row(scale, n), sums, b)
    return y.reshape(*x.shape[:-1], n)


integer_linear: Primitive = primitive(
    "integer_linear", _integer_linear, "x w scale sums b",
    shape=lambda x, w, scale, sums=None, b=None, x_scale=1, x_zero=0: _linear_shape(x, w, F32),
    batch=_alone(lambda: integer_linear),
    samples=lambda rng: [
        (
            (_integers(rng, 3, 5, dtype=UINT8), *_weights(rng, 4, 5), None, rng.normal(size=4)),
            {"x_scale": 0.01, "x_zero": 7},
        ),
        (
            (_integers(rng, 2, 3, 5), _integers(rng, 4, 5), np.array(0.02), None, None),
            {"x_scale": 0.01, "x_zero": -3},
        ),
    ],
)  # fmt: skip


def _dynamic_linear(
    x: np.ndarray, w: np.ndarray, scale: np.ndarray, sums: np.ndarray | None = None,
    b: np.ndarray | None = None, *, own: int, symmetric: bool, low: int, high: int,
) -> Any:  # fmt: skip
    rows = _rows(x).astype(F32, copy=False)
    n, groups = len(w), math.prod(x.shape[:own])
    sums = int8_product.row_sums(w) if sums is None else sums
    scales = np.ascontiguousarray(_per_row(scale, n))
    grid = int8_product.Grid(low, high, symmetric)
    y = int8_product.dynamic(rows, groups, grid, w, scales, sums, b)
    return y.reshape(*x.shape[:-1], n).astype(x.dtype, copy=False)


dynamic_linear: Primitive = primitive(
    "dynamic_linear", _dynamic_linear, "x w scale sums b",
    shape=lambda x, w, scale, sums=None, b=None, own=0, symmetric=False, low=0, high=255: (
        _linear_shape(x, w, x.dtype)
    ),
    batch=_alone(lambda: dynamic_linear), promote=only("dynamic_linear", _REAL),
    samples=lambda rng: [
        (
            (rng.normal(size=(3, 5)), *_weights(rng, 4, 5), None, rng.normal(size=4)),
            {"own": 0, "symmetric": False, "low": 0, "high": 255},
        ),
        (
            (rng.normal(size=(2, 3, 5)), _integers(rng, 4, 5), np.array(0.02), None, None),
            {"own": 2, "symmetric": True, "low": -127, "high": 127},
        ),
    ],
)  # fmt: skip


# --- convolution ---------------------------------------------------------------------------------
def _columns(x: np.ndarray, kernel: tuple, out: tuple, stride: tuple, dilation: tuple) -> Any:
    """The windows of a padded x (N, C, *size), as rows (N places, *kernel, C) of a matrix."""
    d = len(kernel)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    seen = win.windows(np.moveaxis(last, -1, 1), kernel, out, stride, dilation)
    order = (0, *range(2 + d, 2 + 2 * d), *range(2, 2 + d), 1)
    rows = np.ascontiguousarray(seen.transpose(order))
    return rows.reshape(len(x) * math.prod(out), math.prod(kernel) * x.shape[1])


def _integer_conv(
    x: np.ndarray, w: np.ndarray, scale: np.ndarray, b: np.ndarray | None = None, *,
    x_scale: float, x_zero: int, stride: tuple, padding: tuple, dilation: tuple, groups: int,
) -> Any:  # fmt: skip
    out = win.out_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    x = win.padded(x, padding, x_zero)
    channels, kernel = len(w), w.shape[2:]
    each = channels // groups
    scales = _per_row(scale, channels)
    if w.shape[1] == 1 and groups > 1:
        y = _one_channel(x, w, scales, x_scale, x_zero, stride, dilation, out)
        return y if b is None else y + b.reshape(-1, *(1,) * len(out)).astype(F32, copy=False)
    y = np.empty((len(x), channels, *out), F32)
    for group in range(groups):
        part = slice(group * each, (group + 1) * each)
        taken = slice(group * w.shape[1], (group + 1) * w.shape[1])
        rows = _columns(x[:, taken], kernel, out, stride, dilation)
        flat = np.moveaxis(w[part], 1, -1).reshape(each, rows.shape[1])
        found = _integer_linear(
            rows, np.ascontiguousarray(flat), scales[part], None, None if b is None else b[part],
            x_scale=x_scale, x_zero=x_zero,
        )  # fmt: skip
        y[:, part] = np.moveaxis(found.reshape(len(x), *out, each), -1, 1)
    return y


def _one_channel(
    x: np.ndarray, w: Any, scales: np.ndarray, x_scale: float, x_zero: int, stride: tuple,
    dilation: tuple, out: tuple,
) -> Any:  # fmt: skip
    """One input channel per group: a sum of shifted planes."""
    n, c = x.shape[:2]
    each, factor = len(w) // c, (F32.type(x_scale) * scales).reshape(-1, *(1,) * len(out))
    if math.prod(w.shape[2:]) * _LARGEST < _EXACT:  # a kernel of float32 is exact, too
        y, how = np.empty((n, len(w), *out), F32), {"padding": (0,) * len(out), "groups": c}
        given = x.astype(F32) - x_zero, w.astype(F32), None, y
        if depthwise.convolve(*given, stride=stride, dilation=dilation, **how):
            return y * factor
    shifted = (x.astype(np.int32) - x_zero)[:, :, None]
    total = np.zeros((n, c, each, *out), np.int32)
    for tap, where in win.taps(w.shape[2:], out, stride, dilation):
        weight: Any = w[(slice(None), 0, *tap)]
        weight = weight.astype(np.int32).reshape(c, each, *(1,) * len(out))
        total += shifted[(slice(None), slice(None), slice(None), *where)] * weight
    return total.reshape(n, len(w), *out).astype(F32) * factor


def _conv_shape(x: Shaped, w: Shaped, scale: object, b: object = None, **params: Any) -> tuple:
    steps = (params[name] for name in ("stride", "padding", "dilation"))
    return (x.shape[0], w.shape[0], *win.out_sizes(x.shape[2:], w.shape[2:], *steps)), F32


def _conv_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    if any(d is not None for d in dims[1:]):
        return _each(integer_conv, args, dims, params, size), 0
    return split(integer_conv(merge(front(args[0], dims[0])), *args[1:], **params), size), 0


_PLAIN = {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 1}
integer_conv: Primitive = primitive(
    "integer_conv", _integer_conv, "x w scale b", shape=_conv_shape, batch=_conv_batch,
    samples=lambda rng: [
        (
            (_integers(rng, 2, 3, 5, 4, dtype=UINT8), *_weights(rng, 4, 3, 2, 3), None),
            {"x_scale": 0.01, "x_zero": 9, **_PLAIN},
        ),
        (
            (_integers(rng, 1, 4, 6), *_weights(rng, 4, 2, 3), rng.normal(size=4)),
            {
                "x_scale": 0.01, "x_zero": -2,
                "stride": (2,), "padding": (2,), "dilation": (2,), "groups": 2,
            },
        ),
    ],
)  # fmt: skip
