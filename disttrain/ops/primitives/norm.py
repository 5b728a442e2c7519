"""Primitives of normalisation: layer and rms over rows (fused kernels), batch over channels, group
over groups of them.

A fused backward is a primitive whose own derivative is composed of others, so that gradients of
gradients are right too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused.normalization import batch_norm as channels
from ...backends.fused.normalization import group_norm as grouped
from ...backends.fused.normalization import norms as fused
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...core.types.wide import is_half
from ..declare import declare_apart, primitive
from . import elementwise as el
from .batching import at_once, by_kernel, computed, fronted, merge, split
from .elementwise import rsqrt, square
from .reduce import mean, sum_
from .softmax import dense
from .views import permute, reshape

_F32 = np.dtype(np.float32)


# --- layer norm and rms norm, over the last dimension of (rows, columns) -----------------------
def _layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple:
    return fused.layer_norm(dense(x), weight, bias, eps)


def _statistics_type(kind: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if kind == np.float64 else np.float32)


def _layer_shape(x: Shaped, weight: object, bias: object, eps: float) -> list:
    rows = (x.shape[:-1], _statistics_type(x.dtype))
    return [(x.shape, x.dtype), rows, rows]


def _mean(x: Any) -> Any:
    return mean(x, dims=(len(x.shape) - 1,), keepdim=True)


def _standardised(x: object, eps: float, centre: bool = True) -> tuple:
    """x less its mean (unless told not to) over its root mean square, and one over that."""
    centred = x - _mean(x) if centre else x
    rstd = rsqrt(_mean(square(centred)) + eps)
    return centred * rstd, rstd


def _rows_sum(x: Any) -> Any:
    return sum_(x, dims=tuple(range(len(x.shape) - 1)), keepdim=False)


def _in_float32(pull: Callable, g: object, x: Any, weight: object, *rest: float) -> tuple:
    """The gradients that ``pull`` composes on Tensors, of half types rounded once."""
    kind = x.meta()[1]
    if not is_half(kind):
        return pull(g, x, weight, *rest)
    wide = (None if t is None else el.cast(t, dtype=_F32) for t in (g, x, weight))
    return tuple(None if t is None else el.cast(t, dtype=kind) for t in pull(*wide, *rest))


def _pull(g: Value, x: object, weight: Value | None, eps: float, centre: bool, bias: bool) -> tuple:
    """The gradients of x, weight and bias, composed (differentiable again)."""
    normal, rstd = _standardised(x, eps, centre)
    inner = g if weight is None else g * weight
    dx = inner - normal * _mean(inner * normal)
    if centre:
        dx = dx - _mean(inner)
    dweight = None if weight is None else _rows_sum(g * normal)
    return dx * rstd, dweight, _rows_sum(g) if bias else None


layer_norm_backward = by_kernel(
    "layer_norm_backward", fused.layer_norm_backward, "g x mean rstd weight"
)
rms_norm_backward = by_kernel("rms_norm_backward", fused.rms_norm_backward, "g x rstd weight")


def _layer_rule(
    g: tuple, x: Any, weight: Value | None, out: tuple, eps: float, needs: tuple
) -> tuple:
    """The kernel on arrays; on Tensors the same thing composed, so that it can be derived again."""
    g = g[0]
    _, centre, rstd = out
    if not isinstance(g, np.ndarray):
        if at_once(g):
            dx, *sums = computed(layer_norm_backward, (g, x, centre, rstd, weight))
            if not sums:
                sums = [None, _rows_sum(g) if needs[2] else None]
            return dx, sums[0], sums[1]
        dx, dweight, dbias = _in_float32(_pull, g, x, weight, eps, True, needs[2])
        return dx, dweight if needs[1] else None, dbias
    dx, dweight, dbias = fused.layer_norm_backward(dense(g), dense(x), centre, rstd, weight)
    if needs[2] and dbias is None:
        dbias = _rows_sum(g)
    return dx, dweight, dbias


def _rms_rule(g: tuple, x: object, weight: object, out: tuple, eps: float, needs: tuple) -> tuple:
    g = g[0]
    if not isinstance(g, np.ndarray):
        if at_once(g):
            return (*computed(rms_norm_backward, (g, x, out[1], weight)), None)[:2]
        return _in_float32(_pull, g, x, weight, eps, False, False)[:2]
    return fused.rms_norm_backward(dense(g), dense(x), out[1], weight)


def _norm_batch(
    prim: Primitive, args: tuple, dims: tuple, params: dict, size: int
) -> tuple[tuple, tuple]:
    x = fronted(args[0], dims[0], size)
    if all(d is None for d in dims[1:]):
        outs = prim(x, *args[1:], **params)
        return outs, (0,) * len(outs)
    normal = prim(x, *(None,) * (len(args) - 1), **params)
    between = (1,) * (len(x.shape) - 2)
    out = normal[0]
    for a, d, join in zip(args[1:], dims[1:], (el.mul, el.add), strict=False):
        if a is not None:
            a = fronted(a, d, size)
            out = join(out, reshape(a, shape=(size, *between, a.shape[-1])))
    return (out, *normal[1:]), (0,) * len(normal)


def _layer_samples(rng: np.random.Generator) -> list:
    x = rng.normal(size=(3, 5))
    return [
        ((x, rng.normal(size=5), rng.normal(size=5)), {"eps": 1e-5}),
        ((x, None, None), {"eps": 1e-5}),
    ]


layer_norm_rows: Primitive = primitive(
    "layer_norm", _layer_norm, "x weight bias", vjp=_layer_rule, multi=True,
    nondiff_outputs=(1, 2), shape=_layer_shape, samples=_layer_samples,
    batch=lambda *a: _norm_batch(layer_norm_rows, *a),
)  # fmt: skip
rms_norm_rows: Primitive = primitive(
    "rms_norm", fused.rms_norm, "x weight", vjp=_rms_rule, multi=True, nondiff_outputs=(1,),
    shape=lambda x, weight, eps: [
        (x.shape, x.dtype), (x.shape[:-1], _statistics_type(x.dtype))
    ],
    samples=lambda rng: [((rng.normal(size=(3, 5)), rng.normal(size=5)), {"eps": 1e-5})],
    batch=lambda *a: _norm_batch(rms_norm_rows, *a),
)  # fmt: skip


# --- batch norm, over all but the channels of (N, C, places) -----------------------------------
def _batch_rule(
    g: tuple, x: Any, weight: Value | None, out: tuple, eps: float, needs: tuple
) -> tuple:
    g, (_, centre, variance) = g[0], out
    if not isinstance(g, np.ndarray):
        if at_once(g):
            given = (g, x, centre, variance, weight)
            dx, dweight, dbias = computed(batch_norm_backward, given, eps=eps)
        else:
            dx, dweight, dbias = _in_float32(_batch_pull, g, x, weight, eps)
    else:
        given = (g, x, centre, variance, weight, eps, needs[0])
        dx, dweight, dbias = channels.batch_norm_backward(*given)
    return dx, dweight if needs[1] else None, dbias if needs[2] else None


batch_norm_backward = by_kernel(
    "batch_norm_backward", channels.batch_norm_backward, "g x centre variance weight"
)


def _over(x: Any) -> Any:
    return mean(x, dims=(0, 2), keepdim=True)


def _batch_pull(g: object, x: object, weight: object, eps: float) -> tuple:
    """The same, composed (differentiable again)."""
    centred = x - _over(x)
    rstd = rsqrt(_over(square(centred)) + eps)
    normal = centred * rstd
    inner = g if weight is None else g * reshape(weight, shape=(-1, 1))
    dx = (inner - _over(inner) - normal * _over(inner * normal)) * rstd
    return dx, *(sum_(a, dims=(0, 2), keepdim=False) for a in (g * normal, g))


def _channels_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    """Every sample of the batch has channels of its own."""
    x = fronted(args[0], dims[0], size)
    x = merge(permute(x, dims=(1, 0, 2, 3)), 1)
    affine = [None if a is None else merge(fronted(a, d, size)) for a, d in
              zip(args[1:], dims[1:], strict=True)]  # fmt: skip
    out, centre, variance = batch_norm_channels(x, *affine, **params)
    return (split(out, size, 1), split(centre, size), split(variance, size)), (1, 0, 0)


def _channels_shape(x: Shaped, weight: object, bias: object, eps: float) -> list:
    each = (x.shape[1:2], _statistics_type(x.dtype))
    return [(x.shape, x.dtype), each, each]


batch_norm_channels: Primitive = primitive(
    "batch_norm", channels.batch_norm, "x weight bias", vjp=_batch_rule, multi=True,
    nondiff_outputs=(1, 2), shape=_channels_shape, batch=_channels_batch,
    samples=lambda rng: [
        ((rng.normal(size=(3, 2, 4)), rng.normal(size=2), rng.normal(size=2)), {"eps": 1e-5})
    ],
)  # fmt: skip


# --- batch norm by statistics that are known ---------------------------------------------------
def factors(centre: Any, variance: Any, weight: Any, bias: Any, eps: float) -> tuple:
    """By what channels are multiplied, and what is added then."""
    scale = rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    return scale, (-centre * scale if bias is None else bias - centre * scale)


def _known(x: np.ndarray, centre: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Any:
    return channels.scaled(x, *factors(centre, variance, weight, bias, eps))


def _known_rule(
    g: Value, x: Any, centre: Any, variance: Any, weight: Any, needs: tuple, eps: float
) -> tuple:
    """What the steps of ``factors`` and of their use would give, in their bits."""
    shape = tuple(x.shape)
    over = (0, *(k for k in range(2, len(shape)) if shape[k] != 1))
    column = (-1, *(1,) * (len(shape) - 2))
    rstd = rsqrt(variance + eps)
    dx = dweight = dbias = None
    if needs[0]:
        scale = rstd if weight is None else rstd * weight
        dx = g * reshape(scale, shape=column)
    if needs[3] or needs[4]:
        dbias = reshape(sum_(g, dims=over, keepdim=False), shape=(-1,))
    if needs[3]:
        product = reshape(sum_(g * x, dims=over, keepdim=False), shape=(-1,))
        dweight = (product - dbias * centre) * rstd
    return dx, None, None, dweight, dbias if needs[4] else None


# For arrays of one type on the host, in order; not where the statistics want gradients.
batch_norm_known: Primitive = declare_apart(
    "batch_norm_known", _known, "x centre variance weight bias", _known_rule
)


# --- group norm, over the places of groups of channels of (N, C, ...) --------------------------
def _group_rule(
    g: tuple, x: Any, weight: Value | None, out: tuple, groups: int, eps: float, needs: tuple
) -> tuple:
    g, (_, centre, rstd) = g[0], out
    if isinstance(g, np.ndarray):
        found: Any = grouped.group_norm_backward(g, x, centre, rstd, weight, groups)
    elif at_once(g):
        found = computed(group_norm_backward, (g, x, centre, rstd, weight), groups=groups)
    else:
        found = _in_float32(_group_pull, g, x, weight, groups, eps)
    return tuple(a if needed else None for a, needed in zip(found, needs, strict=True))


group_norm_backward = by_kernel(
    "group_norm_backward", grouped.group_norm_backward, "g x mean rstd weight"
)


def _group_pull(g: Value, x: Value, weight: object, groups: int, eps: float) -> tuple:
    """The same, composed (differentiable again)."""
    n, c, *places = x.shape
    rows, shape = (n, groups, c // groups * math.prod(places)), tuple(x.shape)
    normal, rstd = _standardised(reshape(x, shape=rows), eps)
    inner = g if weight is None else g * reshape(weight, shape=(-1, *(1,) * len(places)))
    inner = reshape(inner, shape=rows)
    dx = (inner - _mean(inner) - normal * _mean(inner * normal)) * rstd
    both, over = g * reshape(normal, shape=shape), (0, *range(2, len(shape)))
    return reshape(dx, shape=shape), *(sum_(a, dims=over, keepdim=False) for a in (both, g))


def _groups_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    """Every sample of the batch is one more sample, or has channels of its own."""
    if all(d is None for d in dims[1:]):
        outs = group_norm_channels(merge(fronted(args[0], dims[0], size)), *args[1:], **params)
        return tuple(split(a, size) for a in outs), (0, 0, 0)
    x = fronted(args[0], dims[0], size)
    x = merge(permute(x, dims=(1, 0, *range(2, len(x.shape)))), 1)
    affine = [None if a is None else merge(fronted(a, d, size)) for a, d in
              zip(args[1:], dims[1:], strict=True)]  # fmt: skip
    outs = group_norm_channels(x, *affine, **{**params, "groups": params["groups"] * size})
    return tuple(split(a, size, 1) for a in outs), (1, 1, 1)


def _groups_shape(x: Shaped, weight: object, bias: object, groups: int, eps: float) -> list:
    each = ((x.shape[0], groups), _statistics_type(x.dtype))
    return [(x.shape, x.dtype), each, each]


def _group_samples(rng: np.random.Generator) -> list:
    x, w, b = rng.normal(size=(3, 4, 5)), rng.normal(size=4), rng.normal(size=4)
    wider = rng.normal(size=(2, 4, 3, 2))
    return [
        ((x, w, b), {"groups": 2, "eps": 1e-5}), ((x, None, b), {"groups": 4, "eps": 1e-5}),
        ((wider, w, b), {"groups": 2, "eps": 1e-5}),
    ]  # fmt: skip


group_norm_channels: Primitive = primitive(
    "group_norm", grouped.group_norm, "x weight bias", vjp=_group_rule, multi=True,
    nondiff_outputs=(1, 2), shape=_groups_shape, batch=_groups_batch, samples=_group_samples,
)  # fmt: skip
