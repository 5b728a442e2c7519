"""Pooling over windows in one to three dimensions.

    max_pool(a)                                              the largest value of each window
    max_pool_spread(g, a, out), max_pool_pick(h, a, out)     its derivative, and that one's adjoint
    avg_pool(a), avg_pool_spread(g; size)                    linear, adjoint of each other

A window's largest value is where the input equals the result, at the first such place, or where its
last nan is; nothing is saved but input and result. Both kinds of window are done one dimension
after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...backends.fused import largest
from ...backends.fused import windows as few
from ...core.gate import Primitive
from ...core.types.wide import through_float32
from ..declare import primitive
from .batching import fronted, merge, split
from .elementwise import sign
from .windows import inside, taps


# --- sizes and padding -------------------------------------------------------------------------
def pooled_sizes(
    size: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple, ceil_mode: bool
) -> tuple[int, ...]:
    """How many windows there are. In ``ceil_mode`` the last may stick out behind, but must start
    in the input or in the padding before it."""
    out = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        out.append(count - 1 if ceil_mode and (count - 1) * s >= n + p else count)
    return tuple(out)


def _padded(
    x: np.ndarray,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    out: tuple,
    value: float,
    reach: tuple | None = None,
) -> Any:
    """``x`` with ``value`` around it, as far as the windows reach."""
    size = x.shape[2:]
    reach = reach or _reach(size, out, kernel, stride, padding, dilation)
    if reach == size:
        return x
    wide = np.full((*x.shape[:2], *reach), value, x.dtype)
    wide[inside(size, padding)] = x
    return wide


def _reach(
    size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> tuple[int, ...]:
    """How far ``out`` windows reach over an input of ``size`` and what is around it."""
    return tuple(
        max(n + p, (m - 1) * s + d * (k - 1) + 1)
        for n, m, k, s, p, d in zip(
            size, out, kernel, stride, _twice(padding), dilation, strict=True
        )
    )


@lru_cache(256)
def _windows(
    size: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple, ceil_mode: bool
) -> tuple[tuple, tuple]:
    """How many windows there are, and how far they reach."""
    out = pooled_sizes(size, kernel, stride, padding, dilation, ceil_mode)
    return out, _reach(size, out, kernel, stride, padding, dilation)


def _twice(padding: tuple) -> tuple:
    return tuple(2 * p for p in padding)


def _lowest(kind: np.dtype) -> Any:
    return np.iinfo(kind).min if kind.kind in "iu" else -np.inf


def _along(
    ufunc: Callable[..., Any], x: np.ndarray, axis: int, k: int, s: int, d: int, n: int
) -> Any:
    """``ufunc`` over the windows along one axis."""

    def tap(t: int) -> Any:
        where = [slice(None)] * x.ndim
        where[axis] = slice(t * d, t * d + (n - 1) * s + 1, s)
        return x[tuple(where)]

    if k == 1:
        return tap(0)
    out = ufunc(tap(0), tap(1))
    for t in range(2, k):
        ufunc(out, tap(t), out=out)
    return out


# --- the largest -------------------------------------------------------------------------------
def _max_pool(
    a: np.ndarray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple, ceil_mode: bool
) -> Any:
    out, reach = _windows(a.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    found = few.largest(a, out, kernel, stride, padding, dilation)
    if found is not None:
        return found
    x = _padded(a, kernel, stride, padding, dilation, out, _lowest(a.dtype), reach)
    for i in range(len(kernel)):
        x = _along(np.maximum, x, 2 + i, kernel[i], stride[i], dilation[i], out[i])
    return x.copy() if max(kernel) == 1 else np.ascontiguousarray(x)


def _hits(
    a: np.ndarray, best: np.ndarray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> Any:
    """Each kernel position with its slices (of ``a`` and what is around it) and where it holds its
    window's largest value: the first of equal ones, the last nan."""
    size, out, low = a.shape[2:], best.shape[2:], _lowest(a.dtype)
    x = _padded(a, kernel, stride, padding, dilation, out, low)
    free = np.ones(best.shape, bool)
    around = x.shape != a.shape and (best == low).any()  # what is around looks like a largest value
    real = np.ones((1, 1, *size), bool)
    real = _padded(real, kernel, stride, padding, dilation, out, False) if around else real
    last = _last_nan(x, best, kernel, stride, dilation)
    for t, (_, where) in enumerate(taps(kernel, out, stride, dilation)):
        hit = x[(Ellipsis, *where)] == best
        hit &= free
        if around:
            hit &= real[(Ellipsis, *where)]
        free ^= hit
        if last is not None:
            hit |= last == t
        yield (Ellipsis, *where), hit


