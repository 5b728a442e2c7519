"""Softmax and its logarithm over the last axis, on arrays.

    softmax(x, out=None) -> out            softmax_backward(g, y, into=None) -> dx
    log_softmax(x, out=None) -> out        log_softmax_backward(g, y, into=None) -> dx

Arrays are float32, float64, float16 or bfloat16 of any layout; the last two are computed in
float32. Every row is read from memory once: it stays in the cache for the later passes.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from ..family import Family
from ..lang.expr import exp, log, var
from ..lang.kernel import Array, Kernel, Let, Loop, Reduce, Store, wide_type
from .places import empty

_X, _G, _OUT, _MAX = var("x"), var("g"), var("out"), var("max")


def _softmax(dtype: str) -> Kernel:
    shifted = exp(_X - _MAX)
    body: tuple[Store | Reduce, ...]
    total = Reduce("total", "sum", shifted)
    if dtype == wide_type(dtype):
        body, last = (Store("out", shifted), total), _OUT * var("scale")
    else:
        body, last = (total,), shifted * var("scale")
    steps = (
        Loop((Reduce("max", "maxnum", _X),)),
        Loop(body),
        Let("scale", 1 / var("total")),
        Loop((Store("out", last),)),
    )
    return Kernel("softmax", (Array("x", dtype), Array("out", dtype, writes=True)), steps)


def _softmax_backward(dtype: str) -> Kernel:
    y = var("y")
    steps = (Loop((Reduce("dot", "sum", _G * y),)), Loop((Store("out", y * (_G - var("dot"))),)))
    return Kernel(
        "softmax_backward",
        (Array("g", dtype), Array("y", dtype), Array("out", dtype, writes=True)),
        steps,
    )


def _log_softmax(dtype: str) -> Kernel:
    steps = (
        Loop((Reduce("max", "maxnum", _X),)),
        Loop((Reduce("total", "sum", exp(_X - _MAX)),)),
        Let("log_total", log(var("total"))),
        Loop((Store("out", _X - _MAX - var("log_total")),)),
    )
    return Kernel("log_softmax", (Array("x", dtype), Array("out", dtype, writes=True)), steps)


def _log_softmax_backward(dtype: str) -> Kernel:
    steps = (
        Loop((Reduce("total", "sum", _G),)),
        Loop((Store("out", _G - exp(var("y")) * var("total")),)),
    )
    params = (Array("g", dtype), Array("y", dtype), Array("out", dtype, writes=True))
    return Kernel("log_softmax_backward", params, steps)


_SOFTMAX = Family(_softmax)
_SOFTMAX_BACKWARD = Family(_softmax_backward)
_LOG_SOFTMAX = Family(_log_softmax)
_LOG_SOFTMAX_BACKWARD = Family(_log_softmax_backward)
_KERNELS = {
    "softmax": _softmax,
    "softmax_backward": _softmax_backward,
    "log_softmax": _log_softmax,
    "log_softmax_backward": _log_softmax_backward,
}


def kernel(name: str, dtype: str) -> Kernel:
    """The kernel of that name; it may be run among others (``lang/rows.py``)."""
    return _KERNELS[name](dtype)


def softmax(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """exp(x) / sum(exp(x)) over the last axis."""
    if out is None:
        here = x.__class__ is ndarray
        out = np.empty(x.shape, x.dtype) if here else empty(x, x.shape, x.dtype)
    p = _SOFTMAX[x.dtype]
    p.fast(x, out) is None and p.slow(x, out)
    return out


def softmax_backward(g: np.ndarray, y: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
    """The gradient of the input of ``y = softmax(x)``, from the gradient of ``y``."""
    if into is None:
        here = y.__class__ is ndarray
        into = np.empty(y.shape, y.dtype) if here else empty(y, y.shape, y.dtype)
    p = _SOFTMAX_BACKWARD[y.dtype]
    p.fast(g, y, into) is None and p.slow(g, y, into)
    return into


def log_softmax(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """log(softmax(x)) over the last axis."""
    if out is None:
        here = x.__class__ is ndarray
        out = np.empty(x.shape, x.dtype) if here else empty(x, x.shape, x.dtype)
    p = _LOG_SOFTMAX[x.dtype]
    p.fast(x, out) is None and p.slow(x, out)
    return out


def log_softmax_backward(
    g: np.ndarray, y: np.ndarray, into: np.ndarray | None = None
) -> np.ndarray:
    """The gradient of the input of ``y = log_softmax(x)``."""
    if into is None:
        here = y.__class__ is ndarray
        into = np.empty(y.shape, y.dtype) if here else empty(y, y.shape, y.dtype)
    p = _LOG_SOFTMAX_BACKWARD[y.dtype]
    p.fast(g, y, into) is None and p.slow(g, y, into)
    return into
