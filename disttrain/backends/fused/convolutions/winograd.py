"""Convolutions in steps of one, and their gradients in weights, by Winograd's minimal filtering.

    convolve(x, w, bias, y, ...)       y = the convolution of x, with zeros around it as needed
    weight_grad(g, x, dw, ...)         dw = its adjoint in the weights

Half to two thirds of the multiplications: two results of three weights take four, along each of the
last two axes. Longer kernels are taken in pieces of two and three weights, each of which meets
tiles further on. Sums are as exact as long direct ones, but what is not finite spreads to
neighbours: what has to be computed in another way for that reason is said.

Each gives None, with nothing done, where it would not gain, or for other types than float32. The
bits of a sample depend on sizes of one sample alone.
"""

from __future__ import annotations

import importlib
import math
from functools import cache, cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address as _address

_LEAST = 1 << 20  # multiplications of a sample from which it gains (all of these measured)
_PLACES = 96  # and results: transforming weights takes as long for a few
_GAIN = 0.9  # the part of the time of direct sums that it may be thought to take
_EACH = 8  # channels of one of several groups
_MOVED = 5  # what to transform a number is worth in multiplications
_SPREAD = 1 << 23  # multiplications from which threads gain
_KEPT = 1 << 14  # units whose places are kept for the next call
_FLOATS = 1 << 17  # transformed numbers of x that are worked on at a time: a second-level cache
_TILES = 96, 640  # and tiles of those
_LONG = 96  # tiles of a unit
_PLANES = (192, 384, 768, 1536, 3072, 6144, 12288)  # room for the tiles of a channel


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first convolution that needs it."""
    return importlib.import_module("...llvm.kernels.winograd", __package__)


# --- weights -----------------------------------------------------------------------------------
class _Axis(NamedTuple):
    """How a kernel's axis is taken apart."""

    products: int  # of a tile
    rows: ndarray  # (products of all pieces, weights)
    pieces: tuple[tuple[tuple[int, int], ...], ...]  # of each product: (row, tiles further on)
    reach: int  # the farthest of those


_THREE = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))


@cache
def _axis(size: int) -> _Axis:
    if size == 1:
        return _Axis(1, np.ones((1, 1), np.float32), (((0, 0),),), 0)
    rows: list[ndarray] = []
    products = 4 if size % 2 else 3
    pieces: list[list[tuple[int, int]]] = [[] for _ in range(products)]
    reach = (size - 2) // 2
    for far in range(reach + 1):
        taps = 3 if size % 2 and far == reach else 2
        for which in range(4 if taps == 3 else 3):
            row = np.zeros(size, np.float32)
            row[2 * far : 2 * far + taps] = _THREE[which][:taps]
            pieces[which].append((len(rows), far))
            rows.append(row)
    return _Axis(products, np.array(rows), tuple(map(tuple, pieces)), reach)


# --- sizes -------------------------------------------------------------------------------------
class _Sizes(NamedTuple):
    """A convolution of (depth, height, width): all that its tables depend on."""

    channels: int  # of a group
    outer: int
    groups: int
    size: tuple[int, int, int]
    kernel: tuple[int, int, int]
    out: tuple[int, int, int]
    before: tuple[int, int, int]  # zeros in front of x
    dilation: tuple[int, int, int]


def _three(values: tuple, other: int) -> tuple:
    return (other,) * (3 - len(values)) + tuple(values)


