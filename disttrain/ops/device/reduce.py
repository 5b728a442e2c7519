"""Reductions on devices, in an order that shapes and strides alone decide.

Sums, means, logsumexp and the places of extremes are generated kernels (half types added up in
float32, integers in int64); the largest and smallest values, flags, products and running sums are
the array module's. (CuPy's argmax does not find the first of several nan; its sums of complex
numbers, its products and its running sums along an axis have a fixed order, too.)
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ...backends.lang import expr as ex
from ...backends.lang.kernel import Array, Kernel, Let, Loop, Put, Reduce, Scalar, Store, wide_type
from ...backends.lang.kernel import elementwise as elementwise_kernel
from ...core.types.wide import accumulator, running
from ..primitives import reduce as prim
from .folding import count, folds, restored, split_rows
from .table import (
    BOOL,
    INT64,
    MOST_AXES,
    NAME_OF,
    cast,
    converted,
    on_device,
    through_float32,
    type_named,
)

_X = ex.var("x")


# --- sums --------------------------------------------------------------------------------------
def _wide_name(dtype: str) -> str:
    return wide_type(dtype) if "float" in dtype else "int64"


def _value(dtype: str) -> ex.Expr:
    return _X if "float" in dtype else ex.cast(_X, "int64")


@functools.cache
def _rows(dtype: str, out: str) -> Kernel:
    """The sum of each row, over ``n``."""
    wide, total = _wide_name(dtype), ex.var("total")
    mean = "float" in dtype
    params = (Array("x", dtype), *((Scalar("n", wide),) if mean else ()))
    put = Put("out", total / ex.var("n") if mean else total)
    steps = (Loop((Reduce("total", "sum", _value(dtype)),)), put)
    return Kernel("sum_rows", (*params, Array("out", out, "row", writes=True)), steps)


@functools.cache
def _all(dtype: str, out: str) -> Kernel:
    """The sum of everything, over ``n``."""
    wide, total = _wide_name(dtype), ex.var("total")
    mean = "float" in dtype
    params = (Array("x", dtype), *((Scalar("n", wide),) if mean else ()))
    put = Put("out", total / ex.var("n") if mean else total)
    steps = (Loop((Reduce("total", "sum", _value(dtype)),)), put)
    return Kernel("sum_all", (*params, Array("out", out, "one", writes=True)), steps, flat=True)


@functools.cache
def _columns(dtype: str) -> Kernel:
    """Add each column up, to what is there."""
    params = (Array("x", dtype), Array("out", _wide_name(dtype), "col", writes=True))
    return Kernel("sum_columns", params, (Loop((Store("out", _value(dtype), add=True),)),))


@functools.cache
def _shared(dtype: str, out: str) -> Kernel:
    params = (Array("x", dtype), Scalar("n", wide_type(dtype)))
    return elementwise_kernel("share", _X / ex.var("n"), params, out)


def add_up(
    platform: Platform, a: RawArray, dims: tuple, keepdim: bool, into: np.dtype, n: float = 1.0
) -> Any:
    """The sum of ``a`` over ``dims``, divided by ``n`` (floating types), in the type ``into``."""
    shape = prim.reduced(a.shape, dims, keepdim)
    name = NAME_OF[a.dtype]
    if not a.size:
        return platform.xp.full(shape, 0.0 / n if n else np.nan, into)
    if not dims:
        return cast(platform, a, into)
    how = folds(a.shape, a.strides, dims) if name is not None else None
    if how is None or name is None:
        wide = accumulator(a.dtype)
        out = a.sum(axis=dims, dtype=wide, keepdims=keepdim)
        if n != 1.0:
            out = out / n
        return converted(platform, out, into)
    x = a.transpose(how.order).reshape(how.sizes)
    result = _PATTERNS[how.pattern](platform, x, name, NAME_OF[into], float(n))
    result = result.reshape([a.shape[d] for d in how.kept])
    back = restored(how.kept)
    if back is not None:
        result = platform.xp.ascontiguousarray(result.transpose(back))
    return result.reshape(shape)


def _launched(
    platform: Platform, kernel: Kernel, x: RawArray, n: float, shape: tuple, out: str
) -> Any:
    result = platform.empty(shape, type_named(out))
    numbers = (n,) if kernel.scalars else ()
    platform.launch(kernel, (x, *numbers, result))
    return result


def _sum_all(platform: Platform, x: RawArray, name: str, out: str, n: float) -> Any:
    return _launched(platform, _all(name, out), x, n, (), out)


def _sum_rows(platform: Platform, x: RawArray, name: str, out: str, n: float) -> Any:
    rows, columns = x.shape
    parts = split_rows(rows, columns)
    if parts > 1:
        wide = _wide_name(name)
        x = x.reshape(rows * parts, columns // parts)
        x = _launched(platform, _rows(name, wide), x, 1.0, (rows * parts,), wide)
        x, name = x.reshape(rows, parts), wide
    return _launched(platform, _rows(name, out), x, n, (rows,), out)


def _sum_columns(platform: Platform, x: RawArray, name: str, out: str, n: float) -> Any:
    wide = type_named(_wide_name(name))
    total = platform.xp.zeros(x.shape[-1:], wide)
    platform.launch(_columns(name), (x, total))
    if n != 1.0:
        result = platform.empty(total.shape, type_named(out))
        platform.launch(_shared(_wide_name(name), out), (total, n, result))
        return result
    return converted(platform, total, type_named(out))


def _sum_both(platform: Platform, x: RawArray, name: str, out: str, n: float) -> Any:
    rows, kept, columns = x.shape
    wide = _wide_name(name)
    x = _sum_rows(platform, x.reshape(rows * kept, columns), name, wide, 1.0)
    return _sum_columns(platform, x.reshape(rows, kept), wide, out, n)


_PATTERNS = {"R": _sum_all, "KR": _sum_rows, "RK": _sum_columns, "RKR": _sum_both}


@on_device("sum")
def _sum(platform: Platform, a: RawArray, dims: tuple, keepdim: bool) -> Any:
    return add_up(platform, a, dims, keepdim, prim._summed(a.dtype))


@on_device("mean")
def _mean(platform: Platform, a: RawArray, dims: tuple, keepdim: bool) -> Any:
    return add_up(platform, a, dims, keepdim, a.dtype, count(a.shape, dims))


# --- rows that end in one value ----------------------------------------------------------------
@functools.cache
def _logsumexp_rows(dtype: str) -> Kernel:
    top, most = ex.var("top"), ex.var("most")
    steps = (
        Loop((Reduce("most", "max", _X),)),
        Let("top", ex.where(ex.abs(most) < np.inf, most, 0.0)),
        Loop((Reduce("total", "sum", ex.exp(_X - top)),)),
        Put("out", ex.log(ex.var("total")) + top),
    )
    return Kernel("logsumexp", (Array("x", dtype), Array("out", dtype, "row", writes=True)), steps)


@functools.cache
def _place_rows(dtype: str, largest: bool) -> Kernel:
    """The first place of the extreme of each row; of the first nan, where there is one."""
    best, last = ex.var("best"), 2**62
    here = ex.eq(_X, best) | ex.isnan(_X) if "float" in dtype else ex.eq(_X, best)
    steps = (
        Loop((Reduce("best", "max" if largest else "min", _X),)),
        Loop((Reduce("place", "min", ex.where(here, ex.index(), last)),)),
        Put("out", ex.var("place")),
    )
    return Kernel("place", (Array("x", dtype), Array("out", "int64", "row", writes=True)), steps)


def _in_rows(a: RawArray, dims: tuple) -> Any:
    """``a`` as (what is kept ..., what is reduced)."""
    kept = tuple(d for d in range(a.ndim) if d not in dims)
    shape = tuple(a.shape[d] for d in kept)
    x = a.transpose((*kept, *sorted(dims)))
    if len(kept) >= MOST_AXES:
        shape = (count(a.shape, kept),)
    return x.reshape((*shape, count(a.shape, dims)))


@on_device("logsumexp")
def _logsumexp(platform: Platform, a: RawArray, dims: tuple, keepdim: bool) -> Any:
    shape = prim.reduced(a.shape, dims, keepdim)
    if a.dtype.kind == "c":
        return _complex_logsumexp(platform, a, dims).reshape(shape)
    if not a.size:
        return platform.xp.full(shape, -np.inf, a.dtype)
    x = _in_rows(a, dims)
    out = platform.empty(x.shape[:-1], a.dtype)
    platform.launch(_logsumexp_rows(str(NAME_OF[a.dtype])), (x, out))
    return out.reshape(shape)


def _complex_logsumexp(platform: Platform, a: RawArray, dims: tuple) -> Any:
    xp = platform.xp
    top = xp.amax(a.real, axis=dims, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0)
    return xp.log(xp.exp(a - top).sum(axis=dims, keepdims=True)) + top


def place(platform: Platform, a: RawArray, dim: int | None, keepdim: bool, largest: bool) -> Any:
    """The first place of the largest (or smallest) along ``dim``, or of all (None)."""
    dims = tuple(range(a.ndim)) if dim is None else (dim,) if a.ndim else ()
    shape = prim.reduced(a.shape, dims, keepdim)
    if NAME_OF[a.dtype] in (None, "bool"):
        a = a.astype(np.int64)
    if not count(a.shape, dims):
        raise ValueError("the place of an extreme of nothing: a dimension of size 0 was given")
    x = _in_rows(a, dims)
    out = platform.empty(x.shape[:-1], INT64)
    platform.launch(_place_rows(str(NAME_OF[a.dtype]), largest), (x, out))
    return out.reshape(shape)


on_device("argmax")(functools.partial(place, largest=True))
on_device("argmin")(functools.partial(place, largest=False))


# --- by the array module -----------------------------------------------------------------------
@on_device("amax")
def _amax(platform: Platform, a: RawArray, dims: tuple, keepdim: bool) -> Any:
    return platform.xp.amax(a, axis=dims, keepdims=keepdim) if dims else a.copy()


@on_device("amin")
def _amin(platform: Platform, a: RawArray, dims: tuple, keepdim: bool) -> Any:
    return platform.xp.amin(a, axis=dims, keepdims=keepdim) if dims else a.copy()


@on_device("any")
def _any(platform: Platform, a: Any, dims: tuple, keepdim: bool) -> Any:
    a = converted(platform, a, BOOL)
    return a.any(axis=dims, keepdims=keepdim) if dims else a.copy()


@on_device("all")
def _all_of(platform: Platform, a: Any, dims: tuple, keepdim: bool) -> Any:
    a = converted(platform, a, BOOL)
    return a.all(axis=dims, keepdims=keepdim) if dims else a.copy()


@on_device("prod")
@through_float32
def _prod(platform: Platform, a: Any, dim: int, keepdim: bool) -> Any:
    return a.prod(axis=dim, dtype=accumulator(a.dtype), keepdims=keepdim)


def _running(name: str, method: str) -> None:
    @on_device(name)
    def forward(platform: Platform, a: Any, dim: int) -> Any:
        into = prim._summed(a.dtype)
        if not a.ndim:
            return cast(platform, a, into)
        wide = converted(platform, a, running(a.dtype))
        return converted(platform, getattr(wide, method)(axis=dim), into)


_running("cumsum", "cumsum")
_running("cumprod", "cumprod")