def _last_nan(
    x: np.ndarray, best: np.ndarray, kernel: tuple, stride: tuple, dilation: tuple
) -> Any:
    """Which kernel position has each window's last nan, or None where there is none at all."""
    if x.dtype.kind in "iu" or not (best != best).any():
        return None
    last = np.full(best.shape, -1, np.int64)
    for t, (_, where) in enumerate(taps(kernel, best.shape[2:], stride, dilation)):
        seen = x[(Ellipsis, *where)]
        last[np.broadcast_to(seen != seen, last.shape)] = t
    return last


def _bits(x: np.ndarray) -> Any:
    """As integers: their product with ones and zeros selects, where that of an infinity and 0 would
    be nan, and is as fast."""
    return x.view(f"i{x.itemsize}")


@through_float32
def _max_spread(
    g: np.ndarray,
    a: np.ndarray,
    best: np.ndarray,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    ceil_mode: bool,
) -> Any:
    found = few.spread_largest(g, a, kernel, stride, padding, dilation)
    if found is not None:
        return found
    out, low = best.shape[2:], _lowest(a.dtype)
    x = _padded(a, kernel, stride, padding, dilation, out, low)
    odd = (best != best).any() or (x.shape != a.shape and (best == low).any())
    if odd and math.prod(kernel) <= MOST_TAPS:
        found = places(a, best, kernel, stride, padding, dilation, ceil_mode)
        return spread_to(g, found, a.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    full = np.zeros(x.shape, g.dtype)
    if odd or not largest.add_first(full, g, x, best, kernel, stride, dilation):
        for where, hit in _hits(a, best, kernel, stride, padding, dilation):
            _add_where(full[where], g, hit)
    return full if full.shape == a.shape else full[inside(a.shape[2:], padding)]


def _add_where(region: np.ndarray, g: np.ndarray, hit: np.ndarray) -> None:
    np.add(region, g, out=region, where=hit)


MOST_TAPS = 255  # kernel positions that a byte can tell apart, and none of them


def places(
    a: np.ndarray, best: np.ndarray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple,
    ceil_mode: bool,
) -> np.ndarray:  # fmt: skip
    """Per window, which kernel position has its first largest value, as a byte."""
    found = np.full(best.shape, MOST_TAPS, np.uint8)
    for t, (_, hit) in enumerate(_hits(a, best, kernel, stride, padding, dilation)):
        np.subtract(found, hit.view(np.uint8) * np.uint8(MOST_TAPS - t), out=found)
    return found


def spread_to(
    g: np.ndarray, found: np.ndarray, size: tuple, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple, ceil_mode: bool,
) -> np.ndarray:  # fmt: skip
    """``max_pool_spread`` by ``places`` in an input of ``size``."""
    out = found.shape[2:]
    reach = _reach(size, out, kernel, stride, padding, dilation)
    full = np.zeros((*g.shape[:2], *reach), g.dtype)
    if not largest.add_known(full, g, found, kernel, stride, dilation):
        for t, (_, where) in enumerate(taps(kernel, out, stride, dilation)):
            _add_where(full[(Ellipsis, *where)], g, found == t)
    if full.shape[2:] == size:
        return full
    found = full[inside(size, padding)]
    few_of_them = few.are_few("spread", g.shape, g.dtype, kernel)  # as ``_max_spread`` lays it out
    return np.ascontiguousarray(found) if few_of_them else found


@through_float32
def _max_pick(
    h: np.ndarray,
    a: np.ndarray,
    best: np.ndarray,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    ceil_mode: bool,
) -> Any:
    out = best.shape[2:]
    h = _padded(h, kernel, stride, padding, dilation, out, 0)
    total = np.zeros(best.shape, h.dtype)
    for where, hit in _hits(a, best, kernel, stride, padding, dilation):
        total += (_bits(h[where]) * hit).view(h.dtype)
    return total


def _max_indices(
    a: np.ndarray, best: np.ndarray, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple,
    ceil_mode: bool,
) -> Any:  # fmt: skip
    size, out = a.shape[2:], best.shape[2:]
    places = np.full((1, 1, *size), 0, np.int64)
    places[0, 0] = np.arange(math.prod(size)).reshape(size)
    places = _padded(places, kernel, stride, padding, dilation, out, 0)
    found = np.zeros(best.shape, np.int64)
    for where, hit in _hits(a, best, kernel, stride, padding, dilation):
        np.copyto(found, places[where], where=hit)
    return found


def _max_shape(
    a: Any, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple, ceil_mode: bool
) -> tuple:
    out = pooled_sizes(a.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    return (*a.shape[:2], *out), a.dtype


def _folded(prim: Callable) -> Callable:
    """The batch rule of what treats all samples alike."""

    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        merged = [merge(fronted(x, d, size)) for x, d in zip(args, dims, strict=True)]
        return split(prim()(*merged, **params), size), 0

    return rule


def _max_rule(
    g: object,
    a: object,
    out: object,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    ceil_mode: bool,
) -> Any:
    return max_pool_spread(
        g, a, out, kernel=kernel, stride=stride, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode,
    )  # fmt: skip


def _spread_rule(
    g: object,
    a: object,
    best: object,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    ceil_mode: bool,
) -> Any:
    return max_pool_pick(
        g, a, best, kernel=kernel, stride=stride, padding=padding, dilation=dilation,
        ceil_mode=ceil_mode,
    )  # fmt: skip


def _pick_rule(
    g: object,
    a: object,
    best: object,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    dilation: tuple,
    ceil_mode: bool,
) -> Any:
    return _max_rule(g, a, best, kernel, stride, padding, dilation, ceil_mode)


_SQUARE = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1),
           "ceil_mode": False}  # fmt: skip
