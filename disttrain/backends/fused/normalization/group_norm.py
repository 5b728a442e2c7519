"""Normalisation of (N, C, ...) over the places of groups of channels, on arrays.

    group_norm(x, weight, bias, groups, eps) -> out, mean, rstd
    group_norm_backward(g, x, mean, rstd, weight, groups) -> dx, dweight, dbias

``mean`` and ``rstd`` are (N, groups). Code of its own does float32 and float64 where channels have
enough places. Elsewhere sums of the kernels go over a group, or over the places of a channel; what
is between them, a few numbers per channel, is numpy's. Where channels have a few places only,
groups are rows of ``norms.layer_norm``.
"""

from __future__ import annotations

import importlib
import math
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from ... import threads
from ...addresses import address
from ...family import Family
from ...lang.expr import fma, rsqrt, var
from ...lang.expr import max as at_least
from ...lang.kernel import Array, Kernel, Let, Loop, Put, Reduce, Scalar, Store, wide_type
from . import norms

_FEW = 16  # places of a channel up to which they are few
_LEAST = 4  # places of a channel from which own code gains (measured)
_SPLIT = 1 << 16  # numbers from which it takes several threads
_X, _G, _CENTRED = var("x"), var("g"), var("x") - var("centre")


def _rows(wide: str, *names: str) -> list[Array]:
    return [Array(name, wide, "row") for name in names]


def _statistics(dtype: str) -> Kernel:
    """Rows are groups. The squares are of distances from a number near the mean (as in
    ``norms.layer_norm``)."""
    wide, near = wide_type(dtype), _X - var("near")
    params = (
        Array("x", dtype), Scalar("eps", wide), Scalar("share", wide),
        Array("means", wide, "row", writes=True), Array("rstds", wide, "row", writes=True),
    )  # fmt: skip
    spread = var("squares") * var("share") - var("rest") * var("rest")
    steps = (
        Loop((Reduce("total", "sum", _X),)),
        Let("near", var("total") * var("share")),
        Loop((Reduce("squares", "sum", fma(near, near, 0.0)), Reduce("left", "sum", near))),
        Let("rest", var("left") * var("share")),
        Put("means", var("near") + var("rest")),
        Put("rstds", rsqrt(at_least(spread, 0.0) + var("eps"))),
    )
    return Kernel("group_statistics", params, steps)


def _normal(dtype: str) -> Kernel:
    """Rows are channels of samples, here and below."""
    wide = wide_type(dtype)
    params = (
        Array("x", dtype), *_rows(wide, "centre", "scale", "shift"),
        Array("out", dtype, writes=True),
    )  # fmt: skip
    value = fma(_CENTRED, var("scale"), var("shift"))
    return Kernel("group_normal", params, (Loop((Store("out", value),)),))


def _sums(dtype: str) -> Kernel:
    wide = wide_type(dtype)
    outs = [Array(name, wide, "row", writes=True) for name in ("of_gs", "of_boths")]
    params = (Array("g", dtype), Array("x", dtype), Array("centre", wide, "row"), *outs)
    folds = Reduce("of_g", "sum", _G), Reduce("of_both", "sum", _G * _CENTRED)
    puts = Put("of_gs", var("of_g")), Put("of_boths", var("of_both"))
    return Kernel("group_sums", params, (Loop(folds), *puts))


def _gradient(dtype: str) -> Kernel:
    wide = wide_type(dtype)
    params = (
        Array("g", dtype), Array("x", dtype), *_rows(wide, "centre", "scale", "slope", "shift"),
        Array("out", dtype, writes=True),
    )  # fmt: skip
    value = fma(_G, var("scale"), fma(_CENTRED, var("slope"), var("shift")))
    return Kernel("group_gradient", params, (Loop((Store("out", value),)),))


_STATISTICS, _NORMAL, _SUMS, _GRADIENT = map(Family, (_statistics, _normal, _sums, _gradient))


