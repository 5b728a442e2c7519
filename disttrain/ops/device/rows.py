"""Softmax and normalisation of rows on devices: the host's kernels, which take rows of any strides,
so that nothing is copied for them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ...backends.fused import softmax
from ...backends.fused.normalization import norms
from ...backends.lang import expr as ex
from ...backends.lang.kernel import Array, Kernel, Scalar, elementwise, wide_type
from ..primitives.norm import (
    _statistics_type,
    batch_norm_backward,
    group_norm_backward,
    layer_norm_backward,
    rms_norm_backward,
)
from .folding import count
from .reduce import add_up
from .table import NAME_OF, converted, kernel_of, on_device, run

_KERNELS = {
    "softmax": softmax._softmax,
    "log_softmax": softmax._log_softmax,
    "softmax_backward": softmax._softmax_backward,
    "log_softmax_backward": softmax._log_softmax_backward,
}


def _over(name: str, make: Callable) -> None:
    @on_device(name)
    def forward(platform: Platform, *arrays: Any, dim: int) -> Any:
        last = arrays[-1]
        out = platform.empty(last.shape, last.dtype)
        kernel = kernel_of(make, str(NAME_OF[last.dtype]))
        if not last.ndim:
            moved = [a.reshape(1) for a in (*arrays, out)]
        else:
            moved = [platform.xp.moveaxis(a, dim, -1) for a in (*arrays, out)]
        platform.launch(kernel, tuple(moved))
        return out


for _name, _make in _KERNELS.items():
    _over(_name, _make)


@on_device("layer_norm")
def _layer_norm(platform: Platform, x: Any, weight: Any, bias: Any, eps: float) -> tuple:
    return norms.layer_norm(x, weight, bias, eps)


@on_device("rms_norm")
def _rms_norm(platform: Platform, x: Any, weight: Any, eps: float) -> tuple:
    return norms.rms_norm(x, weight, eps)


def _share(x: RawArray) -> float:
    return 1.0 / max(x.shape[-1], 1)


def _layer_norm_backward(
    platform: Platform,
    g: RawArray,
    x: RawArray,
    mean: RawArray,
    rstd: RawArray,
    weight: RawArray | None,
) -> tuple:
    """(dx,), or (dx, dweight, dbias): one launch for all rows, whose sums have a fixed order."""
    kernel = _layer_kernel(str(NAME_OF[x.dtype]), weight is not None)
    dx = platform.empty(x.shape, x.dtype)
    if weight is None:
        platform.launch(kernel, (g, x, mean, rstd, _share(x), dx))
        return (dx,)
    sums = [platform.xp.zeros(x.shape[-1:], mean.dtype) for _ in range(2)]
    platform.launch(kernel, (g, x, mean, rstd, weight, _share(x), dx, *sums))
    return dx, *(converted(platform, s, weight.dtype) for s in sums)


def _rms_norm_backward(
    platform: Platform, g: RawArray, x: RawArray, rstd: RawArray, weight: RawArray
) -> tuple:
    """(dx,), or (dx, dweight)."""
    kernel = _rms_kernel(str(NAME_OF[x.dtype]), weight is not None)
    dx = platform.empty(x.shape, x.dtype)
    if weight is None:
        platform.launch(kernel, (g, x, rstd, _share(x), dx))
        return (dx,)
    total = platform.xp.zeros(x.shape[-1:], rstd.dtype)
    platform.launch(kernel, (g, x, rstd, weight, _share(x), dx, total))
    return dx, converted(platform, total, weight.dtype)


@functools.cache
def _layer_kernel(dtype: str, weight: bool) -> Kernel:
    return norms._layer_norm_backward(dtype, weight)


@functools.cache
def _rms_kernel(dtype: str, weight: bool) -> Kernel:
    return norms._rms_norm_backward(dtype, weight)


layer_norm_backward.on_device = _layer_norm_backward
rms_norm_backward.on_device = _rms_norm_backward


# --- batch norm, over all but the channels of (N, C, places) -----------------------------------
@functools.cache
def _normal_kernel(dtype: str, weight: bool, bias: bool) -> Kernel:
    """One pass over x, with numbers per channel."""
    wide = wide_type(dtype)
    names = ["weight"] * weight + ["bias"] * bias
    params: tuple[Array | Scalar, ...] = (
        Array("x", dtype), Array("centre", wide), Array("variance", wide),
        *(Array(n, dtype) for n in names), Scalar("eps", wide),
    )  # fmt: skip
    value = (ex.var("x") - ex.var("centre")) * ex.rsqrt(ex.var("variance") + ex.var("eps"))
    value = value * ex.var("weight") if weight else value
    return elementwise("batch_norm", value + ex.var("bias") if bias else value, params, dtype)


@functools.cache
def _centred_square(dtype: str) -> Kernel:
    wide = wide_type(dtype)
    centred = ex.var("x") - ex.var("centre")
    return elementwise(
        "centred_square", centred * centred, (Array("x", dtype), Array("centre", wide)), wide
    )


@on_device("batch_norm")
def _batch_norm(
    platform: Platform, x: RawArray, weight: RawArray | None, bias: RawArray | None, eps: float
) -> tuple:
    """(out, mean, variance), the latter two per channel, by sums in a fixed order."""
    wide, n = _statistics_type(x.dtype), count(x.shape, (0, 2))
    name = str(NAME_OF[x.dtype])
    centre = add_up(platform, x, (0, 2), False, wide, n)
    squares = platform.empty(x.shape, wide)
    run(platform, _centred_square(name), (x, centre[:, None]), squares)
    variance = add_up(platform, squares, (0, 2), False, wide, n)
    affine = [a[:, None] for a in (weight, bias) if a is not None]
    out = platform.empty(x.shape, x.dtype)
    kernel = _normal_kernel(name, weight is not None, bias is not None)
    run(platform, kernel, (x, centre[:, None], variance[:, None], *affine, float(eps)), out)
    return out, centre, variance


def _standard(dtype: str) -> tuple[ex.Expr, tuple]:
    """x less its channel's mean over its spread, and what that is made of."""
    wide = wide_type(dtype)
    rstd = ex.rsqrt(ex.var("variance") + ex.var("eps"))
    params = (
        Array("g", dtype), Array("x", dtype), Array("centre", wide), Array("variance", wide),
        Scalar("eps", wide),
    )  # fmt: skip
    return (ex.var("x") - ex.var("centre")) * rstd, params