_GENERAL = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2),
            "ceil_mode": True}  # fmt: skip


def _pool_samples(rng: np.random.Generator) -> list:
    return [((rng.normal(size=(2, 2, 5, 5)),), dict(how)) for how in (_SQUARE, _GENERAL)]


max_pool: Primitive = primitive(
    "max_pool", _max_pool, "a", vjp={"a": _max_rule}, shape=_max_shape, samples=_pool_samples,
    own_result=True, batch=_folded(lambda: max_pool),
    jvp=lambda primals, tangents, params: max_pool_pick(
        tangents[0], primals[0], max_pool(primals[0], **params), **params
    ),
)  # fmt: skip
max_pool_spread: Primitive = primitive(
    "max_pool_spread", _max_spread, "g_out a best",
    vjp={"g_out": _spread_rule, "a": lambda g, a: sign(a) * 0},  # a step of the input: slope zero
    shape=lambda g_out, a, best, **how: (a.shape, g_out.dtype),
    batch=_folded(lambda: max_pool_spread),
)  # fmt: skip
max_pool_pick: Primitive = primitive(
    "max_pool_pick", _max_pick, "h a best", vjp={"h": _pick_rule},
    shape=lambda h, a, best, **how: (best.shape, h.dtype), batch=_folded(lambda: max_pool_pick),
)  # fmt: skip
max_pool_indices: Primitive = primitive(
    "max_pool_indices", _max_indices, "a best",
    shape=lambda a, best, **how: (best.shape, np.dtype(np.int64)),
    batch=_folded(lambda: max_pool_indices),
)  # fmt: skip


# --- the mean ----------------------------------------------------------------------------------
@lru_cache(64)
def _counts(
    size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple, include: bool,
    divisor: int | None, kind: np.dtype,
) -> Any:  # fmt: skip
    """By what each window's sum is multiplied (integers: divided), shaped to broadcast over
    (N, C, *out)."""
    if divisor is not None:
        return kind.type(divisor if kind.kind in "iu" else 1.0 / divisor)
    total: Any = np.ones((), np.float64)
    for n, m, k, s, p in zip(size, out, kernel, stride, padding, strict=True):
        first = np.arange(m) * s - p
        low, high = (first, n + p) if include else (np.maximum(first, 0), n)
        total = total[..., None] * (np.minimum(first + k, high) - low)
    if kind.kind in "iu":
        return total.astype(kind)
    scale = 1.0 / total
    if (scale == scale.flat[0]).all():
        return kind.type(scale.flat[0])
    scale = scale.astype(kind)
    scale.flags.writeable = False  # the next call is given it, too
    return scale


