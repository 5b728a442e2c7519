"""Convolutions and their gradients as products with windows that are never laid out.

    convolve(x, w, bias, y, ...)       y = the convolution, of padded or unpadded ``x``
    input_grad(g, w, dx, ...)          dx = its adjoint in x; also a transposed convolution
    weight_grad(g, x, dw, ...)         dw = its adjoint in w

Each gives False, with nothing done, where generated code would not gain: few channels, few places,
other types than float32 and float64. Arrays are (N, C, *spatial); ``groups`` split the channels.

The sums of one result are added in an order that depends on sizes of one sample alone.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address as _address
from ..copies import fill
from .residues import residues, room_of, run_of

_CHUNK = 1 << 18  # floats of padded input at a time: they stay in the second-level cache
_LEAST = 1 << 18  # multiplications of a sample from which it gains (all of these measured)
_SPREAD = 1 << 23  # multiplications from which threads gain
_TERMS = 27  # and terms of a sum
_TAPS = 48  # and rows of a weight's gradient
_FULL = 0.6  # and how full tiles are
_KEPT = 1 << 16  # windows whose places are kept for the next call
_KINDS = {"f": "float32", "d": "float64"}  # (numpy makes a name anew each time it is asked)
_PLACES = 4096  # of a gradient that are worked on at a time


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first convolution that needs it."""
    return importlib.import_module("...llvm.kernels.implicit_product", __package__)


# --- tables of places --------------------------------------------------------------------------
def _sums(*axes: Sequence[int] | ndarray) -> ndarray:
    """All sums of one number of each, in order."""
    total = np.zeros(1, np.int64)
    for axis in axes:
        total = (total[:, None] + np.asarray(axis, np.int64)).ravel()
    return np.ascontiguousarray(total)


def _steps(shape: tuple, size: int) -> list[int]:
    """Bytes between neighbours along each axis."""
    return [size * math.prod(shape[k + 1 :]) for k in range(len(shape))]


def _windows(
    shape: tuple, channels: int, kernel: tuple, out: tuple, stride: tuple, dilation: tuple,
    size: int,
) -> tuple[ndarray, ndarray]:  # fmt: skip
    """Where windows of samples (channels, *spatial) begin, and where what they hold is from
    there."""
    small = math.prod(out) <= _KEPT
    make = _places_of_windows if small else _places_of_windows.__wrapped__
    return make(shape, channels, kernel, out, stride, dilation, size)


@lru_cache(32)
def _places_of_windows(
    shape: tuple, channels: int, kernel: tuple, out: tuple, stride: tuple, dilation: tuple,
    size: int,
) -> tuple[ndarray, ndarray]:  # fmt: skip
    channel, *steps = _steps(shape, size)
    places = [[i * s * t for i in range(n)] for n, s, t in zip(out, stride, steps, strict=True)]
    taps = [[i * d * t for i in range(k)] for k, d, t in zip(kernel, dilation, steps, strict=True)]
    return _sums(*places), _sums([c * channel for c in range(channels)], *taps)


