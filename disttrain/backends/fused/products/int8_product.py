"""Products with matrices of 8-bit integers: exact ones of integers, and of float32 with integers.

    integers(x, w) -> x @ w.T in int32, for x (m, k) of int8 or uint8 and w (n, k) of int8
    scaled(x, zero, scale, w, scales, sums, b) -> (x - zero) @ w.T * (scale scales) + b, of the same
    dynamic(x, groups, grid, w, scales, sums, b) -> the same for x of float32, rounded as it comes
    widened(x, w, scales) -> x @ w.T * scales, for x of float32

Integers are added up modulo 2**32, as ONNX's MatMulInteger does: below 65,000 terms nothing is
lost. Results do not depend on how many rows or threads there are, nor (of integers) on whether
there is machine code.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address


class Grid(NamedTuple):
    """The integers ``low`` to ``high``, around 0 (``symmetric``) or from the least to the greatest
    number of what is rounded."""

    low: int
    high: int
    symmetric: bool


_SPREAD = 1 << 23  # products from which it takes several threads (measured)
_WIDE_SPREAD = 1 << 22  # the same of float32 with integers
_TURN = np.uint8(128)  # between numbers with a sign and without


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first product."""
    return importlib.import_module("...llvm.kernels.int8_product", __package__)


@cache
def _way(scaled: bool) -> str | None:
    name: str | None = _code().way()
    return name if name is not None and _code().product(name, scaled) is not None else None


def integers(x: ndarray, w: ndarray) -> ndarray:
    """``x @ w.T``."""
    way = _way(False)
    (m, k), n = x.shape, len(w)
    if way is None or not m * n * k:
        return wrapped(x.astype(np.float64) @ w.T.astype(np.float64), k)
    signed = x.dtype.kind == "i"
    laid, rows = _laid_out(_unsigned(x), w, way)
    y = np.empty((m, n), np.int32)
    run = _code().product(way, False)
    _spread(m, n, k, lambda part, cut: _run(run, y[part, cut], laid[part], rows[cut]))
    return y - 128 * row_sums(w) if signed else y


def scaled(
    x: ndarray, zero: ndarray, scale: ndarray, w: ndarray, scales: ndarray, sums: ndarray,
    b: ndarray | None,
) -> ndarray:  # fmt: skip
    """``(x - zero) @ w.T * (scale scales) + b`` in float32. ``zero`` (int32), ``scale``: a number a
    row; ``scales``, ``b``: a number a column; ``sums``: ``row_sums(w)``."""
    way = _way(True)
    (m, k), n = x.shape, len(w)
    if b is None:
        b = np.zeros(n, np.float32)
    if way is None or not m * n * k:
        total = integers(x, w) - zero[:, None] * sums
        return (total.astype(np.float32) * (scale[:, None] * scales) + b).astype(np.float32)
    if x.dtype.kind == "i":
        x, zero = _unsigned(x), zero + np.int32(128)
    laid, rows = _laid_out(x, w, way)
    zero, scale = np.ascontiguousarray(zero, np.int32), np.ascontiguousarray(scale, np.float32)
    scales, b = np.ascontiguousarray(scales, np.float32), np.ascontiguousarray(b, np.float32)
    sums = np.ascontiguousarray(sums, np.int32)
    y = np.empty((m, n), np.float32)
    run = _code().product(way, True)

    def some(part: slice, cut: slice) -> None:
        beside = (scale[part], zero[part], scales[cut], sums[cut], b[cut])
        _run(run, y[part, cut], laid[part], rows[cut], *map(address, beside))

    _spread(m, n, k, some)
    return y


