"""Batch normalisation of (N, C, places) over all but the channels, on arrays.

    batch_norm(x, weight, bias, eps) -> out, mean, variance
    batch_norm_backward(g, x, mean, variance, weight, eps, whole) -> dx, dweight, dbias
    scaled(x, scale, shift) -> x * scale + shift, of any number of places

Sums over a batch are long, and squares around a mean that is far from zero lose digits: both are
kept in float64, whatever the type of ``x``. Code of its own does float32 and float64 where channels
have several places (``llvm/kernels/batch_norm.py``). Elsewhere what is per channel goes with the
rows of (N, C) rows, or with the columns where each channel has one place.
"""

from __future__ import annotations

import functools
import importlib
import math
from functools import partial
from typing import Any

import numpy as np

from ... import threads
from ...addresses import address
from ...family import Family
from ...lang.expr import Expr, cast, var
from ...lang.kernel import Array, Kernel, Loop, Put, Reduce, Store

_WIDE = "float64"
_ROW, _COL = "row", "col"


def _wide(name: str) -> Expr:
    return cast(var(name), _WIDE)


_CENTRED = _wide("x") - var("centre")
_SUMS = {
    "batch_sum": ("x", "", {"total": _wide("x")}),
    "batch_squares": ("x", "centre", {"total": _CENTRED * _CENTRED}),
    "batch_products": ("g x", "centre", {"of_g": _wide("g"), "of_both": _wide("g") * _CENTRED}),
}
_MAPS = {
    "batch_normal": ("x", "centre scale shift", _CENTRED * var("scale") + var("shift")),
    "batch_gradient": (
        "g x", "centre scale mean slope",
        (_wide("g") - var("mean") - _CENTRED * var("slope")) * var("scale"),
    ),
}  # fmt: skip


def _sums(dtype: str, name: str, space: str) -> Kernel:
    """Per channel sums of expressions of full arrays: in rows, or added up in columns."""
    full, known, values = _SUMS[name]
    params = (
        *(Array(n, dtype) for n in full.split()),
        *(Array(n, _WIDE, space) for n in known.split()),
        *(Array(f"{n}s", _WIDE, space, writes=True) for n in values),
    )
    if space == _COL:
        return Kernel(
            name, params, (Loop(tuple(Store(f"{n}s", v, add=True) for n, v in values.items())),)
        )
    folds = Loop(tuple(Reduce(n, "sum", v) for n, v in values.items()))
    return Kernel(name, params, (folds, *(Put(f"{n}s", var(n)) for n in values)))


def _map(dtype: str, name: str, space: str) -> Kernel:
    """One pass over full arrays with numbers per channel."""
    full, known, value = _MAPS[name]
    params = (
        *(Array(n, dtype) for n in full.split()),
        *(Array(n, _WIDE, space) for n in known.split()),
        Array("out", dtype, writes=True),
    )
    return Kernel(name, params, (Loop((Store("out", value),)),))


@functools.cache
def _family(name: str, space: str) -> Family:
    return Family(partial(_sums if name in _SUMS else _map, name=name, space=space))


class _Channels:
    """Arrays of one shape (N, C, places) as the kernels see them."""

    def __init__(self, like: np.ndarray) -> None:
        self.dtype, self.shape = like.dtype, like.shape
        self.flat = like.shape[2] == 1
        self.space = _COL if self.flat else _ROW
        self.count = max(like.shape[0] * like.shape[2], 1)

    def seen(self, *arrays: np.ndarray) -> list[np.ndarray]:
        return [a[:, :, 0] for a in arrays] if self.flat else list(arrays)

    def given(self, *channels: np.ndarray) -> list[np.ndarray]:
        """Numbers per channel, where a row needs them for each of its samples."""
        if self.flat or not channels:
            return list(channels)
        out = np.empty((len(channels), *self.shape[:2]))
        out[...] = np.array(channels).reshape(len(channels), 1, -1)
        return list(out)

    def sums(self, name: str, arrays: tuple, *channels: np.ndarray) -> np.ndarray:
        """(sums, C) of what the kernel ``name`` adds up."""
        rows = self.shape[1:2] if self.flat else self.shape[:2]
        out = np.zeros((len(_SUMS[name][2]), *rows))
        program = _family(name, self.space)[self.dtype]
        program(*self.seen(*arrays), *self.given(*channels), *out)
        return out if self.flat else out.sum(axis=1)

    def mapped(self, name: str, arrays: tuple, *channels: np.ndarray) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        program = _family(name, self.space)[self.dtype]
        program(*self.seen(*arrays), *self.given(*channels), *self.seen(out))
        return out


def _statistics_type(x: np.ndarray) -> type:
    return np.float64 if x.dtype == np.float64 else np.float32


# --- code of its own ---------------------------------------------------------------------------
_SPLIT = 1 << 16  # numbers from which it takes several threads


