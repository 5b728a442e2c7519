"""Combining, on a device, what falls on one place: in a fixed order, without atomics on floating
numbers, and without the host looking at the numbers of the places.

    add_rows(platform, g (n, d), index (n), size)     out[index[i]] += g[i], as a new (size, d)
    products(platform, g (n), index (n), size)        (the product by place, where there is one)
    winners(platform, at (n), size)                   which i is the last with at[i] == place, or -1
    largest(platform, out (size), at (n), values (n)) out[at[i]] = max(out[at[i]], values[i])

Equal places are brought together by a stable sort. Sums then are a code of the device's; in
products each number is multiplied by the one that lies 1, 2, 4 ... before it where that has the
same place, so that the last of a run holds its product (Hillis and Steele 1986).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.codes.table import ADD_ROWS
from ...backends.device.platform import Platform
from ...backends.lang import expr as ex
from ...backends.lang.kernel import Array, Kernel, elementwise
from .table import BOOL, FLOATS, INT64, NAME_OF, cast, converted, run

_EXACT = ("int64", "int32", "uint64", "uint32")  # whose sums by atomics are exact


@functools.cache
def _step(dtype: str) -> Kernel:
    """What lies before joins where it is of the same run."""

    def fn(place: Any, before: Any, x: object, y: Any) -> Any:
        return ex.where(ex.eq(place, before), x * y, x)

    at = (Array("place", "int64"), Array("before", "int64"))
    return elementwise("segment_step", fn, (*at, Array("x", dtype), Array("y", dtype)), dtype)


def _scanned(platform: Platform, places: RawArray, x: RawArray) -> Any:
    """Running products of ``x`` within each run of equal ``places``."""
    xp, n, name = platform.xp, x.shape[0], NAME_OF[x.dtype]
    step = 1
    while step < n:
        later, before = x[step:], x[:-step]
        if name in FLOATS:
            joined = platform.empty(later.shape, x.dtype)
            run(platform, _step(str(name)), (places[step:], places[:-step], later, before), joined)
        else:
            joined = xp.where(places[step:] == places[:-step], later * before, later)
        x = xp.concatenate((x[:step], joined))
        step *= 2
    return x


def add_rows(platform: Platform, g: Any, index: Any, size: int) -> Any:
    """See above. Half types are added up in float32."""
    xp, (n, d), kind = platform.xp, g.shape, g.dtype
    if kind == BOOL:
        return add_rows(platform, g.astype(INT64), index, size) != 0
    out = xp.zeros((size, d), kind)
    if not (n and d and size):
        return out
    if kind.name in _EXACT:
        rows = index if d == 1 else index[:, None] * d + xp.arange(d)
        xp.add.at(out.reshape(-1), rows.reshape(-1), g.reshape(-1))
        return out
    g = xp.ascontiguousarray(g)
    if kind.kind == "c":
        part = np.dtype(f"f{kind.itemsize // 2}")
        return add_rows(platform, g.view(part), index, size).view(kind)
    if NAME_OF[kind] is None:
        return cast(platform, add_rows(platform, g.astype(INT64), index, size), kind)
    order, places = sorted_places(platform, index)
    platform.run_code(ADD_ROWS, (g, order, places, out))
    return out


def sorted_places(platform: Platform, index: RawArray) -> tuple:
    """(a stable argsort of ``index``, the index in that order)."""
    index = converted(platform, index, INT64)
    order = platform.xp.argsort(index, kind="stable")
    return order, index[order]


def products(platform: Platform, g: RawArray, index: RawArray, size: int) -> tuple:
    """(the products by place (size), which places there are); 1 where nothing falls."""
    xp = platform.xp
    order, places = sorted_places(platform, index)
    x = _scanned(platform, places, g[order])
    every = xp.arange(size)
    first = xp.searchsorted(places, every, side="left")
    last = xp.searchsorted(places, every, side="right")
    there = last > first
    return xp.where(there, x[xp.maximum(last - 1, 0)], xp.full((), 1, x.dtype)), there


def winners(platform: Platform, at: RawArray, size: int) -> Any:
    """The largest number is found by atomics on integers, whose order does not matter."""
    xp = platform.xp
    out = xp.full(size, -1, INT64)
    xp.maximum.at(out, at, xp.arange(at.size))
    return out


def largest(platform: Platform, out: RawArray, at: RawArray, values: RawArray) -> None:
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


def _floats(xp: Any, keys: RawArray, kind: np.dtype) -> Any:
    bits = xp.where(keys < 0, keys ^ np.iinfo(keys.dtype).max, keys)
    return bits.view(kind)