def dynamic(
    x: ndarray, groups: int, grid: Grid, w: ndarray, scales: ndarray, sums: ndarray,
    b: ndarray | None, out: ndarray | None = None,
) -> ndarray:  # fmt: skip
    """``scaled`` for x (m, k) of float32, each of ``groups`` of its rows rounded to a grid from its
    range by ``grid``. ``out``: where it is to lie, with its rows together."""
    (m, k), n, way = x.shape, len(w), _way(True)
    if way is None or not m * n * k:
        levels, scale, zero = rounded(x, groups, grid)
        found = scaled(levels, zero, scale, w, scales, sums, b)
        if out is None:
            return found
        out[...] = found
        return out
    code = _code()
    first, both = code.dynamic(way)
    block, width = code.WAYS[way].block, code.padded(way, k)
    x, rows = np.ascontiguousarray(x), _rows(w, block)
    if sums.dtype != np.int32 or not sums.flags.c_contiguous:
        sums = np.ascontiguousarray(sums, np.int32)
    laid = np.empty((m, width), np.uint8) if width == k else np.zeros((m, width), np.uint8)
    own, y = np.empty((2, m), np.float32), np.empty((m, n), np.float32) if out is None else out
    if b is None:
        b = np.zeros(n, np.float32)
    elif b.dtype != np.float32 or not b.flags.c_contiguous:
        b = np.ascontiguousarray(b, np.float32)
    place = address(own)
    given = (
        address(laid), address(x), place, place + 4 * m, groups, m // groups, k, width, grid.low,
        grid.high, grid.symmetric,
    )  # fmt: skip
    if m * n * k < _SPREAD or threads.count() == 1:
        both(
            *given, address(y), address(rows), m, n, rows.shape[1], 4 * n, rows.strides[0],
            address(scales), address(sums), address(b),
        )  # fmt: skip
        return y
    first(*given)
    run = code.product(way, True)

    def some(part: slice, cut: slice) -> None:
        zero = own[1, part]
        beside = (own[0, part], zero, scales[cut], sums[cut], b[cut])
        _run(run, y[part, cut], laid[part], rows[cut], *map(address, beside))

    _spread(m, n, k, some)
    return y


