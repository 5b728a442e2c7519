"""Layer and RMS normalisation over the last axis, on arrays.

    layer_norm(x, weight, bias, eps) -> out, mean, rstd
    layer_norm_backward(g, x, mean, rstd, weight) -> dx, dweight, dbias
    rms_norm(x, weight, eps) -> out, rstd
    rms_norm_backward(g, x, rstd, weight) -> dx, dweight

Arrays are float32, float64, float16 or bfloat16 of any layout; the last two are computed in
float32. Every row is read from memory once: it stays in the cache for the later passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy import ndarray

from ...family import Family
from ...lang.expr import Expr, fma, rsqrt, var
from ...lang.expr import max as at_least
from ...lang.kernel import Array, Kernel, Let, Loop, Put, Reduce, Scalar, Store, wide_type
from ..places import empty, platform_of, zeros

_X, _G = var("x"), var("g")
BLOCK = 512  # rows whose parameter gradients are added up before they join the total
_MANY = 64  # numbers one after the other, from which their sum needs more digits


def _affine(value: Expr, weight: bool, bias: bool) -> Expr:
    value = value * var("weight") if weight else value
    return value + var("bias") if bias else value


def _columns(dtype: str, weight: bool, bias: bool) -> tuple[Array, ...]:
    named = (("weight", weight), ("bias", bias))
    return tuple(Array(name, dtype, "col") for name, there in named if there)


def _sums(dtype: str, *names: str, wanted: bool) -> tuple[Array, ...]:
    """The gradients of columns that are added up over the rows."""
    return tuple(Array(n, dtype, "col", writes=True) for n in names) if wanted else ()


def _layer_norm(dtype: str, weight: bool, bias: bool, steps: Callable[..., tuple]) -> Kernel:
    """The later loops find what rounding took from the mean: where the mean is far from zero beside
    the spread, that is more than a last place of the result."""
    wide = wide_type(dtype)
    params: tuple[Array | Scalar, ...] = (
        Array("x", dtype),
        *_columns(dtype, weight, bias),
        Scalar("eps", wide),
        Scalar("share", wide),
        Array("out", dtype, writes=True),
        Array("means", wide, "row", writes=True),
        Array("rstds", wide, "row", writes=True),
    )
    return Kernel("layer_norm", params, _near_mean() + steps(weight, bias))


def _near_mean() -> tuple:
    return Loop((Reduce("total", "sum", _X),)), Let("near", var("total") * var("share"))


def _put(rstd: Expr) -> tuple:
    mean = Put("means", var("near") + var("rest"))
    return Let("rstd", rstd), mean, Put("rstds", var("rstd"))


def _on_host(weight: bool, bias: bool) -> tuple:
    """In two passes: the variance is around ``near``, and then moved to the mean beside it, which
    takes nothing that can be seen from it: the two differ by what rounding took alone."""
    near = _X - var("near")
    hat = fma(near, var("rstd"), var("shift"))
    if weight and bias:
        out = fma(hat, var("weight"), var("bias"))
    else:
        out = _affine(hat, weight, bias)
    spread = var("squares") * var("share") - var("rest") * var("rest")
    return (
        Loop((Reduce("squares", "sum", fma(near, near, 0.0)), Reduce("left", "sum", near))),
        Let("rest", var("left") * var("share")),
        *_put(rsqrt(at_least(spread, 0.0) + var("eps"))),
        Let("shift", 0.0 - var("rest") * var("rstd")),
        Loop((Store("out", out),)),
    )


def _on_devices(weight: bool, bias: bool) -> tuple:
    """In three passes, which take fewer registers."""
    near = _X - var("near")
    centred = near - var("rest")
    return (
        Loop((Reduce("left", "sum", near),)),
        Let("rest", var("left") * var("share")),
        Loop((Reduce("squares", "sum", centred * centred),)),
        *_put(rsqrt(var("squares") * var("share") + var("eps"))),
        Loop((Store("out", _affine(centred * var("rstd"), weight, bias)),)),
    )


def _layer_norm_backward(dtype: str, weight: bool) -> Kernel:
    wide = wide_type(dtype)
    mean, rstd = var("mean"), var("rstd")
    hat = (_X - mean) * rstd
    g = _G * var("weight") if weight else _G
    params: tuple[Array | Scalar, ...] = (
        Array("g", dtype),
        Array("x", dtype),
        Array("mean", wide, "row"),
        Array("rstd", wide, "row"),
        *_columns(dtype, weight, False),
        Scalar("share", wide),
        Array("out", dtype, writes=True),
        *_sums(wide, "dweight", "dbias", wanted=weight),
    )
    sums = (Reduce("a", "sum", g), Reduce("b", "sum", g * hat))
    extra = (Store("dweight", _G * hat, add=True), Store("dbias", _G, add=True))
    steps = (
        Loop((*sums, *(extra if weight else ()))),
        Let("a_mean", var("a") * var("share")),
        Let("b_mean", var("b") * var("share")),
        Loop((Store("out", rstd * (g - var("a_mean") - hat * var("b_mean"))),)),
    )
    return Kernel("layer_norm_backward", params, steps)


def _rms_norm(dtype: str, weight: bool) -> Kernel:
    wide = wide_type(dtype)
    params: tuple[Array | Scalar, ...] = (
        Array("x", dtype),
        *_columns(dtype, weight, False),
        Scalar("eps", wide),
        Scalar("share", wide),
        Array("out", dtype, writes=True),
        Array("rstds", wide, "row", writes=True),
    )
    steps = (
        Loop((Reduce("squares", "sum", _X * _X),)),
        Let("rstd", rsqrt(var("squares") * var("share") + var("eps"))),
        Put("rstds", var("rstd")),
        Loop((Store("out", _affine(_X * var("rstd"), weight, False)),)),
    )
    return Kernel("rms_norm", params, steps)


def _rms_norm_backward(dtype: str, weight: bool) -> Kernel:
    wide = wide_type(dtype)
    rstd = var("rstd")
    hat = _X * rstd
    g = _G * var("weight") if weight else _G
    params: tuple[Array | Scalar, ...] = (
        Array("g", dtype),
        Array("x", dtype),
        Array("rstd", wide, "row"),
        *_columns(dtype, weight, False),
        Scalar("share", wide),
        Array("out", dtype, writes=True),
        *_sums(wide, "dweight", wanted=weight),
    )
    extra = (Store("dweight", _G * hat, add=True),) if weight else ()
    steps = (
        Loop((Reduce("b", "sum", g * hat), *extra)),
        Let("b_mean", var("b") * var("share")),
        Loop((Store("out", rstd * (g - hat * var("b_mean"))),)),
    )
    return Kernel("rms_norm_backward", params, steps)


def kernel(name: str, dtype: str, weight: bool, bias: bool) -> Kernel:
    """The kernel that runs on the host under that name; it may be run among others
    (``lang/rows.py``)."""
    if name == "layer_norm":
        return _layer_norm(dtype, weight, bias, _on_host)
    if name == "rms_norm":
        return _rms_norm(dtype, weight)
    backward = _layer_norm_backward if name == "layer_norm_backward" else _rms_norm_backward
    return backward(dtype, weight)


def joined(sums: np.ndarray) -> np.ndarray:
    """The total of sums of some rows each (the last but one axis), of many of them in float64."""
    count = sums.shape[-2]
    if count == 1:
        return sums[..., 0, :]
    if count <= _MANY or sums.__class__ is not ndarray:
        return sums.sum(axis=-2)
    return sums.sum(axis=-2, dtype=np.float64).astype(sums.dtype, copy=False)


def _layer_norms(steps: Callable[..., tuple]) -> dict[tuple[bool, bool], Family]:
    return {
        (w, b): Family(partial(_layer_norm, weight=w, bias=b, steps=steps))
        for w, b in ((True, True), (True, False), (False, False), (False, True))
    }


_LAYER_NORM, _LAYER_NORM_ON_HOST = _layer_norms(_on_devices), _layer_norms(_on_host)
_LAYER_NORM_BACKWARD = {w: Family(partial(_layer_norm_backward, weight=w)) for w in (True, False)}
_RMS_NORM = {w: Family(partial(_rms_norm, weight=w)) for w in (True, False)}
_RMS_NORM_BACKWARD = {w: Family(partial(_rms_norm_backward, weight=w)) for w in (True, False)}


def _statistics(x: np.ndarray) -> np.ndarray:
    kind = np.float64 if x.dtype == np.float64 else np.float32
    return np.empty(x.shape[:-1], kind) if x.__class__ is ndarray else empty(x, x.shape[:-1], kind)


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) * rstd * weight + bias over the last axis; returns it, mean and rstd.

    ``weight`` and ``bias`` have the type of ``x`` and one element per column. ``rstd`` is
    1 / sqrt(variance + eps); the variance divides by the number of columns.
    """
    shape, dtype = x.shape, x.dtype
    if x.__class__ is ndarray:
        kind = np.float64 if dtype == np.float64 else np.float32
        out, mean, rstd = (
            np.empty(shape, dtype), np.empty(shape[:-1], kind), np.empty(shape[:-1], kind)
        )  # fmt: skip
    else:
        out, mean, rstd = empty(x, shape, dtype), _statistics(x), _statistics(x)
    args: list = [x, *(a for a in (weight, bias) if a is not None)]
    args += [float(eps), 1.0 / max(x.shape[-1], 1), out, mean, rstd]
    kernels = _LAYER_NORM_ON_HOST if x.__class__ is ndarray else _LAYER_NORM
    kernels[weight is not None, bias is not None][x.dtype](*args)
    return out, mean, rstd


