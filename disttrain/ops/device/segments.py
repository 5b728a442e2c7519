"""Adding up, on a device, what falls on one place: in a fixed order, without atomics on floating
numbers, and without the host looking at the numbers of the places.

    add_rows(platform, g (n, d), index (n), size)     out[index[i]] += g[i], as a new (size, d)
    winners(platform, at (n), size)                   which i is the last with at[i] == place, or -1
    largest(platform, out (size), at (n), values (n)) out[at[i]] = max(out[at[i]], values[i])

Equal places are brought together by a stable sort; then each row adds the one that lies 1, 2, 4 ...
before it where that has the same place, so that the last row of a run holds its sum (Hillis and
Steele 1986). Few places take a product with one-hot columns instead.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...backends.device.platform import Platform
from ...backends.lang import expr as ex
from ...backends.lang.kernel import Array, Kernel, elementwise
from .table import F32, FLOATS, INT64, NAME_OF, cast, is_half, run

_FEW = 256  # places up to which a product with one-hot columns is quick
_HOT = 1 << 24  # elements that those columns may have
_EXACT = ("int64", "int32", "uint64", "uint32")  # whose sums by atomics are exact


@functools.cache
def _step(dtype: str, product: bool) -> Kernel:
    """What lies before joins where it is of the same run."""

    def fn(place: Any, before: Any, x: Any, y: Any) -> Any:
        return ex.where(ex.eq(place, before), x * y if product else x + y, x)

    params = (
        Array("place", "int64"),
        Array("before", "int64"),
        Array("x", dtype),
        Array("y", dtype),
    )
    return elementwise("segment_step", fn, params, dtype)


def _scanned(platform: Platform, places: Any, x: Any, product: bool) -> Any:
    """Running sums (products) of ``x`` (n, d) within each run of equal ``places`` (n, 1)."""
    xp, n, name = platform.xp, x.shape[0], NAME_OF[x.dtype]
    step = 1
    while step < n:
        later, before = x[step:], x[:-step]
        if name in FLOATS:
            joined = platform.empty(later.shape, x.dtype)
            run(platform, _step(str(name), product), (places[step:], places[:-step], later, before),
                joined)  # fmt: skip
        else:
            both = later * before if product else later + before
            joined = xp.where(places[step:] == places[:-step], both, later)
        x = xp.concatenate((x[:step], joined))
        step *= 2
    return x


def add_rows(platform: Platform, g: Any, index: Any, size: int) -> Any:
    """See above. Half types are added up in float32."""
    kind = g.dtype
    if is_half(kind):
        return cast(platform, add_rows(platform, cast(platform, g, F32), index, size), kind)
    xp, (n, d) = platform.xp, g.shape
    if not (n and d and size):
        return xp.zeros((size, d), kind)
    if kind.name in _EXACT:
        out = xp.zeros((size, d), kind)
        rows = index if d == 1 else index[:, None] * d + xp.arange(d)
        xp.add.at(out.reshape(-1), rows.reshape(-1), g.reshape(-1))
        return out
    if kind.kind == "f" and size <= _FEW and n * size <= _HOT:
        hot = cast(platform, xp.arange(size)[:, None] == index, kind)
        return platform.matmul(hot, g)
    return combined(platform, g, index, size, False)[0]


def combined(platform: Platform, g: Any, index: Any, size: int, product: bool) -> tuple:
    """(the sums or products by place (size, d), which places there are (size, 1)); where nothing
    falls, the neutral number."""
    xp = platform.xp
    order = xp.argsort(index, kind="stable")
    places = index[order]
    x = _scanned(platform, places.reshape(-1, 1), g[order], product)
    every = xp.arange(size)
    first = xp.searchsorted(places, every, side="left")
    last = xp.searchsorted(places, every, side="right")
    there = (last > first).reshape(-1, 1)
    rows = x[xp.maximum(last - 1, 0)]
    neutral = xp.full((), 1 if product else 0, x.dtype)
    return xp.where(there, rows, neutral), there


def winners(platform: Platform, at: Any, size: int) -> Any:
    """The largest number is found by atomics on integers, whose order does not matter."""
    xp = platform.xp
    out = xp.full(size, -1, INT64)
    xp.maximum.at(out, at, xp.arange(at.size))
    return out


def largest(platform: Platform, out: Any, at: Any, values: Any) -> None:
    """Floating numbers are compared as integers of the same order, nan above all, so that atomics
    serve and nan stays."""
    xp = platform.xp
    if out.dtype.kind != "f":
        wide = _exact_type(out.dtype)
        exact = out.astype(wide)
        xp.maximum.at(exact, at, values.astype(wide))
        out[...] = exact.astype(out.dtype)
        return
    keys = _ordered(xp, out)
    xp.maximum.at(keys, at, _ordered(xp, values))
    out[...] = _floats(xp, keys, out.dtype)


def _exact_type(kind: np.dtype) -> np.dtype:
    return kind if kind.name in _EXACT else INT64


def _ordered(xp: Any, a: Any) -> Any:
    """Integers in the order of the floats ``a`` (IEEE 754: negative ones count downwards)."""
    a = xp.where(xp.isnan(a), np.abs(a), a)
    whole = np.dtype(f"i{a.dtype.itemsize}")
    bits = xp.ascontiguousarray(a).view(whole)
    return xp.where(bits < 0, bits ^ np.iinfo(whole).max, bits)


def _floats(xp: Any, keys: Any, kind: np.dtype) -> Any:
    bits = xp.where(keys < 0, keys ^ np.iinfo(keys.dtype).max, keys)
    return bits.view(kind)
