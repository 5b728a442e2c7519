"""Normalisations: layer and rms (fused kernels), batch, group and instance.

A fused backward is a primitive whose own derivative is composed of others, so that gradients of
gradients are right too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backends import fused_norms as fused
from ..core import dtypes
from ..core.grad_mode import no_grad
from ..core.tensor import Tensor
from ..errors import ConfigError, ShapeError
from . import elementwise as el
from .args import one_dim
from .args import tensor as as_input
from .batching import fronted, merge, split
from .declare import primitive
from .elementwise import cast_like, rsqrt, square
from .inplace import copy_
from .reduce import amax, mean, sum_
from .softmax import dense
from .views import permute, reshape


# --- layer norm and rms norm, over the last dimension of (rows, columns) -----------------------
def _layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> tuple:
    return fused.layer_norm(dense(x), weight, bias, eps)


def _statistics_type(kind: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if kind == np.float64 else np.float32)


def _layer_shape(x: Any, weight: Any, bias: Any, eps: float) -> list:
    rows = (x.shape[:-1], _statistics_type(x.dtype))
    return [(x.shape, x.dtype), rows, rows]


def _mean(x: Any) -> Any:
    return mean(x, dims=(len(x.shape) - 1,), keepdim=True)


def _standardised(x: Any, eps: float, centre: bool = True) -> tuple:
    """x less its mean (unless told not to) over its root mean square, and one over that."""
    centred = x - _mean(x) if centre else x
    rstd = rsqrt(_mean(square(centred)) + eps)
    return centred * rstd, rstd


def _rows_sum(x: Any) -> Any:
    return sum_(x, dims=tuple(range(len(x.shape) - 1)), keepdim=False)


def _pull(g: Any, x: Any, weight: Any, eps: float, centre: bool, bias: bool) -> tuple:
    """The gradients of x, weight and bias, composed (differentiable again)."""
    normal, rstd = _standardised(x, eps, centre)
    inner = g if weight is None else g * weight
    dx = inner - normal * _mean(inner * normal)
    if centre:
        dx = dx - _mean(inner)
    dweight = None if weight is None else _rows_sum(g * normal)
    return dx * rstd, dweight, _rows_sum(g) if bias else None


def _layer_rule(g: Any, x: Any, weight: Any, out: Any, eps: float, needs: tuple) -> tuple:
    """The kernel on arrays; on Tensors the same thing composed, so that it can be derived again."""
    g = g[0]
    if not isinstance(g, np.ndarray):
        dx, dweight, dbias = _pull(g, x, weight, eps, True, needs[2])
        return dx, dweight if needs[1] else None, dbias
    _, centre, rstd = out
    dx, dweight, dbias = fused.layer_norm_backward(dense(g), dense(x), centre, rstd, weight)
    if needs[2] and dbias is None:
        dbias = _rows_sum(g)
    return dx, dweight, dbias


def _rms_rule(g: Any, x: Any, weight: Any, out: Any, eps: float, needs: tuple) -> tuple:
    g = g[0]
    if not isinstance(g, np.ndarray):
        return _pull(g, x, weight, eps, False, False)[:2]
    return fused.rms_norm_backward(dense(g), dense(x), out[1], weight)


def _norm_batch(args: tuple, dims: tuple, params: dict, size: int, prim: Any) -> Any:
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


layer_norm_rows = primitive(
    "layer_norm", _layer_norm, "x weight bias", vjp=_layer_rule, multi=True,
    nondiff_outputs=(1, 2), shape=_layer_shape, samples=_layer_samples,
    batch=lambda *a: _norm_batch(*a, layer_norm_rows),
)  # fmt: skip
rms_norm_rows = primitive(
    "rms_norm", fused.rms_norm, "x weight", vjp=_rms_rule, multi=True, nondiff_outputs=(1,),
    shape=lambda x, weight, eps: [
        (x.shape, x.dtype), (x.shape[:-1], _statistics_type(x.dtype))
    ],
    samples=lambda rng: [((rng.normal(size=(3, 5)), rng.normal(size=5)), {"eps": 1e-5})],
    batch=lambda *a: _norm_batch(*a, rms_norm_rows),
)  # fmt: skip


def _tail(where: str, input: Tensor, normalized_shape: Any, *affine: Tensor | None) -> tuple:
    shape = normalized_shape
    shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
    given = tuple(as_input(input, where).shape)
    if not shape or given[-len(shape) :] != shape:
        raise ShapeError(
            f"{where}: input of shape {list(given)} given; its last dimensions must be "
            f"normalized_shape={list(shape)}"
        )
    for t, name in zip(affine, ("weight", "bias"), strict=False):
        if t is not None and tuple(t.shape) != shape:
            raise ShapeError(
                f"{where}: {name} of shape {list(t.shape)} given; needed {list(shape)}"
            )
    return shape


def _flat(t: Tensor | None, like: Tensor) -> Tensor | None:
    """An affine parameter as one row, in the type of the input."""
    if t is None:
        return None
    t = t if t.ndim == 1 else reshape(t, shape=(-1,))
    return t if t.meta()[1] == like.meta()[1] else cast_like(t, like)


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise over the last dimensions, those of ``normalized_shape`` (Ba et al., 2016)."""
    shape = _tail("layer_norm", input, normalized_shape, weight, bias)
    x = input if len(shape) == 1 else reshape(input, shape=(-1, math.prod(shape)))
    out = layer_norm_rows(x, _flat(weight, x), _flat(bias, x), eps=float(eps))[0]
    return out if x is input else reshape(out, shape=tuple(input.shape))


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root mean square over the last dimensions (Zhang, Sennrich, 2019).

    ``eps`` is that of the element type unless given.
    """
    shape = _tail("rms_norm", input, normalized_shape, weight)
    if eps is None:
        eps = dtypes.finfo(input.dtype).eps
    x = input if len(shape) == 1 else reshape(input, shape=(-1, math.prod(shape)))
    out = rms_norm_rows(x, _flat(weight, x), eps=float(eps))[0]
    return out if x is input else reshape(out, shape=tuple(input.shape))


# --- batch norm, over all but the channels of (N, C, places) -----------------------------------
def _batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> tuple:
    """(out, mean, variance), the latter two per channel."""
    kind = x.dtype
    if kind.kind == "V" or kind == np.float16:
        wide = [None if a is None else a.astype(np.float32) for a in (x, weight, bias)]
        out, centre, variance = _batch_norm(*wide, eps)
        return out.astype(kind), centre, variance
    centre = _channel_sum(x) / kind.type(x.shape[0] * x.shape[2])
    out = x - centre[:, None]
    variance = _channel_sum(out, out) / kind.type(x.shape[0] * x.shape[2])
    rstd = 1 / np.sqrt(variance + kind.type(eps))
    out *= (rstd if weight is None else rstd * weight)[:, None]
    if bias is not None:
        out += bias[:, None]
    return out, centre, variance


def _channel_sum(a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """The sum of ``a`` (or of ``a * b``) over all but dimension 1, added up in blocks."""
    if b is None:
        return a.sum(axis=2).sum(axis=0) if a.shape[2] > 1 else a[:, :, 0].sum(axis=0)
    if a.shape[2] > 1:
        return np.einsum("ncp,ncp->nc", a, b).sum(axis=0)
    return (a[:, :, 0] * b[:, :, 0]).sum(axis=0)


def _batch_rule(g: Any, x: Any, weight: Any, out: Any, eps: float, needs: tuple) -> tuple:
    g = g[0]
    if not isinstance(g, np.ndarray):
        return _batch_pull(g, x, weight, eps, needs)
    kind = g.dtype
    if kind.kind == "V" or kind == np.float16:
        g, x, weight = (None if a is None else a.astype(np.float32) for a in (g, x, weight))
    _, centre, variance = out
    rstd = 1 / np.sqrt(variance + variance.dtype.type(eps))
    dbias = _channel_sum(g)
    normal = (x - centre[:, None]) * rstd[:, None]
    dweight = _channel_sum(g, normal)
    dx = None
    if needs[0]:
        share = g.dtype.type(1.0 / (x.shape[0] * x.shape[2]))
        normal *= (dweight * share)[:, None]
        normal += (dbias * share)[:, None]
        dx = np.subtract(g, normal, out=normal)
        dx *= (rstd if weight is None else rstd * weight)[:, None]
    return dx, dweight if needs[1] else None, dbias if needs[2] else None


def _over(x: Any) -> Any:
    return mean(x, dims=(0, 2), keepdim=True)


def _batch_pull(g: Any, x: Any, weight: Any, eps: float, needs: tuple) -> tuple:
    centred = x - _over(x)
    rstd = rsqrt(_over(square(centred)) + eps)
    normal = centred * rstd
    inner = g if weight is None else g * reshape(weight, shape=(-1, 1))
    dx = (inner - _over(inner) - normal * _over(inner * normal)) * rstd
    dweight = sum_(g * normal, dims=(0, 2), keepdim=False) if needs[1] else None
    return dx, dweight, sum_(g, dims=(0, 2), keepdim=False) if needs[2] else None


def _channels_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    """Every sample of the batch has channels of its own."""
    x = fronted(args[0], dims[0], size)
    x = merge(permute(x, dims=(1, 0, 2, 3)), 1)
    affine = [None if a is None else merge(fronted(a, d, size)) for a, d in
              zip(args[1:], dims[1:], strict=True)]  # fmt: skip
    out, centre, variance = batch_norm_channels(x, *affine, **params)
    return (split(out, size, 1), split(centre, size), split(variance, size)), (1, 0, 0)


def _channels_shape(x: Any, weight: Any, bias: Any, eps: float) -> list:
    each = (x.shape[1:2], _statistics_type(x.dtype))
    return [(x.shape, x.dtype), each, each]


batch_norm_channels = primitive(
    "batch_norm", _batch_norm, "x weight bias", vjp=_batch_rule, multi=True,
    nondiff_outputs=(1, 2), shape=_channels_shape, batch=_channels_batch,
    samples=lambda rng: [
        ((rng.normal(size=(3, 2, 4)), rng.normal(size=2), rng.normal(size=2)), {"eps": 1e-5})
    ],
)  # fmt: skip


def _per_channel(where: str, channels: int, **given: Tensor | None) -> None:
    for name, t in given.items():
        if t is not None and tuple(t.shape) != (channels,):
            raise ShapeError(
                f"{where}: {name} of shape {list(t.shape)} given for {channels} channels; needed "
                f"[{channels}]"
            )


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each channel (dimension 1) over the batch and all places (Ioffe, Szegedy, 2015).

    ``training``: by the batch's own statistics, which move the running ones in place by
    ``momentum`` (their variance divides by one less than the number of values).
    """
    if as_input(input, "batch_norm").ndim < 2:
        raise ShapeError(
            f"batch_norm: input of shape {list(input.shape)} given; needed (N, C, ...)"
        )
    n, c = input.shape[:2]
    _per_channel("batch_norm", c, running_mean=running_mean, running_var=running_var,
                 weight=weight, bias=bias)  # fmt: skip
    if not training:
        if running_mean is None or running_var is None:
            raise ConfigError(
                "batch_norm: evaluation needs running_mean and running_var; pass training=True to "
                "use the batch's own statistics"
            )
        return _by_running(input, running_mean, running_var, weight, bias, eps)
    count = input.shape.numel() // max(c, 1)
    if count <= 1:
        raise ShapeError(
            "batch_norm: expected more than 1 value per channel when training, got input of shape "
            f"{list(input.shape)}; use a larger batch, or .eval()"
        )
    x = input if input.ndim == 3 else reshape(input, shape=(n, c, -1))
    out, centre, variance = batch_norm_channels(x, _flat(weight, x), _flat(bias, x), eps=float(eps))
    with no_grad():
        if running_mean is not None:
            _track(running_mean, centre.detach(), momentum)
        if running_var is not None:
            _track(running_var, variance.detach() * (count / (count - 1)), momentum)
    return out if x is input else reshape(out, shape=tuple(input.shape))