def layer_norm_backward(
    g: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Gradients of ``x``, ``weight`` and ``bias`` (the latter None without a weight)."""
    program, share = _LAYER_NORM_BACKWARD[weight is not None][x.dtype], 1.0 / max(x.shape[-1], 1)
    dx = empty(x, x.shape, x.dtype)
    if weight is None:
        program(g, x, mean, rstd, share, dx)
        return dx, None, None
    rows = _rows(g, x, dx)
    n, block = _blocks(x)
    sums = zeros(x, (2, n, x.shape[-1]), mean.dtype)
    mean, rstd = mean.reshape(-1), rstd.reshape(-1)
    for k in range(n):
        part = slice(k * block, (k + 1) * block)
        gk, xk, dxk = (a[part] for a in rows)
        program(gk, xk, mean[part], rstd[part], weight, share, dxk, sums[0, k], sums[1, k])
    total = joined(sums).astype(weight.dtype, copy=False)
    return dx, total[0], total[1]


def rms_norm(x: np.ndarray, weight: np.ndarray | None, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """x * rstd * weight over the last axis, rstd = 1 / sqrt(mean(x**2) + eps); returns both."""
    here = x.__class__ is ndarray
    out = np.empty(x.shape, x.dtype) if here else empty(x, x.shape, x.dtype)
    rstd = _statistics(x)
    args = [x, *(() if weight is None else (weight,))]
    _RMS_NORM[weight is not None][x.dtype](*args, float(eps), 1.0 / max(x.shape[-1], 1), out, rstd)
    return out, rstd


def rms_norm_backward(
    g: np.ndarray, x: np.ndarray, rstd: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of ``x`` and ``weight``."""
    program, share = _RMS_NORM_BACKWARD[weight is not None][x.dtype], 1.0 / max(x.shape[-1], 1)
    dx = empty(x, x.shape, x.dtype)
    if weight is None:
        program(g, x, rstd, share, dx)
        return dx, None
    rows = _rows(g, x, dx)
    n, block = _blocks(x)
    sums, rstd = zeros(x, (n, x.shape[-1]), rstd.dtype), rstd.reshape(-1)
    for k in range(n):
        part = slice(k * block, (k + 1) * block)
        gk, xk, dxk = (a[part] for a in rows)
        program(gk, xk, rstd[part], weight, share, dxk, sums[k])
    return dx, joined(sums).astype(weight.dtype, copy=False)


def _blocks(x: np.ndarray) -> tuple[int, int]:
    """How many blocks of how many rows: one on an accelerator, whose kernels sum rows in parts."""
    rows = math.prod(x.shape[:-1])
    if platform_of(x) is not None:
        return 1, max(rows, 1)
    return max(-(-rows // BLOCK), 1), BLOCK


def _rows(*arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays as (rows, columns); the last one is written to and contiguous, so it is a view."""
    return [a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) for a in arrays]
