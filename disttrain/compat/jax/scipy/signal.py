"""``jax.scipy.signal``: convolutions of arrays, and trends removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....arrays import filters
from ....arrays.axes import axis_of
from ....ops import api as ops
from .. import types
from ..array import Array
from ..numpy.lifting import given_back, one, operands


def _checked(name: str, mode: str, a: Any, b: Any, ndim: int | None) -> None:
    if mode not in ("full", "same", "valid"):
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    if a.ndim != b.ndim or (ndim is not None and a.ndim != ndim):
        raise ValueError(
            f"{name}: inputs must have the same number of dimensions, got {a.ndim}, {b.ndim}"
        )


def _swapped(a: Any, b: Any, mode: str) -> bool:
    if mode != "valid" or all(n >= m for n, m in zip(a.shape, b.shape)):
        return False
    if all(n <= m for n, m in zip(a.shape, b.shape)):
        return True
    raise ValueError(
        "One input must be smaller than the other in every dimension for mode 'valid'."
    )


def _filter(name: str, fn: Callable, ndim: int | None, conjugate: bool) -> Callable:
    def run(
        in1: Any, in2: Any, mode: str = "full", *args: Any, precision: Any = None, **how: Any
    ) -> Array:
        (a, b), _ = operands(name, (in1, in2), types.inexact)
        _checked(name, mode, a, b, ndim)
        b = ops.conj(b) if conjugate else b
        if _swapped(a, b, mode):
            out = fn(b, a, mode)
            out = ops.flip(out, tuple(range(out.ndim))) if conjugate else out
        else:
            out = fn(a, b, mode)
        return given_back(out, False, in1, in2)

    run.__name__ = name
    return run


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0,  # noqa: A002
            overwrite_data: Any = None) -> Array:  # fmt: skip
    """``data`` less its mean, or its line of least squares."""
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    x = one("detrend", data, types.inexact)
    breaks = (bp,) if isinstance(bp, int) else tuple(int(p) for p in bp)
    return given_back(filters.detrend(x, axis_of(axis, x.ndim), type, breaks), False, data)


NAMES = {
    "convolve": _filter("convolve", filters.convolve, None, False),
    "correlate": _filter("correlate", filters.correlate, None, True),
    "convolve2d": _filter("convolve2d", filters.convolve, 2, False),
    "correlate2d": _filter("correlate2d", filters.correlate, 2, True),
    "fftconvolve": _filter("fftconvolve", filters.convolve, None, False),
    "detrend": detrend,
}
globals().update(NAMES)
__all__ = list(NAMES)