@functools.cache
def _by_normal(dtype: str) -> Kernel:
    normal, params = _standard(dtype)
    return elementwise("batch_norm_product", ex.var("g") * normal, params, wide_type(dtype))


@functools.cache
def _input_kernel(dtype: str, weight: bool) -> Kernel:
    """The gradient of x in one pass, from the sums over its channels."""
    normal, params = _standard(dtype)
    wide = wide_type(dtype)
    params = (*params, Array("dweight", wide), Array("dbias", wide), Scalar("share", wide))
    shared = (normal * ex.var("dweight") + ex.var("dbias")) * ex.var("share")
    value = (ex.var("g") - shared) * ex.rsqrt(ex.var("variance") + ex.var("eps"))
    if weight:
        value, params = value * ex.var("weight"), (*params, Array("weight", dtype))
    return elementwise("batch_norm_backward", value, params, dtype)


def _batch_norm_backward(
    platform: Platform,
    g: RawArray,
    x: RawArray,
    centre: RawArray,
    variance: RawArray,
    weight: RawArray | None,
    eps: float,
) -> tuple:
    """(dx, dweight, dbias), half types in float32 and rounded once."""
    wide, name, kind = centre.dtype, str(NAME_OF[x.dtype]), x.dtype
    given = (g, x, centre[:, None], variance[:, None], float(eps))
    products = platform.empty(x.shape, wide)
    run(platform, _by_normal(name), given, products)
    sums = [add_up(platform, a, (0, 2), False, wide) for a in (products, g)]
    dx, share = platform.empty(x.shape, kind), 1.0 / max(count(x.shape, (0, 2)), 1)
    affine = [] if weight is None else [weight[:, None]]
    kernel = _input_kernel(name, weight is not None)
    run(platform, kernel, (*given, *(s[:, None] for s in sums), share, *affine), dx)
    return dx, *(converted(platform, s, kind) for s in sums)


batch_norm_backward.on_device = _batch_norm_backward


# --- group norm: the kernels of layer norm, and one pass with numbers per channel --------------
@functools.cache
def _affine_kernel(dtype: str, weight: bool, bias: bool) -> Kernel:
    names = ["weight"] * weight + ["bias"] * bias
    params = tuple(Array(name, dtype) for name in ("x", *names))
    value: ex.Expr = ex.var("x") * ex.var("weight") if weight else ex.var("x")
    return elementwise("affine", value + ex.var("bias") if bias else value, params, dtype)


def _scaled(platform: Platform, x: Any, weight: RawArray | None, bias: RawArray | None) -> Any:
    if weight is None and bias is None:
        return x
    affine = [a[:, None] for a in (weight, bias) if a is not None]
    out = platform.empty(x.shape, x.dtype)
    kernel = _affine_kernel(str(NAME_OF[x.dtype]), weight is not None, bias is not None)
    run(platform, kernel, (x, *affine), out)
    return out


def _in_places(a: RawArray) -> Any:
    n, c, *places = a.shape
    return a.reshape(n, c, math.prod(places))


def _in_groups(a: RawArray, groups: int) -> Any:
    n, c, *places = a.shape
    return a.reshape(n, groups, c // groups * math.prod(places))


@on_device("group_norm")
def _group_norm(
    platform: Platform, x: Any, weight: Any, bias: Any, groups: int, eps: float
) -> tuple:
    out, mean, rstd = norms.layer_norm(_in_groups(x, groups), None, None, eps)
    out = _scaled(platform, out.reshape(_in_places(x).shape), weight, bias)
    return out.reshape(x.shape), mean, rstd


@functools.cache
def _hat_product(dtype: str) -> Kernel:
    wide = wide_type(dtype)
    params = (Array("g", dtype), Array("x", dtype), Array("mean", wide), Array("rstd", wide))
    hat = (ex.var("x") - ex.var("mean")) * ex.var("rstd")
    return elementwise("group_norm_product", ex.var("g") * hat, params, wide)


def _group_norm_backward(
    platform: Platform, g: Any, x: Any, mean: RawArray, rstd: RawArray, weight: Any, groups: int
) -> tuple:
    """(dx, dweight, dbias)."""
    name, seen, g = str(NAME_OF[x.dtype]), _in_groups(x, groups), _in_places(g)
    inner = _in_groups(_scaled(platform, g, weight, None), groups)
    (dx,) = _layer_norm_backward(platform, inner, seen, mean, rstd, None)
    products = platform.empty(seen.shape, mean.dtype)
    run(platform, _hat_product(name), (_in_groups(g, groups), seen, mean[..., None],
                                       rstd[..., None]), products)  # fmt: skip
    both = products.reshape(g.shape)
    sums = [add_up(platform, a, (0, 2), False, mean.dtype) for a in (both, g)]
    return dx.reshape(x.shape), *(converted(platform, s, x.dtype) for s in sums)


group_norm_backward.on_device = _group_norm_backward