def _track(running: Tensor, value: Tensor, momentum: float) -> None:
    """Move a running statistic towards ``value`` in place."""
    copy_(running, running * (1 - momentum) + value * momentum)


def _by_running(
    input: Tensor, centre: Tensor, variance: Tensor, weight: Any, bias: Any, eps: float
) -> Tensor:
    """One multiplication and one addition per element."""
    scale = rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -centre * scale if bias is None else bias - centre * scale
    shape = (-1, *(1,) * (input.ndim - 2))
    scale, shift = (cast_like(reshape(t, shape=shape), input) for t in (scale, shift))
    return input * scale + shift


# --- group and instance norm -------------------------------------------------------------------
def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = (-1, *(1,) * (x.ndim - 2))
    if weight is not None:
        x = x * cast_like(reshape(weight, shape=shape), x)
    return x if bias is None else x + cast_like(reshape(bias, shape=shape), x)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each sample over groups of channels (Wu, He, 2018)."""
    if as_input(input, "group_norm").ndim < 2:
        raise ShapeError(
            f"group_norm: input of shape {list(input.shape)} given; needed (N, C, ...)"
        )
    n, c = input.shape[:2]
    if num_groups < 1 or c % num_groups:
        raise ShapeError(
            f"group_norm: {c} channels cannot be split into num_groups={num_groups}; the number of "
            "channels must be divisible by it"
        )
    _per_channel("group_norm", c, weight=weight, bias=bias)
    grouped = reshape(input, shape=(n, num_groups, -1))
    out = layer_norm_rows(grouped, None, None, eps=float(eps))[0]
    return _scaled(reshape(out, shape=tuple(input.shape)), weight, bias)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalise each channel of each sample over its places (Ulyanov et al., 2016)."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    shape = tuple(as_input(input, "instance_norm").shape)
    places = math.prod(shape[2:])
    if len(shape) < 3 or places == 1:
        raise ShapeError(
            "instance_norm: expected more than 1 spatial element when training, got input of shape "
            f"{list(shape)}"
        )
    _per_channel("instance_norm", shape[1], running_mean=running_mean, running_var=running_var,
                 weight=weight, bias=bias)  # fmt: skip
    flat = reshape(input, shape=(*shape[:2], places))
    out = layer_norm_rows(flat, None, None, eps=float(eps))[0]
    if running_mean is not None and running_var is not None:
        with no_grad():
            centre = mean(flat.detach(), dims=(2,), keepdim=True)
            total = sum_(square(flat.detach() - centre), dims=(2,), keepdim=False)
            variance = mean(total * (1.0 / (places - 1)), dims=(0,), keepdim=False)
            _track(running_mean, mean(centre, dims=(0, 2), keepdim=False), momentum)
            _track(running_var, variance, momentum)
    return _scaled(reshape(out, shape=shape), weight, bias)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """``input`` over its p-norm along ``dim`` (over ``eps`` where the norm is smaller)."""
    d = (one_dim(dim, input.ndim, "normalize"),)
    size = el.absolute(input)
    if p == math.inf:
        length = amax(size, dims=d, keepdim=True)
    elif p == 2.0:
        length = el.sqrt(sum_(square(size), dims=d, keepdim=True))
    else:
        length = el.pow_(sum_(el.pow_(size, p), dims=d, keepdim=True), 1.0 / p)
    return input / el.maximum(length, eps)


__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "normalize", "rms_norm"]
