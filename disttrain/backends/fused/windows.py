"""Pooling over a few windows, by code that takes them where they lie.

    largest(x, out, ...)           the largest value of each window
    spread_largest(g, x, ...)      its derivative: ``g`` where those values are
    mean(x, scale, out, ...)       the sum of each window times its scale

Each gives None, with nothing done, where there are many windows (numpy's long rows are faster), and
for other types than float32 and float64. Arrays are (N, C, *spatial). A window's largest value is
the first of equal ones, or the last nan; sums go along the first axis first. Places beyond the
borders are left out.
"""

from __future__ import annotations

import importlib
import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ..addresses import address

# Taps of all windows up to which it gains (measured): the largest, their derivative, means.
MOST = {"largest": 1 << 11, "spread": 1 << 12, "mean": 1 << 12}


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first windows."""
    return importlib.import_module("..llvm.kernels.windows", __package__)


class _Plan(NamedTuple):
    """What code is told, and the tables that this names."""

    code: tuple[Any, Any, Any]
    told: ndarray
    tables: list[ndarray]
    windows: int  # of a plane


@lru_cache(256)
def _plan(
    kind: np.dtype, size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple, scales: int,
) -> _Plan | None:  # fmt: skip
    """``scales``: how many scales there are, one for each window or one for all."""
    if kind.char not in "fd" or not kind.isnative or len(size) > 3:
        return None
    code = _code().code(kind.name)
    if code is None:
        return None
    missing = 3 - len(size)
    steps = [kind.itemsize * math.prod(size[k + 1 :]) for k in range(len(size))]
    given = zip(size, out, kernel, stride, padding, dilation, steps, strict=True)
    axes = [(1, 1, 1, 1, 0, 1, 0)] * missing + list(given)
    tables = [_table(*axis) for axis in axes]
    numbers = [kind.itemsize * math.prod(size), math.prod(out)]
    numbers += [axis[1] for axis in axes] + [address(table) for table in tables]
    numbers += [axis[5] * axis[6] for axis in axes] + [kind.itemsize if scales > 1 else 0]
    return _Plan(code, np.array(numbers, np.int64), tables, math.prod(out))


def _table(n: int, m: int, k: int, s: int, p: int, d: int, step: int) -> ndarray:
    """Of each of ``m`` windows along an axis, bytes to its first tap inside and how many are."""
    found = []
    for i in range(m):
        begin = i * s - p
        first = max(0, -(begin // d))
        last = min(k, (n - 1 - begin) // d + 1)
        found.append(((begin + first * d) * step, max(0, last - first)))
    return np.array(found, np.int64)


def are_few(what: str, shape: tuple, kind: np.dtype, kernel: tuple) -> bool:
    """Whether (N, C, windows ...) of that kernel are few enough for ``what``, named in ``MOST``."""
    return kind.char in "fd" and 0 < math.prod(shape) * math.prod(kernel) <= MOST[what]


def _ready(what: str, x: ndarray, out: tuple, scales: int, *how: tuple) -> _Plan | None:
    shape = (*x.shape[:2], *out)
    if x.__class__ is not ndarray or not are_few(what, shape, x.dtype, how[0]):
        return None
    return _plan(x.dtype, x.shape[2:], out, *how, scales)


def _ordered(a: ndarray) -> ndarray:
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


def largest(
    x: ndarray, out: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> ndarray | None:
    """Of ``out`` windows along each axis."""
    plan = _ready("largest", x, out, 1, kernel, stride, padding, dilation)
    if plan is None:
        return None
    x, n, c = _ordered(x), *x.shape[:2]
    y = np.empty((n, c, *out), x.dtype)
    plan.code[0](address(y), address(x), address(plan.told), 0, n * c)
    return y


def spread_largest(
    g: ndarray, x: ndarray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> ndarray | None:
    """An array like ``x``: at each place the sum of ``g`` over the windows whose largest it is."""
    plan = _ready("spread", x, g.shape[2:], 1, kernel, stride, padding, dilation)
    if plan is None or g.dtype != x.dtype:
        return None
    g, x = _ordered(g), _ordered(x)
    dx = np.zeros(x.shape, x.dtype)
    planes = x.shape[0] * x.shape[1]
    plan.code[1](address(dx), address(g), address(x), address(plan.told), 0, planes)
    return dx


def mean(
    x: ndarray, scale: Any, out: tuple, kernel: tuple, stride: tuple, padding: tuple
) -> ndarray | None:
    """Sums times ``scale``, a number or an array of one for each window, of the type of ``x``."""
    scale = np.asarray(scale)
    plan = _ready("mean", x, out, scale.size, kernel, stride, padding, (1,) * len(out))
    if plan is None or scale.dtype != x.dtype:
        return None
    x, n, c = _ordered(x), *x.shape[:2]
    y, scale = np.empty((n, c, *out), x.dtype), _ordered(scale)
    plan.code[2](address(y), address(x), address(scale), address(plan.told), 0, n * c)
    return y


__all__ = ["are_few", "largest", "mean", "spread_largest"]
