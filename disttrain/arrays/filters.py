"""Convolutions of whole arrays, interpolation between points, phases without jumps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..ops import api as ops
from .axes import axis_of


def convolve(x: Tensor, kernel: Tensor, mode: str = "full") -> Tensor:
    """The discrete convolution over all dimensions, of any element type: "full", "same" (as large
    as ``x``) or "valid" (without the edges)."""
    return correlate(x, ops.flip(kernel, tuple(range(kernel.ndim))), mode)


def correlate(x: Tensor, kernel: Tensor, mode: str = "full") -> Tensor:
    """The sliding product of ``x`` with ``kernel`` (not conjugated) over all dimensions."""
    sizes = tuple(kernel.shape)
    pads: list[int] = []
    for n in reversed(sizes):
        ends = {"full": (n - 1, n - 1), "same": (n // 2, (n - 1) // 2), "valid": (0, 0)}
        pads += ends[mode]
    windows = ops.pad(x, pads) if any(pads) else x
    for d, n in enumerate(sizes):
        windows = windows.unfold(d, n, 1)
    d = kernel.ndim
    return ops.tensordot(windows, kernel, (tuple(range(d, 2 * d)), tuple(range(d))))


def convolved(a: Tensor, v: Tensor, mode: str = "full") -> Tensor:
    """``convolve`` of two lines, the longer by the shorter."""
    _lines("convolve", a, v, mode)
    return convolve(a, v, mode) if a.shape[0] >= v.shape[0] else convolve(v, a, mode)


def correlated(a: Tensor, v: Tensor, mode: str = "valid") -> Tensor:
    """``correlate`` of a line with another one, conjugated, of any length."""
    _lines("correlate", a, v, mode)
    if a.shape[0] >= v.shape[0]:
        return correlate(a, ops.conj(v), mode)
    return ops.flip(correlate(ops.conj(v), a, mode), (0,))


def _filter(fn: Callable, conjugate: bool, ndim: int | None) -> Callable:
    """SciPy's arguments for a sliding product of arrays."""

    def run(in1: Tensor, in2: Tensor, mode: str = "full") -> Tensor:
        if mode not in ("full", "same", "valid"):
            raise ValueError("mode must be one of ['full', 'same', 'valid']")
        if in1.ndim != in2.ndim or (ndim is not None and in1.ndim != ndim):
            raise ValueError(f"inputs must have the same number of dimensions ({ndim or 'any'})")
        in2 = ops.conj(in2) if conjugate else in2
        if mode != "valid" or all(n >= m for n, m in zip(in1.shape, in2.shape)):
            return fn(in1, in2, mode)
        if any(n > m for n, m in zip(in1.shape, in2.shape)):
            raise ValueError("mode 'valid' needs one input that is smaller in every dimension")
        out = fn(in2, in1, mode)
        return ops.flip(out, tuple(range(out.ndim))) if conjugate else out

    return run


SIGNAL = {  # SciPy's names
    "convolve": _filter(convolve, False, None), "fftconvolve": _filter(convolve, False, None),
    "convolve2d": _filter(convolve, False, 2), "correlate": _filter(correlate, True, None),
    "correlate2d": _filter(correlate, True, 2),
}  # fmt: skip


def _lines(name: str, a: Tensor, v: Tensor, mode: str) -> None:
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of ['full', 'same', 'valid'], got {mode!r}")
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs.")
    if not a.shape[0] or not v.shape[0]:
        raise ValueError(
            f"{name}: inputs cannot be empty, got shapes {tuple(a.shape)} and {tuple(v.shape)}."
        )


def interp(
    x: Tensor, xp: Tensor, fp: Tensor, left: Tensor | None = None, right: Tensor | None = None,
    period: float | None = None,
) -> Tensor:  # fmt: skip
    """Linear between the points ``(xp, fp)``, ``xp`` rising; ``left`` and ``right`` outside."""
    if period is not None:
        x, xp = x % period, xp % period
        order = ops.argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = ops.cat([xp[-1:] - period, xp, xp[:1] + period])
        fp = ops.cat([fp[-1:], fp, fp[:1]])
    n = xp.shape[0]
    after = ops.clamp(ops.searchsorted(xp, x.contiguous(), right=True), 1, max(n - 1, 1))
    if n == 1:
        value = ops.zeros_like(x) + fp[0]
    else:
        low, high = _at(xp, after - 1), _at(xp, after)
        gap, start = high - low, _at(fp, after - 1)
        flat = ops.abs(gap) <= 2.0**-1022
        slope = (_at(fp, after) - start) / ops.where(flat, ops.ones_like(gap), gap)
        value = ops.where(flat, start, start + (x - low) * slope)
    if period is None:
        value = ops.where(x < xp[0], fp[0] if left is None else left, value)
        value = ops.where(x > xp[-1], fp[-1] if right is None else right, value)
    return value


def _at(values: Tensor, places: Tensor) -> Tensor:
    return values[places]


def unwrap(
    p: Tensor, discont: float | None = None, axis: int = -1, period: float = 2 * math.pi
) -> Tensor:
    """``p`` with multiples of ``period`` added where it jumps by more than ``discont``."""
    dim = axis_of(axis, p.ndim)
    if not p.shape[dim]:
        return p
    half = period / 2 if p.is_floating_point() else period // 2
    steps = ops.diff(p, dim=dim)
    wrapped = (steps + half) % period - half
    odd = (wrapped == -half) & (steps > 0)
    wrapped = ops.where(odd, ops.full_like(wrapped, half), wrapped)
    small = ops.abs(steps) < (half if discont is None else discont)
    change = ops.where(small, ops.zeros_like(steps), wrapped - steps)
    first = ops.narrow(p, dim, 0, 1)
    rest = ops.narrow(p, dim, 1, p.shape[dim] - 1) + ops.cumsum(change, dim, dtype=p.dtype)
    return ops.cat([first, rest], dim)


def detrend(data: Tensor, axis: int = -1, type: str = "linear", bp: Any = 0) -> Tensor:  # noqa: A002
    """``data`` less its mean ("constant") or lines of least squares between breaks ("linear")."""
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    dim, x, kind = axis_of(axis, data.ndim), data, type
    breaks = (bp,) if isinstance(bp, int) else tuple(int(p) for p in bp)
    if kind == "constant":
        return x - ops.mean(x, dim, keepdim=True)
    parts, ends = [], sorted({0, *breaks, x.shape[dim]})
    for start, end in itertools.pairwise(ends):
        part = ops.narrow(x, dim, start, end - start)
        n = end - start
        line = [1] * x.ndim
        line[dim] = n
        t = (ops.arange(n).to(x.dtype) - (n - 1) / 2).reshape(line)
        square = max(n * (n * n - 1) / 12, math.ulp(0.0))
        slope = ops.sum(part * t, dim, keepdim=True) / square
        parts.append(part - ops.mean(part, dim, keepdim=True) - slope * t)
    return ops.cat(parts, dim)


__all__ = ["convolve", "convolved", "correlate", "correlated", "detrend", "interp", "unwrap"]
