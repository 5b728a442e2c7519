"""What the files of this package share: the decorator, new arrays, conversions, kernels by type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ...backends.lang.expr import Expr, var
from ...backends.lang.interpret import storage
from ...backends.lang.kernel import COMPUTE, Array, Kernel, elementwise
from ...core.types.wide import is_half
from ..declare import REGISTRY

Forward = Callable[..., Any]
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
INT64, BOOL = np.dtype(np.int64), np.dtype(bool)
MOST_AXES = 8  # that a generated kernel walks


def on_device(*names: str) -> Callable[[Forward], Forward]:
    """``forward(platform, *raw arrays, **params)`` is how primitives of these names run there."""

    def give(forward: Forward) -> Forward:
        for name in names:
            assert REGISTRY[name].on_device is None, f"{name} is given twice"
            REGISTRY[name].on_device = forward
        return forward

    return give


class _Names(dict):
    """The names of types that the kernel language knows, by type; None for others."""

    def __missing__(self, dtype: np.dtype) -> str | None:
        name = np.dtype(dtype).name
        self[dtype] = name if name in COMPUTE else None
        return self[dtype]


NAME_OF = _Names()
FLOATS = ("float32", "float64", "float16", "bfloat16")


@functools.cache
def type_named(name: str) -> np.dtype:
    """The type of that name, of numpy's and the extension's."""
    return storage(name)


@functools.cache
def kernel_of(make: Callable[[str], Kernel], dtype: str) -> Kernel:
    """``make(dtype)``, made once."""
    return make(dtype)


@functools.cache
def _cast_kernel(source: str, into: str) -> Kernel:
    return elementwise("cast", var("x"), (Array("x", source),), into)


def converted(platform: Platform, a: Any, dtype: np.dtype) -> Any:
    """``a`` as an array of ``dtype``: itself where it is one, else a new one."""
    return a if a.dtype == dtype else cast(platform, a, dtype)


def cast(platform: Platform, a: RawArray, dtype: np.dtype) -> Any:
    """A new array of ``dtype`` with the values of ``a``."""
    source, into = NAME_OF[a.dtype], NAME_OF[dtype]
    if source is None or into is None or source == into:
        if a.dtype.kind == "c" and np.dtype(dtype).kind != "c":
            a = a.real
        return a.astype(dtype)
    out = made_like(platform, a, a.shape, np.dtype(dtype))
    run(platform, _cast_kernel(source, into), (a,), out)
    return out


def widened(platform: Platform, *arrays: RawArray) -> list:
    """``arrays`` with those of half types in float32; None and numbers stay."""
    return [
        cast(platform, a, F32) if isinstance(a, platform.array_type) and is_half(a.dtype) else a
        for a in arrays
    ]


def through_float32(forward: Forward) -> Forward:
    """``forward`` with arrays of half types computed in float32 and rounded once; results that are
    of no floating type stay."""

    @functools.wraps(forward)
    def go(platform: Platform, *args: Any, **params: object) -> Any:
        kind = next((a.dtype for a in args if isinstance(a, platform.array_type)), None)
        if kind is None or not is_half(kind):
            return forward(platform, *args, **params)
        out = forward(platform, *widened(platform, *args), **params)
        return cast(platform, out, kind) if out.dtype == F32 else out

    return go


def made_like(platform: Platform, a: Any, shape: tuple, dtype: np.dtype) -> Any:
    """A new array of ``shape``, in memory in the order of ``a`` where that has the same shape."""
    if a.shape == shape and not a.flags.c_contiguous:
        return platform.xp.empty_like(a, dtype=dtype)
    return platform.empty(shape, dtype)


def run(platform: Platform, kernel: Kernel, args: tuple, out: Any) -> None:
    """Launch a flat kernel, elementwise, on ``args`` (arrays and numbers) and ``out``."""
    if len(out.shape) <= MOST_AXES:
        platform.launch(kernel, (*args, out))
        return
    xp, shape = platform.xp, out.shape
    flat = [
        xp.ascontiguousarray(xp.broadcast_to(a, shape)).reshape(-1)
        if isinstance(a, platform.array_type)
        else a
        for a in args
    ]
    result = platform.empty((out.size,), out.dtype)
    platform.launch(kernel, (*flat, result))
    out[...] = result.reshape(shape)


def number(x: Any) -> float:
    """A number as kernels take it."""
    return float(x)


Expression = Callable[..., Expr]

__all__ = [
    "BOOL", "F32", "F64", "FLOATS", "INT64", "MOST_AXES", "NAME_OF", "cast", "converted", "is_half",
    "kernel_of", "made_like", "number", "on_device", "run", "through_float32", "type_named",
    "widened",
]  # fmt: skip