@through_float32
def _avg_pool(
    a: np.ndarray, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool, include: bool,
    divisor: int | None,
) -> Any:  # fmt: skip
    ones = (1,) * len(kernel)
    out, reach = _windows(a.shape[2:], kernel, stride, padding, ones, ceil_mode)
    scale = _counts(a.shape[2:], out, kernel, stride, padding, include, divisor, a.dtype)
    found = few.mean(a, scale, out, kernel, stride, padding)
    if found is not None:
        return found
    x = _padded(a, kernel, stride, padding, ones, out, 0, reach)
    for i in range(len(kernel)):
        x = _along(np.add, x, 2 + i, kernel[i], stride[i], 1, out[i])
    if x.dtype.kind in "iu":
        return np.sign(x) * np.sign(scale) * (abs(x) // abs(scale))
    return x * scale


def _spread_along(x: np.ndarray, axis: int, k: int, s: int, reach: int) -> Any:
    """The adjoint of ``_along(np.add, ...)``."""
    n = x.shape[axis]
    if k == s and n * s == reach and axis < x.ndim - 1:  # rows that are written once
        return np.repeat(x, k, axis)
    shape = list(x.shape)
    shape[axis] = reach
    out = np.zeros(shape, x.dtype)
    for t in range(k):
        where = [slice(None)] * x.ndim
        where[axis] = slice(t, t + (n - 1) * s + 1, s)
        region = out[tuple(where)]
        if s >= k:
            region[...] = x
        else:
            region += x
    return out


@through_float32
def _avg_spread(
    g: np.ndarray, size: tuple, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool,
    include: bool, divisor: int | None,
) -> Any:  # fmt: skip
    out = g.shape[2:]
    x = g * _counts(size, out, kernel, stride, padding, include, divisor, g.dtype)
    for i in reversed(range(len(kernel))):
        reach = max(size[i] + 2 * padding[i], (out[i] - 1) * stride[i] + kernel[i])
        x = _spread_along(x, 2 + i, kernel[i], stride[i], reach)
    return x if x.shape[2:] == size else np.ascontiguousarray(x[inside(size, padding)])


def _avg_shape(
    a: object, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool, **rest: object
) -> tuple:
    return _max_shape(a, kernel, stride, padding, (1,) * len(kernel), ceil_mode)


def _avg_rule(
    g: object, a_shape: tuple, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool,
    include: bool, divisor: int | None,
) -> Any:  # fmt: skip
    return avg_pool_spread(
        g, size=tuple(a_shape)[2:], kernel=kernel, stride=stride, padding=padding,
        ceil_mode=ceil_mode, include=include, divisor=divisor,
    )  # fmt: skip


def _avg_spread_rule(
    g: object, kernel: tuple, stride: tuple, padding: tuple, ceil_mode: bool, include: bool,
    divisor: int | None,
) -> Any:  # fmt: skip
    return avg_pool(
        g, kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode, include=include,
        divisor=divisor,
    )  # fmt: skip


_MEAN = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "ceil_mode": True,
         "include": False, "divisor": None}  # fmt: skip

avg_pool: Primitive = primitive(
    "avg_pool", _avg_pool, "a", vjp={"a": _avg_rule}, jvp="linear", shape=_avg_shape,
    batch=_folded(lambda: avg_pool),
    samples=lambda rng: [((rng.normal(size=(2, 2, 4, 5)),), dict(_MEAN))],
)  # fmt: skip
avg_pool_spread: Primitive = primitive(
    "avg_pool_spread", _avg_spread, "g_out", vjp={"g_out": _avg_spread_rule}, jvp="linear",
    shape=lambda g_out, size, **how: ((*g_out.shape[:2], *size), g_out.dtype),
    batch=_folded(lambda: avg_pool_spread),
    samples=lambda rng: [((rng.normal(size=(2, 2, 3, 4)),), {**_MEAN, "size": (4, 5)})],
)  # fmt: skip