@functools.cache
def _code(kind: np.dtype) -> Any:
    """What makes machine code is loaded with the first array that needs it."""
    if kind.char not in "fd" or not kind.isnative:
        return None
    return importlib.import_module("...llvm.kernels.batch_norm", __package__).code(kind.name)


@functools.lru_cache(64)
def _alike(channels: int, kind: np.dtype, value: float) -> np.ndarray:
    """What stands for a parameter that is missing; only read."""
    return np.full(channels, value, kind)


def _channel(a: np.ndarray | None, like: np.ndarray, otherwise: float) -> np.ndarray:
    """A number per channel in order, of the type of ``like``."""
    if a is None:
        return _alike(like.shape[1], like.dtype, otherwise)
    plain = a.dtype == like.dtype and a.flags.c_contiguous
    return a if plain else np.ascontiguousarray(a, like.dtype)


def _own(*arrays: np.ndarray) -> Any:
    """The code for arrays (N, C, places) of one type, if there is any."""
    x = arrays[0]
    if x.shape[2] == 1 or not x.size or any(a.dtype != x.dtype for a in arrays):
        return None
    return _code(x.dtype)


def _run(code: Any, x: np.ndarray, eps: float, *arrays: np.ndarray | None) -> None:
    """All channels by ``code``, some by each thread where they are large."""
    places = [None if a is None else address(a) for a in arrays]
    n, c, each = x.shape
    if x.size < _SPLIT:
        code(*places, 0, c, n, c, each, eps)
        return
    threads.spread([
        partial(code, *places, part.start, part.stop, n, c, each, eps)
        for part in threads.portions(c)
    ])  # fmt: skip


def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``x`` normalised per channel, the means and the variances (which divide by the count)."""
    code = _own(x)
    if code is not None:
        x = x if x.flags.c_contiguous else np.ascontiguousarray(x)
        out = np.empty(x.shape, x.dtype)
        found = np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
        given = _channel(weight, x, 1.0), _channel(bias, x, 0.0)
        _run(code[0], x, eps, x, out, *found, *given)
        return out, *found
    over = _Channels(x)
    centre = over.sums("batch_sum", (x,))[0] / over.count
    variance = over.sums("batch_squares", (x,), centre)[0] / over.count
    rstd = 1.0 / np.sqrt(variance + eps)
    scale = rstd if weight is None else rstd * weight.astype(np.float64)
    shift = np.zeros_like(centre) if bias is None else bias.astype(np.float64)
    out = over.mapped("batch_normal", (x,), centre, scale, shift)
    kind = _statistics_type(x)
    return out, centre.astype(kind, copy=False), variance.astype(kind, copy=False)


def batch_norm_backward(
    g: np.ndarray, x: np.ndarray, centre: np.ndarray, variance: np.ndarray,
    weight: np.ndarray | None, eps: float, whole: bool = True,
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:  # fmt: skip
    """The gradients of ``x`` (not unless ``whole``), weight and bias."""
    code = _own(x, g)
    if code is not None:
        g, x = (a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in (g, x))
        dx = np.empty(x.shape, x.dtype) if whole else None
        found = np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
        given = _channel(centre, x, 0.0), _channel(variance, x, 0.0), _channel(weight, x, 1.0)
        _run(code[1], x, eps, g, x, *given, dx, *found)
        return dx, *found
    over, kind = _Channels(x), _statistics_type(x)
    centre, variance = centre.astype(np.float64), variance.astype(np.float64)
    dbias, products = over.sums("batch_products", (g, x), centre)
    rstd = 1.0 / np.sqrt(variance + eps)
    dx = None
    if whole:
        slope = products * rstd * rstd / over.count
        scale = rstd if weight is None else rstd * weight.astype(np.float64)
        dx = over.mapped("batch_gradient", (g, x), centre, scale, dbias / over.count, slope)
    return dx, (products * rstd).astype(kind), dbias.astype(kind)


def _scaled(dtype: str, space: str) -> Kernel:
    given = (Array(name, dtype, space) for name in ("scale", "shift"))
    params = Array("x", dtype), *given, Array("out", dtype, writes=True)
    value = var("x") * var("scale") + var("shift")
    return Kernel("batch_scaled", params, (Loop((Store("out", value),)),))


_SCALED = {space: Family(partial(_scaled, space=space)) for space in (_ROW, _COL)}


def scaled(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``x`` (N, C, ...), in order, times ``scale`` (C,), rounded, plus ``shift`` (C,)."""
    out = np.empty(x.shape, x.dtype)
    if x.ndim == 2:
        _SCALED[_COL][x.dtype](x, scale, shift, out)
        return out
    channels = x.shape[:2]
    given = np.empty((2, *channels), x.dtype)
    given[0], given[1] = scale, shift
    shape = (*channels, math.prod(x.shape[2:]))
    _SCALED[_ROW][x.dtype](x.reshape(shape), given[0], given[1], out.reshape(shape))
    return out