@cache
def _code(kind: str, places: int) -> Any:
    """What makes machine code is loaded with the first array that needs it."""
    code = importlib.import_module("...llvm.kernels.group_norm", __package__)
    return code.code(kind, code.is_short(kind, places))


class _Groups:
    """Numbers per group and per channel of samples."""

    def __init__(self, shape: tuple, dtype: np.dtype, groups: int) -> None:
        self.n, self.channels, places = shape
        self.groups, self.each = groups, self.channels // groups
        self.kind = np.dtype(np.float64 if dtype == np.float64 else np.float32)
        self.rows = (self.n, groups, self.each * places)
        self.share = 1.0 / max(self.each * places, 1)
        self.sizes = self.groups, self.each, places
        own = dtype == self.kind and dtype.isnative and places >= _LEAST
        self.code: Any = _code(dtype.name, places) if own and 0 not in shape else None

    def run(self, code: Any, eps: float, *arrays: np.ndarray) -> None:
        """All groups by ``code``, some by each thread where they are large."""
        places, count = [address(a) for a in arrays], self.n * self.groups
        if count * self.each * self.sizes[2] < _SPLIT:
            code(*places, 0, count, *self.sizes, eps, self.share)
            return
        threads.spread([
            partial(code, *places, part.start, part.stop, *self.sizes, eps, self.share)
            for part in threads.portions(count)
        ])  # fmt: skip

    def channels_of(self, a: np.ndarray | None, otherwise: float) -> np.ndarray:
        """A parameter in order, which may be missing."""
        if a is None:
            return np.full(self.channels, otherwise, self.kind)
        plain = a.dtype == self.kind and a.flags.c_contiguous
        return a if plain else np.ascontiguousarray(a, self.kind)

    def spread(self, a: np.ndarray) -> np.ndarray:
        """(N, groups) as (N, C)."""
        return np.repeat(a, self.each, 1)

    def mean(self, a: np.ndarray) -> np.ndarray:
        """Sums per channel (N, C) as the mean over all places of a group, as (N, C)."""
        return self.spread(a.reshape(self.n, self.groups, self.each).sum(2) * self.share)

    def per_channel(self, a: np.ndarray | None, otherwise: float) -> Any:
        """A parameter, which may be missing."""
        return self.kind.type(otherwise) if a is None else a.astype(self.kind, copy=False)

    def given(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Numbers of each channel of each sample as the kernels take them."""
        found = np.empty((len(arrays), self.n, self.channels), self.kind)
        for row, a in zip(found, arrays, strict=True):
            row[...] = a
        return list(found)


_groups = lru_cache(64)(_Groups)


def _affine(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    out = x if weight is None else x * weight[:, None]
    return out if bias is None else out + bias[:, None]


def group_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, groups: int, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``x`` normalised, times ``weight`` and plus ``bias`` (each (C,)), the means and one over the
    spreads."""
    shape = x.shape
    x = _in_places(x)
    over = _groups(x.shape, x.dtype, groups)
    out, mean, rstd = _normalised(over, x, weight, bias, eps)
    return out.reshape(shape), mean, rstd


def _in_places(a: np.ndarray) -> np.ndarray:
    """(N, C, ...) in order, as (N, C, places)."""
    a = a if a.flags.c_contiguous else np.ascontiguousarray(a)
    return a if a.ndim == 3 else a.reshape(*a.shape[:2], math.prod(a.shape[2:]))


def _normalised(
    over: _Groups, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    groups = over.groups
    if over.code is not None:
        return _forward(over, x, weight, bias, eps)
    seen = x.reshape(over.rows)
    if x.shape[2] <= _FEW:
        out, mean, rstd = norms.layer_norm(seen, None, None, eps)
        return _affine(out.reshape(x.shape), weight, bias), mean, rstd
    mean, rstd = (np.empty((over.n, groups), over.kind) for _ in range(2))
    _STATISTICS[x.dtype](seen, float(eps), over.share, mean, rstd)
    scale = over.spread(rstd) * over.per_channel(weight, 1.0)
    out = np.empty(x.shape, x.dtype)
    given = over.given(over.spread(mean), scale, over.per_channel(bias, 0.0))
    _NORMAL[x.dtype](x, *given, out)
    return out, mean, rstd


def group_norm_backward(
    g: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray, weight: np.ndarray | None,
    groups: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """The gradients of ``x``, weight and bias."""
    shape, kind = x.shape, x.dtype if weight is None else weight.dtype
    g, x = _in_places(g), _in_places(x)
    over = _groups(x.shape, x.dtype, groups)
    if over.code is not None and g.dtype == x.dtype:
        dx = np.empty(shape, x.dtype)  # no view of another array: a leaf may keep it as it is
        dweight, dbias = _backward(over, g, x, mean, rstd, weight, dx)
        return dx, dweight.astype(kind, copy=False), dbias.astype(kind, copy=False)
    dx, dweight, dbias = _gradients(over, g, x, mean, rstd, weight, kind)
    return dx.reshape(shape), dweight, dbias


def _gradients(
    over: _Groups, g: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray,
    weight: np.ndarray | None, kind: np.dtype,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    if x.shape[2] <= _FEW:
        return _few_backward(g, x, mean, rstd, weight, over, kind)
    centre, rstd = over.spread(mean), over.spread(rstd)
    of_g, of_both = (np.empty((over.n, over.channels), over.kind) for _ in range(2))
    (means,) = over.given(centre)
    _SUMS[x.dtype](g, x, means, of_g, of_both)
    of_both *= rstd
    factor = over.per_channel(weight, 1.0)
    slope = -over.mean(of_both * factor) * rstd * rstd
    shift = -over.mean(of_g * factor) * rstd
    dx = np.empty(x.shape, x.dtype)
    given = over.given(centre, rstd * factor, slope, shift)
    _GRADIENT[x.dtype](g, x, *given, dx)
    dweight, dbias = norms.joined(of_both), norms.joined(of_g)
    return dx, dweight.astype(kind, copy=False), dbias.astype(kind, copy=False)


def _forward(
    over: _Groups, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    out = np.empty(x.shape, x.dtype)
    mean, rstd = (np.empty((over.n, over.groups), over.kind) for _ in range(2))
    given = over.channels_of(weight, 1.0), over.channels_of(bias, 0.0)
    over.run(over.code[0], float(eps), x, out, mean, rstd, *given)
    return out, mean, rstd


def _backward(
    over: _Groups, g: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray,
    weight: np.ndarray | None, dx: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Those of weight and bias; that of ``x`` in ``dx``."""
    mean, rstd = (np.ascontiguousarray(a, over.kind) for a in (mean, rstd))
    sums = np.empty((2, over.n, over.channels), over.kind)
    factor = over.channels_of(weight, 1.0)
    over.run(over.code[1], 0.0, g, x, mean, rstd, factor, dx, *sums)
    of_g, of_both = norms.joined(sums)
    return of_both, of_g


def _few_backward(
    g: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray, weight: np.ndarray | None,
    over: _Groups, kind: np.dtype,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    inner, seen = (
        np.ascontiguousarray(a).reshape(over.rows) for a in (_affine(g, weight, None), x)
    )
    dx = norms.layer_norm_backward(inner, seen, mean, rstd, None)[0]
    hat = ((seen.astype(over.kind, copy=False) - mean[..., None]) * rstd[..., None]).reshape(
        x.shape
    )
    sums = [norms.joined(a.sum(2)) for a in (g * hat, g.astype(over.kind, copy=False))]
    return dx.reshape(x.shape), sums[0].astype(kind), sums[1].astype(kind)


__all__ = ["group_norm", "group_norm_backward"]