def widened(x: ndarray, w: ndarray, scales: ndarray) -> ndarray:
    """``x @ w.T * scales`` for x (m, k) of float32 and w (n, k) of int8."""
    (m, k), n = x.shape, len(w)
    code = _code()
    lanes = code.lanes()
    if not 0 < m <= code.FEW or not n * k or code.widened(lanes, 1) is None:
        return (x @ w.T.astype(np.float32)) * scales
    width = -(-k // lanes) * lanes
    laid = code.blocks(x, width, lanes)
    rows = _rows(w, lanes)
    scales = np.ascontiguousarray(scales, np.float32)
    y = np.empty((m, n), np.float32)

    def some(cut: slice) -> None:
        part = rows[cut]
        for first in range(0, m, code.ROWS):
            few = y[first : first + code.ROWS, cut]
            code.widened(lanes, len(few))(
                address(few), address(laid[first:]), address(part), address(scales[cut]),
                len(part), max(k, lanes), few.strides[0], laid.strides[0], part.strides[0],
            )  # fmt: skip

    count = threads.count() if m * n * k >= _WIDE_SPREAD else 1
    threads.spread([partial(some, cut) for cut in threads.portions(n, 64, count)])
    return y


def affine(least: Any, most: Any, low: int, high: int) -> tuple[ndarray, ndarray]:
    """(scale, zero) of the grid that has the numbers from ``least`` to ``most`` and 0, as its
    integers ``low`` to ``high``: float32 and int32. 0 is a number of the grid."""
    least, most = np.minimum(least, 0).astype(np.float64), np.maximum(most, 0).astype(np.float64)
    scale = np.asarray((most - least) / (high - low)).astype(np.float32)
    scale = np.where(scale < _LEAST_SCALE, np.float32(0.1), scale)
    steps_below, steps_above = -least / scale, most / scale
    from_below = abs(low) + steps_below < abs(high) + steps_above  # which of the two loses less
    zero = np.where(from_below, low + steps_below, high - steps_above)
    return scale, np.fmin(np.fmax(np.rint(zero), low), high).astype(np.int32)


_LEAST_SCALE = np.float32(2.0**-127)  # of which the inverse is finite
_FINEST = np.float32(1e-5)


def levels(x: ndarray, scale: Any, zero: Any, low: int, high: int) -> Any:
    """The numbers of the grid that are nearest, as floating-point numbers."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        out = x * (np.float32(1.0) / scale)
        if zero.dtype.kind == "f":
            out = np.rint(out + zero)
        else:
            out = np.rint(out, out=out if isinstance(out, ndarray) else None)
            out = out + zero.astype(out.dtype)
    return np.fmin(np.fmax(out, low), high)  # not clip: nan becomes a number of the grid, too


def rounded(x: ndarray, groups: int, grid: Grid) -> tuple[ndarray, ndarray, ndarray]:
    """Integers for x (m, k), and the scale and the zero point of each row. What is not finite makes
    a scale of nan, and so all results of its group."""
    m, (low, high, symmetric) = len(x), grid
    lots = x.reshape(groups, x.size // max(groups, 1))
    least = np.fmin.reduce(lots, 1, initial=np.float32(0))
    most = np.fmax.reduce(lots, 1, initial=np.float32(0))
    if symmetric:
        reach = np.fmax(-least, most)
        scale, zero = np.fmax(reach / np.float32(high), _FINEST), np.zeros(groups, np.int32)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            scale, zero = affine(least, most, low, high)
    scale = np.where(np.isfinite(lots).all(1), scale, np.float32(np.nan))
    kind = np.int8 if low < 0 else np.uint8
    found = levels(lots, scale[:, None], zero[:, None], low, high).astype(kind)
    each = m // max(groups, 1)
    return found.reshape(x.shape), np.repeat(scale, each), np.repeat(zero, each)


def row_sums(w: ndarray) -> ndarray:
    """What the rows of ``w`` add up to, in int32."""
    return np.asarray(w.sum(1, dtype=np.int32))


def wrapped(y: ndarray, terms: int) -> ndarray:
    """Exact integers kept in float64, modulo 2**32 as int32."""
    if terms < 1 << 16:
        return y.astype(np.int32)
    return y.astype(np.int64).astype(np.int32)


def _unsigned(x: ndarray) -> ndarray:
    """Numbers without a sign, those that have one moved up by 128."""
    return x.view(np.uint8) ^ _TURN if x.dtype.kind == "i" else x


def _rows(w: ndarray, block: int) -> ndarray:
    """``w`` with rows of one block at least, which lie together."""
    short = block - w.shape[1]
    if short > 0:
        return np.pad(w, ((0, 0), (short, 0)))
    return w if w.strides[1] == 1 and w.strides[0] >= 0 else np.ascontiguousarray(w)


def _laid_out(x: ndarray, w: ndarray, way: str) -> tuple[ndarray, ndarray]:
    code = _code()
    block = code.WAYS[way].block
    return code.blocks(x, code.padded(way, x.shape[1]), block), _rows(w, block)


def _run(run: Any, y: ndarray, x: ndarray, w: ndarray, *beside: int) -> None:
    strides = y.strides[0], x.strides[0], w.strides[0]
    run(address(y), address(x), address(w), len(x), len(w), w.shape[1], *strides, *beside)


def _spread(m: int, n: int, k: int, some: Any) -> None:
    """Rows or columns by threads, whichever there are more of."""
    all_of = slice(None)
    if m * n * k < _SPREAD or threads.count() == 1:
        some(all_of, all_of)
    elif m > n:
        threads.spread([partial(some, part, all_of) for part in threads.portions(m, 16)])
    else:
        threads.spread([partial(some, all_of, part) for part in threads.portions(n, 64)])


__all__ = [
    "Grid", "affine", "dynamic", "integers", "levels", "rounded", "row_sums", "scaled", "widened",
    "wrapped",
]  # fmt: skip
