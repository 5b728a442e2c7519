"""Normalization of rows, channels and groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import FLOAT, Ref, Unmapped, is_number, same_size
from ..writer import Writer, rule


def _each(w: Writer, given: Ref | None, n: Any, value: float, dtype: Any) -> Ref:
    """A weight or a bias, or what changes nothing."""
    return w.full((n,), value, dtype) if given is None else given


@rule("layer_norm")
def _layer_norm(w: Writer, x: Ref, weight: Ref | None, bias: Ref | None, eps: float) -> tuple:
    n = (x.shape or ())[-1]
    scale = _each(w, weight, n, 1, x.dtype)
    if w.alone:
        return w.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=float(eps)), None, None
    out, mean, rstd = w.node(
        "LayerNormalization", x, scale, bias, outputs=3, axis=-1, epsilon=float(eps)
    )
    last = (x.rank - 1,)
    return out, *(w.squeeze(Ref(r.name, FLOAT), last) for r in (mean, rstd))


def _mean_square(w: Writer, x: Ref, eps: float) -> Ref:
    """One over the root of the mean square of rows."""
    square = w.reduce("ReduceMean", w.node("Mul", x, x), (x.rank - 1,), True)
    return w.node("Reciprocal", w.node("Sqrt", w.node("Add", square, w.constant(eps, x.dtype))))


@rule("rms_norm")
def _rms_norm(w: Writer, x: Ref, weight: Ref | None, eps: float) -> tuple:
    if w.opset >= 23 and w.alone:
        scale = _each(w, weight, (x.shape or ())[-1], 1, x.dtype)
        return w.node("RMSNormalization", x, scale, axis=-1, epsilon=float(eps)), None
    rstd = _mean_square(w, x, eps)
    out = w.node("Mul", x, rstd)
    out = out if weight is None else w.node("Mul", out, weight)
    return out, lambda: w.squeeze(rstd, (x.rank - 1,))


def _statistics(w: Writer, x: Ref, dims: tuple[int, ...]) -> tuple[Ref, Ref]:
    """The mean and the variance over some dimensions, which stay."""
    mean = w.reduce("ReduceMean", x, dims, True)
    centred = w.node("Sub", x, mean)
    return mean, w.reduce("ReduceMean", w.node("Mul", centred, centred), dims, True)


def _column(w: Writer, a: Ref, rank: int) -> Ref:
    """Numbers of channels, against (N, C, ...)."""
    return w.reshape(a, (-1, *(1,) * (rank - 2)))


def _normal(w: Writer, x: Ref, mean: Ref, variance: Ref, eps: float) -> Ref:
    root = w.node("Sqrt", w.node("Add", variance, w.constant(eps, variance.dtype)))
    return w.node("Div", w.node("Sub", x, mean), root)


def _affine(w: Writer, x: Ref, weight: Ref | None, bias: Ref | None, rank: int) -> Ref:
    if weight is not None:
        x = w.node("Mul", x, _column(w, weight, rank))
    return x if bias is None else w.node("Add", x, _column(w, bias, rank))


@rule("batch_norm")
def _batch_norm(w: Writer, x: Ref, weight: Ref | None, bias: Ref | None, eps: float) -> tuple:
    """By the statistics of the batch, which are results, too. (Runtimes for inference have no
    ``BatchNormalization`` that makes them.)"""
    mean, variance = _statistics(w, x, (0, 2))
    out = _affine(w, _normal(w, x, mean, variance, eps), weight, bias, 3)
    return out, lambda: w.squeeze(mean, (0, 2)), lambda: w.squeeze(variance, (0, 2))


@rule("batch_norm_known")
def _batch_norm_known(
    w: Writer, x: Ref, centre: Ref, variance: Ref, weight: Any, bias: Any, eps: float
) -> Ref:
    return inferred(w, x, centre, variance, weight, bias, eps)


def inferred(
    w: Writer, x: Ref, mean: Ref, variance: Ref, weight: Ref | None, bias: Ref | None, eps: float
) -> Ref:
    """``BatchNormalization`` by statistics that are known."""
    n = (mean.shape or ())[0]
    scale, shift = _each(w, weight, n, 1, x.dtype), _each(w, bias, n, 0, x.dtype)
    return w.node("BatchNormalization", x, scale, shift, mean, variance, epsilon=float(eps))


@rule("group_norm")
def _group_norm(
    w: Writer, x: Ref, weight: Ref | None, bias: Ref | None, groups: int, eps: float
) -> tuple:
    channels = (x.shape or ())[1]
    if not is_number(channels):
        raise Unmapped("group_norm of channels that depend on the input")
    if w.opset >= 21 and not same_size(groups, channels):
        scale, shift = (_each(w, a, channels, v, x.dtype) for a, v in ((weight, 1), (bias, 0)))
        out = w.node("GroupNormalization", x, scale, shift, num_groups=groups, epsilon=float(eps))
    else:
        out = _by_instances(w, x, weight, bias, groups, eps)
    return out, lambda: _of_groups(w, x, groups, eps)[0], lambda: _of_groups(w, x, groups, eps)[1]


def _by_instances(
    w: Writer, x: Ref, weight: Ref | None, bias: Ref | None, groups: int, eps: float
) -> Ref:
    """Groups as channels of their own."""
    if same_size(groups, (x.shape or ())[1]):
        scale, shift = (_each(w, a, groups, v, x.dtype) for a, v in ((weight, 1), (bias, 0)))
        return w.node("InstanceNormalization", x, scale, shift, epsilon=float(eps))
    ones, zeros = (w.full((groups,), v, x.dtype) for v in (1, 0))
    rows = _rows(w, x, groups)
    out = w.node("InstanceNormalization", rows, ones, zeros, epsilon=float(eps))
    return _affine(w, w.reshape(out, x.shape or ()), weight, bias, x.rank)


def _rows(w: Writer, x: Ref, groups: int) -> Ref:
    return w.node("Reshape", x, w.constant([0, groups, -1], np.int64))


def _of_groups(w: Writer, x: Ref, groups: int, eps: float) -> tuple[Ref, Ref]:
    """The means of groups, and one over the roots of their variances."""
    mean, variance = _statistics(w, _rows(w, x, groups), (2,))
    root = w.node("Sqrt", w.node("Add", variance, w.constant(eps, variance.dtype)))
    return w.squeeze(mean, (2,)), w.squeeze(w.node("Reciprocal", root), (2,))