@lru_cache(256)
def _sizes(
    x: tuple, w: tuple, out: tuple, padding: tuple, dilation: tuple, groups: int
) -> _Sizes | None:
    if not 1 <= len(out) <= 3 or w[-1] == 1 or dilation[-1] > 2 or 0 in (*w, *x, *out):
        return None
    if groups > 1 and min(w[0] // groups, w[1]) < _EACH:
        return None
    kernel = _three(w[2:], 1)
    dilation = tuple(1 if k == 1 else d for k, d in zip(kernel, _three(dilation, 1)))
    return _Sizes(w[1], w[0] // groups, groups, _three(x[2:], 1), kernel, _three(out, 1),
                  _three(padding, 0), dilation)  # fmt: skip


class _Plan:
    """Where the units of a sample are, and how much they are."""

    def __init__(self, sizes: _Sizes) -> None:
        self.sizes, (_, high, wide) = sizes, sizes.kernel
        self.axes = axes = _axis(high), _axis(wide)
        self.products = math.prod(axis.products for axis in axes)
        self.phases = sizes.dilation[2]
        self.shape = _code().Shape(axes[0].products, axes[1].products, self.phases)
        self.step = sizes.dilation[1]  # rows between those of a tile
        tiles = -(-sizes.out[2] // (2 * self.phases))
        self.along = -(-tiles // _LONG)  # units side by side
        self.tiles = -(-tiles // self.along)
        self.row = self.phases * (self.tiles + axes[1].reach)  # of a unit, with what it reaches
        self.down, self.reach, self.plane = self._down()
        self.units = len(self.table)

    def _down(self) -> tuple[int, int, int]:
        """The table of units; rows of them, how far they reach, and how many are of one depth."""
        sizes, high = self.sizes, self.axes[0].products > 1
        down = -(-sizes.out[1] // (2 * self.step)) if high else sizes.out[1]
        rows = down + self.axes[0].reach
        depths = sizes.out[0] + sizes.dilation[0] * (sizes.kernel[0] - 1)
        depth, phase, side, row = np.indices((depths, self.step, self.along, rows)).reshape(4, -1)
        h = phase + (2 * self.step if high else 1) * row
        start = side * self.tiles * 2 * self.phases
        from_depth = depth - sizes.before[0]
        there = (from_depth >= 0) & (from_depth < sizes.size[0])
        written = (depth < sizes.out[0]) & (row < down)
        left = np.clip(-(-(sizes.out[1] - h) // self.step), 0, 2 if high else 1)
        self.table = np.stack([
            np.where(there, from_depth, 0),
            np.where(there, h - sizes.before[1], -(1 << 40)),
            start - sizes.before[2],
            depth, h, start,
            np.where(written, left, 0),
            np.clip(sizes.out[2] - start, 0, self.tiles * 2 * self.phases),
        ], 1).astype(np.int64)  # fmt: skip
        each = self.step * self.along * rows
        reach = (depths - sizes.out[0]) * each + self.axes[0].reach
        return down, reach, each

    def work(self) -> tuple[float, float]:
        """Multiplications of a sample: direct ones, and what this is worth."""
        s = self.sizes
        lanes = _code().lanes()
        columns = -(-s.outer // lanes) * lanes
        direct = math.prod(s.kernel) * math.prod(s.out) * s.channels * columns * s.groups
        tiles = self.units * self.row
        rows = math.prod(len(axis.rows) for axis in self.axes) * s.kernel[0]
        registers = self.units * self.phases * -(-self.tiles // lanes)
        moved = _MOVED * lanes * self.products * registers * (s.channels + s.outer)
        return direct, (rows * s.channels * s.outer * tiles + moved) * s.groups

    def parts(self) -> list[tuple[int, list[tuple[int, int, int]]]]:
        """For each product, its parts: (depth of the kernel, row of weights, tiles further on)."""
        high, wide = self.axes
        far = self.sizes.dilation[0] * self.plane
        return [
            (p * wide.products + q, [
                (depth, a * len(wide.rows) + b, (depth * far + i) * self.row + j)
                for depth in range(self.sizes.kernel[0])
                for a, i in high.pieces[p] for b, j in wide.pieces[q]
            ])
            for p in range(high.products) for q in range(wide.products)
        ]  # fmt: skip

    @cached_property
    def transform(self) -> ndarray:
        """(rows, weights) of what weights are multiplied with, both axes in one."""
        high, wide = (axis.rows for axis in self.axes)
        return np.kron(high, wide)

    @cached_property
    def forward(self) -> _Forward:
        return _Forward(self)

    @cached_property
    def backward(self) -> _Backward:
        return _Backward(self)


class _Room:
    """How many units are worked on at a time, and where their transformed numbers are."""

    def __init__(self, plan: _Plan, channels: int) -> None:
        """``channels`` that are transformed."""
        self.lanes = _code().lanes()
        tiles = min(max(_FLOATS // (plan.products * channels), _TILES[0]), _TILES[1])
        self.units = max(tiles // plan.row, 3 * plan.reach) + 1
        floats = (self.units + plan.reach) * plan.row + plan.axes[1].reach + 4 * self.lanes
        self.floats = next(k for k in (*_PLANES, floats) if k >= floats)  # of a channel

    def step(self, units: int) -> int:
        """As many at a time that equally many are, in the end."""
        return -(-units // -(-units // self.units))


def _apart(floats: int) -> int:
    """A little more, so that what begins so far apart is not kept in one place of a cache."""
    return floats + 16 * (1 + floats // 16 % 2)


class _Forward(_Room):
    """What convolutions of a plan have in common."""

    def __init__(self, plan: _Plan) -> None:
        s, code = plan.sizes, _code()
        super().__init__(plan, s.channels)
        count = code.rows(s.outer)
        self.padded = -(-s.outer // count) * count
        self.v, self.m = _apart(s.channels * self.floats), _apart(self.padded * self.floats)
        self.run = code.forward(plan.shape, count)
        self.terms = np.arange(s.channels, dtype=np.int64) * self.floats * 4
        row = 4 * s.groups * s.channels * self.padded
        depth = row * math.prod(len(axis.rows) for axis in plan.axes)
        found: dict[int, list] = {}
        for p, parts in plan.parts():
            here = [p * self.m * 4]
            for d, which, far in parts:
                here += [d * depth + which * row, (p * self.v + far) * 4]
            found.setdefault(len(parts), []).append(here)
        self.entries = {parts: np.array(table, np.int64) for parts, table in found.items()}
        self.tables = np.array([
            (_address(table), len(table), parts) for parts, table in self.entries.items()
        ], np.int64)  # fmt: skip


class _Backward(_Room):
    """What gradients in weights of a plan have in common."""

    def __init__(self, plan: _Plan) -> None:
        s, code = plan.sizes, _code()
        super().__init__(plan, min(s.channels, 2 * s.outer))
        self.plan, self.count = plan, code.rows(s.channels)
        self.channels = -(-s.channels // self.count) * self.count
        self.padded = -(-s.outer // self.lanes) * self.lanes
        self.t = _apart(self.units * plan.row * self.padded)
        self.run = code.backward(plan.shape, self.count, self.floats * 4)
        self.entries = lru_cache(8)(self._entries)

    def _entries(self, v: int) -> ndarray:
        """Places of sums, of transformed numbers of x and of g; ``v``: floats between those of
        products."""
        row = self.plan.sizes.groups * self.channels * self.padded
        depth = row * math.prod(len(axis.rows) for axis in self.plan.axes)
        return 4 * np.array([
            (d * depth + which * row, p * v + far, p * self.t)
            for p, parts in self.plan.parts() for d, which, far in parts
        ], np.int64)  # fmt: skip


@lru_cache(64)
def _plan(sizes: _Sizes) -> _Plan | None:
    """None where it would not gain."""
    plan = _Plan(sizes)
    direct, ours = plan.work()
    if direct < _LEAST or math.prod(sizes.out) < _PLACES or ours >= _GAIN * direct:
        return None
    return None if plan.forward.run is None else plan


def gains(x: tuple, w: tuple, out: tuple, padding: tuple, dilation: tuple, groups: int) -> bool:
    """Whether ``convolve`` takes arrays of these shapes; ``out``: places of y."""
    sizes = _sizes(x, w, out, padding, dilation, groups)
    return sizes is not None and _plan(sizes) is not None


def _strides(a: ndarray) -> tuple[int, ...]:
    """Bytes between samples, depths, rows and places."""
    spatial = a.strides[2:]
    return (a.strides[0], *(0,) * (3 - len(spatial)), *spatial)


def _in_rows(a: ndarray) -> ndarray:
    return a if a.strides[-1] == a.itemsize else np.ascontiguousarray(a)


def _empty(*shape: int) -> ndarray:
    """An array that begins where a cache line does."""
    whole = np.empty(math.prod(shape) + 16, np.float32)
    first = -_address(whole) % 64 // 4
    return whole[first : first + math.prod(shape)].reshape(shape)


def _placed(plan: _Plan, x: ndarray, y: ndarray) -> ndarray:
    """The units of all samples as code takes them."""
    make = _units if len(x) * plan.units <= _KEPT else _units.__wrapped__
    return make(plan, _strides(x), _strides(y), len(x))


@lru_cache(32)
def _units(plan: _Plan, x: tuple, y: tuple, n: int) -> ndarray:
    t = plan.table
    one = np.stack([
        t[:, 0] * x[1], t[:, 1], t[:, 2],
        t[:, 3] * y[1] + t[:, 4] * y[2] + t[:, 5] * y[3], t[:, 6], t[:, 7],
    ], 1)  # fmt: skip
    every = np.broadcast_to(one, (n, *one.shape)).copy()
    every[:, :, 0] += np.arange(n)[:, None] * x[0]
    every[:, :, 3] += np.arange(n)[:, None] * y[0]
    return every.reshape(-1, 6)


def _fits(*arrays: ndarray) -> bool:
    return all(a.dtype == np.float32 and a.dtype.isnative and a.size for a in arrays)


# --- convolutions ------------------------------------------------------------------------------
def convolve(
    x: ndarray, w: ndarray, bias: ndarray | None, y: ndarray, *, stride: tuple, padding: tuple,
    dilation: tuple, groups: int,
) -> list[int] | None:  # fmt: skip
    """``y`` (N, O, ...), in order and of any size, becomes the convolution of ``x`` (N, C, ...),
    which has ``padding`` zeros in front (also less than none) and as many as are needed behind,
    with ``w`` (O, C / groups, ...). Gives the samples that are to be computed in another way:
    theirs are not finite."""
    if max(stride) > 1 or not _fits(x, w, y, *(() if bias is None else (bias,))):
        return None
    sizes = _sizes(x.shape, w.shape, y.shape[2:], padding, dilation, groups)
    plan = None if sizes is None else _plan(sizes)
    if plan is None:
        return None
    run = _Convolution(plan, _in_rows(x), w, bias, y)
    parts = threads.count() if plan.work()[0] * len(x) >= _SPREAD else 1
    bad: list[ndarray] = []
    shares = threads.portions(len(run.units), 1, parts)
    threads.spread([partial(run, some, bad) for some in shares])
    return sorted({int(k) for some in bad for k in some})


def _weights(plan: _Plan, w: ndarray) -> ndarray:
    """Transformed weights (depths, rows, groups, channels, outer), with zeros behind those."""
    s = plan.sizes
    taps = math.prod(s.kernel)
    every = np.zeros((taps, s.groups, s.channels, plan.forward.padded), np.float32)
    every[..., : s.outer] = w.reshape(s.groups, s.outer, s.channels, taps).transpose(3, 0, 2, 1)
    u = plan.transform @ every.reshape(s.kernel[0], taps // s.kernel[0], -1)
    return u.reshape(*u.shape[:2], *every.shape[1:])


class _Convolution:
    """A convolution of some samples, for units after units."""

    def __init__(
        self, plan: _Plan, x: ndarray, w: ndarray, bias: ndarray | None, y: ndarray
    ) -> None:
        self.plan, self.x, self.y = plan, x, y
        self.u = _weights(plan, w)
        self.bias = np.zeros(len(w), np.float32) if bias is None else np.ascontiguousarray(bias)
        self.units = _placed(plan, x, y)

    def __call__(self, some: slice, bad: list) -> None:
        """Some of the units. ``bad``: where samples are added that are not finite."""
        plan, how, s, x, y = self.plan, self.plan.forward, self.plan.sizes, self.x, self.y
        v, m = (_empty(plan.products, floats) for floats in (how.v, how.m))
        wrong = np.zeros((some.stop - some.start, how.lanes), np.float32)
        told = _told(plan, how, some, x, self.units, s.channels, v) | {
            "v": _address(v), "m": _address(m), "u": _address(self.u), "y": _address(y),
            "x": _address(x), "bias": _address(self.bias), "bad": _address(wrong),
            "terms": _address(how.terms), "tables": _address(how.tables), "many": len(how.tables),
            "padded": how.padded, "uc": how.padded * 4, "yc": y.strides[1],
            "down": plan.step * _strides(y)[2], "position": m.strides[0], "outer": s.outer,
            "groups": s.groups, "xg": s.channels * x.strides[1], "ug": self.u.strides[2],
            "yg": s.outer * y.strides[1],
        }  # fmt: skip
        table = np.array([told[name] for name in _code().FORWARD], np.int64)
        how.run(_address(table))
        where = np.flatnonzero(np.isnan(np.add.reduce(wrong, axis=1)))
        if len(where):
            bad.append(np.unique((some.start + where) // plan.units))


def _told(
    plan: _Plan, how: _Room, some: slice, x: ndarray, units: ndarray, channels: int, v: ndarray
) -> dict[str, int]:
    """Numbers for code that goes over some units of x."""
    return {
        "units": _address(units), "first": some.start, "end": some.stop, "all": len(units),
        "step": how.step(some.stop - some.start), "reach": plan.reach, "row": plan.row,
        "xc": x.strides[1], "xh": _strides(x)[2], "h": plan.sizes.size[1],
        "width": plan.sizes.size[2], "dh": plan.step, "tiles": plan.tiles + plan.axes[1].reach,
        "plane": how.floats * 4, "apart": v.strides[0], "channels": channels,
    }  # fmt: skip


# --- gradients ---------------------------------------------------------------------------------
def weight_grad(
    g: ndarray, x: ndarray, dw: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> bool:  # fmt: skip
    """``dw`` (O, C / groups, ...), in order, becomes the adjoint of ``convolve`` in w at ``g``.
    False where it is to be computed in another way: it would not gain, or is not finite."""
    if max(stride) > 1 or not _fits(g, x, dw):
        return False
    sizes = _sizes(x.shape, dw.shape, g.shape[2:], padding, dilation, groups)
    plan = None if sizes is None else _plan(sizes)
    if plan is None:
        return False
    run = _Gradient(plan, _in_rows(g), _in_rows(x))
    parts = threads.count() if plan.work()[0] * len(x) >= _SPREAD else 1
    blocks = [(k, c) for k in range(groups)
              for c in range(0, plan.backward.channels, plan.backward.count)]  # fmt: skip
    shares = threads.portions(len(blocks), 1, parts)
    threads.spread([partial(run, blocks[share]) for share in shares])
    run.put(dw)
    return bool(np.isfinite(np.add.reduce(dw, axis=None)))


class _Gradient:
    """The sums over all samples, channels after channels."""

    def __init__(self, plan: _Plan, g: ndarray, x: ndarray) -> None:
        self.plan, self.g, self.x = plan, g, x
        self.units = _placed(plan, x, g)
        how, kernel = plan.backward, plan.sizes.kernel
        rows = math.prod(len(axis.rows) for axis in plan.axes)
        groups = plan.sizes.groups
        self.u = np.zeros((kernel[0], rows, groups, how.channels, how.padded), np.float32)

    def __call__(self, blocks: list[tuple[int, int]]) -> None:
        """Some of the blocks of channels."""
        how = self.plan.backward
        mine = {k: [first for which, first in blocks if which == k] for k, _ in blocks}
        channels = max(map(len, mine.values())) * how.count
        v = _empty(self.plan.products, _apart(channels * how.floats))
        t = _empty(self.plan.products, how.t)
        v[...] = 0  # some of it is multiplied by zeros, and never written
        for group, firsts in mine.items():
            self._some(group, firsts[0], len(firsts) * how.count, v, t)

    def _some(self, group: int, first: int, channels: int, v: ndarray, t: ndarray) -> None:
        """Blocks of a group that are neighbours."""
        plan, how, s = self.plan, self.plan.backward, self.plan.sizes
        table = how.entries(v.shape[1])
        there = min(channels, s.channels - first)
        x, g = self.x, self.g
        told = _told(plan, how, slice(0, len(self.units)), x, self.units, there, v) | {
            "v": _address(v), "t": _address(t), "entries": _address(table), "length": len(table),
            "u": _address(self.u) + group * self.u.strides[2] + first * self.u.strides[3],
            "x": _address(x) + (group * s.channels + first) * x.strides[1],
            "g": _address(g) + group * s.outer * g.strides[1], "gc": g.strides[1],
            "blocks": channels, "padded": how.padded, "uc": how.padded * 4, "outer": s.outer,
            "whole": how.padded // (2 * how.lanes) * 2 * how.lanes,
            "down": plan.step * _strides(g)[2], "position": t.strides[0],
        }  # fmt: skip
        told_all = np.array([told[name] for name in _code().BACKWARD], np.int64)
        how.run(_address(told_all))

    def put(self, dw: ndarray) -> None:
        """The gradient of the weights that were transformed."""
        s = self.plan.sizes
        transform = self.plan.transform
        back = transform.T @ self.u.reshape(s.kernel[0], len(transform), -1)
        back = back.reshape(-1, *self.u.shape[2:])[:, :, : s.channels, : s.outer]
        dw.reshape(s.groups, s.outer, s.channels, -1)[...] = back.transpose(1, 3, 2, 0)


__all__ = ["convolve", "gains", "weight_grad"]