# --- what products are given ---------------------------------------------------------------------
class _Products:
    """The generated code for a type and a number of columns: pieces of two registers, and perhaps
    one of one."""

    def __init__(self, dtype: np.dtype, columns: int) -> None:
        self.kind, self.columns = _KINDS[dtype.char], columns
        self.rows, self.lanes = _code().tile(self.kind)
        self.dtype = dtype

    def gains(self, rows: int, terms: int, groups: int) -> bool:
        """Whether it pays for matrices (rows, terms) of that many groups. (It does not depend on
        how many samples there are: the result of each would.)"""
        work = rows * terms * groups * self.columns
        if work < _LEAST or _full(self.columns, self.lanes) < 0.7:
            return False
        return _full(rows, self.rows) >= _FULL and self.code(2, True) is not None

    def code(self, wide: int, across: bool, runs: Any = None) -> Any:
        return _code().product(self.kind, wide, across, runs)

    def runs(self, wide: int, run: tuple[int, int], rows: int) -> Any:
        """Rows that come in runs (length, bytes between them) as tiles of one register take them:
        with two it is not the addresses that take the time."""
        length, step = run
        return _code().runs(self.kind, length, step, rows) if wide == 1 and length > 1 else None

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """(first column, how many, registers)."""
        first = 0
        while first < self.columns:
            wide = 2 if self.columns - first > self.lanes else 1
            count = min(wide * self.lanes, self.columns - first)
            yield first, count, wide
            first += count

    def packed(self, columns: ndarray, wide: int) -> ndarray:
        """``columns`` (..., some) as rows of whole registers."""
        count = columns.shape[-1]
        out = np.empty((*columns.shape[:-1], wide * self.lanes), self.dtype)
        if count < out.shape[-1]:
            out[..., count:] = 0
            out[..., :count] = columns
        elif not fill(out, columns):
            out[...] = columns
        return out


def _in_runs(n: int, step: int, most: int) -> tuple[int, int]:
    """``n`` places in a row as runs of one length, not too short and at most so many: (length,
    bytes between neighbours)."""
    fit = (k for k in range(min(n, most), 6, -1) if n % k == 0)
    return next(fit, 1), step


def _full(count: int, of: int) -> float:
    """The share of pieces of that size that ``count`` fills."""
    return count / (-(-count // of) * of) if count else 0.0


def _fit(*arrays: ndarray) -> bool:
    """Whether there is something in them, and code for their type."""
    first = arrays[0].dtype
    if first.char not in "fd" or not first.isnative:
        return False
    return all(a.dtype == first and a.size for a in arrays)


class _Padded:
    """Some samples at a time, with zeros around, as addresses in memory that is in order."""

    def __init__(self, x: ndarray, before: tuple, after: tuple) -> None:
        self.x = x
        self.shape = tuple(b + n + a for b, n, a in zip(before, x.shape[2:], after, strict=True))
        self.bytes = x.itemsize * x.shape[1] * math.prod(self.shape)
        self.channel = x.itemsize * math.prod(self.shape)
        self.plain = not any(before) and not any(after)
        self.inside = tuple(slice(b, b + n) for b, n in zip(before, x.shape[2:], strict=True))

    def parts(self, some: slice) -> Iterator[tuple[slice, int]]:
        """Some of ``some`` samples and the address of the first, piece by piece."""
        n = some.stop - some.start
        if self.plain:
            x = np.ascontiguousarray(self.x[some])
            yield some, _address(x)
            return
        step = min(n, max(1, _CHUNK * self.x.itemsize // max(self.bytes, 1)))
        buffer = np.zeros((step, self.x.shape[1], *self.shape), self.x.dtype)
        for first in range(some.start, some.stop, step):
            part = slice(first, min(first + step, some.stop))
            count = part.stop - part.start
            inside = buffer[(slice(0, count), slice(None), *self.inside)]
            if not fill(inside, self.x[part]):
                inside[...] = self.x[part]
            yield part, _address(buffer)


# --- convolutions ------------------------------------------------------------------------------
def convolve(
    x: ndarray, w: ndarray, bias: ndarray | None, y: ndarray, *, stride: tuple, padding: tuple,
    dilation: tuple, groups: int,
) -> bool:  # fmt: skip
    """``y`` becomes the convolution of ``x`` (N, C, ...) with ``w`` (O, C / groups, ...)."""
    if not _fit(x, w, y, *(() if bias is None else (bias,))):
        return False
    each, out = w.shape[0] // groups, y.shape[2:]
    places, sums = math.prod(out), math.prod(w.shape[1:])
    if places * sums * w.shape[0] < _LEAST:
        return False
    products = _Products(y.dtype, each)
    if places < products.rows or sums < _TERMS:
        return False
    if not products.gains(places, sums, groups):
        return False
    padded = _Padded(x, padding, padding)
    tables = _windows((x.shape[1], *padded.shape), w.shape[1], w.shape[2:], out, stride, dilation,
                      x.itemsize)  # fmt: skip
    weights = w.reshape(groups, each, sums).swapaxes(1, 2)
    starts = np.zeros(each * groups, y.dtype) if bias is None else bias
    along = _in_runs(out[-1], stride[-1] * x.itemsize, 2 * products.rows)
    run = _Run(products, weights, starts.reshape(groups, each), *tables, along)
    group = w.shape[1] * padded.channel

    def work(part: slice, address: int, parts: int) -> None:
        run(y[part], address, padded.bytes, group, parts)

    _by_samples(padded, sums * y.size, work)
    return True


def _by_samples(padded: _Padded, times: int, work: Callable[[slice, int, int], None]) -> None:
    """``work(samples, address of the first, threads for it)`` for all samples: some on each thread,
    or all threads for each of a few. ``times``: how many multiplications it is."""
    n, count = len(padded.x), threads.count() if times >= _SPREAD else 1

    def some(samples: slice) -> None:
        for part, address in padded.parts(samples):
            work(part, address, count if n < count else 1)

    shares = threads.portions(n, 1, count if n >= count else 1)
    threads.spread([partial(some, share) for share in shares])


class _Run:
    """One convolution with its weights laid out, for samples after samples."""

    def __init__(
        self, products: _Products, weights: ndarray, starts: ndarray, rows: ndarray,
        terms: ndarray, along: tuple[int, int],
    ) -> None:  # fmt: skip
        """``along``: rows in a run, and bytes between them."""
        self.rows, self.terms, self.item = rows, terms, products.dtype.itemsize
        self.unit, self.least = along[0], products.rows
        self.pieces = []
        for group, (each, start) in enumerate(zip(weights, starts, strict=True)):
            for first, count, wide in products.pieces():
                begin = np.zeros(wide * products.lanes, products.dtype)
                begin[:count] = start[first : first + count]
                b = products.packed(each[..., first : first + count], wide)
                runs = products.runs(wide, along, len(rows))
                if runs is not None:
                    self.least = max(self.least, runs.length * runs.times)
                code = products.code(wide, True, runs)
                channel = first + group * products.columns
                self.pieces.append((code, group, channel, count, b, begin))

    def __call__(self, y: ndarray, x: int, sample: int, group: int, parts: int) -> None:
        """``y``, in order, from samples at ``x``: bytes of each, and of a group in it. ``parts``:
        how many threads."""
        unit = self.unit
        for_each = threads.portions(len(self.rows) // unit, -(-self.least // unit), parts)
        threads.spread([
            partial(self.some, y, x, sample, group, slice(some.start * unit, some.stop * unit))
            for some in for_each
        ])  # fmt: skip

    def some(self, y: ndarray, x: int, sample: int, group: int, rows: slice) -> None:
        """Some of the places."""
        lane = self.item * math.prod(y.shape[2:])
        to = _address(y) + rows.start * self.item
        at, terms = _address(self.rows) + rows.start * 8, _address(self.terms)
        for code, which, first, count, b, begin in self.pieces:
            code(to + first * lane, x + which * group, at, rows.stop - rows.start, terms,
                 len(self.terms), _address(b), _address(begin), lane, count, len(y), sample,
                 y.strides[0])  # fmt: skip


# --- gradients ---------------------------------------------------------------------------------
def input_grad(
    g: ndarray, w: ndarray, dx: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> bool:  # fmt: skip
    """``dx`` (N, C, ...) becomes the adjoint of ``convolve`` in x at ``g`` (N, O, ...). Places of
    x that are alike modulo the strides are a convolution of g with some of the weights (W. Shi et
    al., "Is the deconvolution layer the same as a convolutional layer?", 2016)."""
    if not _fit(g, w, dx):
        return False
    products = _Products(dx.dtype, w.shape[1])
    outer = w.shape[0] // groups
    found = _residues(dx.shape[2:], g.shape[1:], w.shape[2:], stride, padding, dilation, outer,
                      w.itemsize)  # fmt: skip
    sums = outer * math.prod(w.shape[2:])
    if found.least < products.rows or not products.gains(found.least, sums, groups):
        return False
    padded = _Padded(g, *found.room)
    grouped = _columns_last(w.reshape(groups, outer, *w.shape[1:]))
    starts = np.zeros((groups, w.shape[1]), w.dtype)
    runs = [
        _Run(products, grouped[*each.index, :], starts, *each.tables,
             _in_runs(each.counts[-1], w.itemsize, 2 * products.rows))
        if each.tables else None
        for each in found.parts
    ]  # fmt: skip
    group = outer * padded.channel

    def work(part: slice, address: int, parts: int) -> None:
        for each, run in zip(found.parts, runs, strict=True):
            into = dx[part][each.where]
            if run is None:
                into[...] = 0
            elif each.counts == dx.shape[2:]:
                run(into, address, padded.bytes, group, parts)
            else:
                y = np.empty((len(into), dx.shape[1], *each.counts), dx.dtype)
                run(y, address, padded.bytes, group, parts)
                into[...] = y

    _by_samples(padded, sums * dx.size, work)
    return True


def _columns_last(w: ndarray) -> ndarray:
    """Weights (groups, outer, columns, ...) as (groups, outer, ..., columns); at once in that order
    where code does it: some of the taps would be copied number by number."""
    w = np.moveaxis(w, 2, -1)
    out = np.empty(w.shape, w.dtype)
    return out if fill(out, w) else w


class _Part(NamedTuple):
    """Places of x that are alike modulo the strides: their index, how many, the index of the
    weights that reach them, and the tables of what those meet (None: nothing)."""

    where: Any
    counts: tuple[int, ...]
    index: Any
    tables: tuple[ndarray, ndarray] | None


class _Parts(NamedTuple):
    """All of them, the least places of one, and the room around g before and behind."""

    parts: list[_Part]
    least: int
    room: tuple[tuple[int, ...], tuple[int, ...]]


@lru_cache(32)
def _residues(
    size: tuple, g: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple,
    outer: int, item: int,
) -> _Parts:  # fmt: skip
    """Those of a gradient of that ``size``, from samples of ``g`` (channels, ...)."""
    axes = [residues(*each) for each in zip(size, kernel, stride, padding, dilation, strict=True)]
    least = math.prod(min((each.places for each in axis), default=0) for axis in axes)
    room = [room_of(axis, n) for axis, n in zip(axes, g[1:], strict=True)]
    padded = tuple(b + n + a for (b, a), n in zip(room, g[1:], strict=True))
    channel, *steps = _steps((g[0], *padded), item)
    channels = [c * channel for c in range(outer)]
    strides, parts = [len(axis) for axis in axes], []
    for chosen in itertools.product(*axes):
        spatial = (slice(r.first, None, s) for r, s in zip(chosen, strides, strict=True))
        where, counts = (slice(None), slice(None), *spatial), tuple(r.places for r in chosen)
        index: tuple[Any, ...] = (..., *(run_of(r.taps) if r.taps else 0 for r in chosen))
        tables = None
        if all(r.taps for r in chosen):
            places = ([i * t for i in range(n)] for n, t in zip(counts, steps, strict=True))
            reach = [
                [(before + b) * t for b in r.begins]
                for r, (before, _), t in zip(chosen, room, steps, strict=True)
            ]
            tables = _sums(*places), _sums(channels, *reach)
        parts.append(_Part(where, counts, index, tables))
    before, behind = zip(*room, strict=True)
    return _Parts(parts, least, (before, behind))


def weight_grad(
    g: ndarray, x: ndarray, dw: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> bool:  # fmt: skip
    """``dw`` (O, C / groups, ...) becomes the adjoint of ``convolve`` in w at ``g``."""
    if not _fit(g, x, dw):
        return False
    outer, each = dw.shape[0] // groups, dw.shape[1]
    products = _Products(dw.dtype, outer)
    sums, places = math.prod(dw.shape[1:]), math.prod(g.shape[2:])
    if sums < _TAPS or not products.gains(sums, places, groups):
        return False
    padded = _Padded(x, padding, padding)
    terms, taps = _windows((x.shape[1], *padded.shape), each, dw.shape[2:], g.shape[2:], stride,
                           dilation, x.itemsize)  # fmt: skip
    totals = _Sums(products, groups, taps, (dw.shape[-1], dilation[-1] * x.itemsize))
    flat = np.moveaxis(g.reshape(len(g), groups, outer, places), 2, -1)
    shares = totals.shares(threads.count() if sums * g.size >= _SPREAD else 1)
    group = each * padded.channel
    for samples, address in padded.parts(slice(0, len(x))):
        for some, here in _portions(samples, places):
            before = np.arange(some.start - samples.start, some.stop - samples.start)
            at = _sums(before * padded.bytes, terms[here])
            columns = totals.packed(flat[some, :, here])
            threads.spread(
                [partial(totals.add, share, columns, address, group, at) for share in shares]
            )
    totals.put(dw.reshape(groups, outer, sums))
    return True


def _portions(samples: slice, places: int) -> Iterator[tuple[slice, slice]]:
    """Some samples, or some places of one."""
    step = max(1, _PLACES // places)
    for first in range(samples.start, samples.stop, step):
        for place in range(0, places, _PLACES):
            yield slice(first, min(first + step, samples.stop)), slice(place, place + _PLACES)


class _Sums:
    """Gradients of weights while they are added up: for each group and piece of its columns, rows
    of registers."""

    def __init__(
        self, products: _Products, groups: int, taps: ndarray, along: tuple[int, int]
    ) -> None:
        """``along``: taps in a run, and bytes between them."""
        self.products, self.taps = products, len(taps)
        wide = 1 if products.columns <= products.lanes else 2
        self.runs = products.runs(wide, along, len(taps))
        self.tile = self.runs.length * self.runs.times if self.runs else products.rows
        missing = -len(taps) % self.tile
        unit = min(along[0] if self.runs else 1, len(taps))
        self.rows = np.concatenate([taps, np.tile(taps[-unit:], missing // unit)])
        self.pieces = [(group, *piece) for group in range(groups) for piece in products.pieces()]
        self.totals = [
            np.zeros((len(self.rows), wide * products.lanes), products.dtype)
            for _, _, _, wide in self.pieces
        ]

    def shares(self, parts: int) -> list[slice]:
        """The rows, as so many parts of whole tiles."""
        rows = self.tile
        tiles = threads.portions(len(self.rows) // rows, 1, parts)
        return [slice(some.start * rows, some.stop * rows) for some in tiles]

    def packed(self, g: ndarray) -> list[ndarray]:
        """What the pieces need of ``g`` (samples, groups, places, columns)."""
        return [
            self.products.packed(g[:, group, :, first : first + count], wide)
            for group, first, count, wide in self.pieces
        ]

    def add(self, some: slice, columns: list, x: int, group: int, terms: ndarray) -> None:
        """Add to some of the rows, of samples at ``x``; ``group``: bytes of a group in one."""
        rows = self.rows[some]
        for (which, _, _, wide), total, b in zip(self.pieces, self.totals, columns, strict=True):
            self.products.code(wide, False, self.runs)(
                _address(total[some]), x + which * group, _address(rows), len(rows),
                _address(terms), len(terms), _address(b),
            )  # fmt: skip

    def put(self, dw: ndarray) -> None:
        """The sums, in ``dw`` (groups, columns, rows)."""
        for (group, first, count, _), total in zip(self.pieces, self.totals, strict=True):
            into, sums = dw[group, first : first + count], total[: self.taps, :count].T
            if not fill(into, sums):
                into[...] = sums


__all__ = ["convolve", "input_grad", "weight_grad"]
