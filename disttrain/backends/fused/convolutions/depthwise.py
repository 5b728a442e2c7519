"""Convolutions of single channels (each group has one of them) and their gradients, plane by plane.

    convolve(x, w, bias, y, ...)       y = the convolution
    input_grad(g, w, dx, ...)          dx = its adjoint in x; also a transposed convolution
    weight_grad(g, x, dw, ...)         dw = its adjoint in w

Each gives False, with nothing done, where there is no generated code for it: other types than
float32 and float64, more than three spatial dimensions, planes that are too large for the cache.
Arrays are (N, C, *spatial), ``w`` is (C * each, 1, *kernel).

The gradients are not for what is not finite, w or the one in it: they are given False there.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address
from .residues import Residue, residues, room_of

_MOST = 1 << 24  # bytes of a buffer
_SPREAD = 1 << 21  # multiplications from which it takes several threads
_SHORT = 2048  # places whose products are added up in a register before its lanes are
_LINE = 64  # bytes of a line of the cache


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first convolution of single channels."""
    return importlib.import_module("...llvm.kernels.depthwise", __package__)


# --- places ------------------------------------------------------------------------------------
class _Axis(NamedTuple):
    """How an axis of a plane lies in a buffer: places alike modulo ``step`` are together."""

    step: int
    before: int
    room: int  # places of each kind

    def place(self, at: int) -> tuple[int, int]:
        """(which kind, number in it) of the plane's place ``at``."""
        return (at + self.before) % self.step, (at + self.before) // self.step


class _Buffer:
    """Offsets, in elements, of what lies in a buffer along three axes. Rows are whole registers."""

    def __init__(self, axes: Sequence[_Axis], lanes: int) -> None:
        *outer, last = axes
        self.axes = [*outer, last._replace(room=-(-last.room // lanes) * lanes)]
        self.room = tuple(a.room for a in self.axes)
        self.kinds = tuple(a.step for a in axes)
        self.each = math.prod(self.room) + lanes  # what is stored behind the last row is not read
        self.size = self.each * math.prod(self.kinds)

    def at(self, places: Sequence[tuple[int, int]]) -> int:
        """Where (kind, number) on each axis is."""
        which = number = 0
        for (kind, k), kinds, room in zip(places, self.kinds, self.room, strict=True):
            which, number = which * kinds + kind, number * room + k
        return which * self.each + number

    def rows(self, size: Sequence[int]) -> list[int]:
        """Where the rows of a plane of that size begin: column 0 of kind 0."""
        outer = itertools.product(*map(range, size[:2]))
        return [self.at([*(a.place(k) for a, k in zip(self.axes, at)), (0, 0)]) for at in outer]

    def columns(self, count: int) -> list[int]:
        """Where its columns are from there."""
        return [self.at([(0, 0), (0, 0), self.axes[2].place(k)]) for k in range(count)]


class _Tap(NamedTuple):
    """What a weight meets at the first place: in which plane, where, and the weight's number."""

    plane: int
    kinds: tuple[int, ...]
    at: tuple[int, ...]
    weight: int

    def above(self, other: _Tap) -> bool:
        """Whether the other meets the same a row later."""
        depth, row, column = self.at
        return other[:3] == (self.plane, self.kinds, (depth, row + 1, column))


def _goes_on(run: list[_Tap], tap: _Tap) -> bool:
    """Whether ``tap`` meets what is below, and the weights are as far apart as those before."""
    steps = {b.weight - a.weight for a, b in pairwise([*run, tap])}
    return run[-1].above(tap) and len(steps) == 1


class _Pass(NamedTuple):
    """Sums at some places: how many on each axis; where in the result they begin, and the steps
    of the first two axes."""

    counts: Sequence[int]
    to: int
    steps: tuple[int, int]
    taps: list[_Tap]


def _columns(taps: Sequence[_Tap], most: int) -> dict[int, list[list[_Tap]]]:
    """Taps that follow each other from row to row, by how many those are."""
    found: dict[int, list[list[_Tap]]] = {n: [] for n in range(most, 0, -1)}
    runs: list[list[_Tap]] = []
    for tap in sorted(taps, key=lambda t: (t.plane, t.kinds, t.at[0], t.at[2], t.at[1])):
        if runs and _goes_on(runs[-1], tap):
            runs[-1].append(tap)
        else:
            runs.append([tap])
    for run in runs:
        parts = -(-len(run) // most)
        for k in range(parts):
            some = run[len(run) * k // parts : len(run) * (k + 1) // parts]
            found[len(some)].append(some)
    return found


# --- plans -------------------------------------------------------------------------------------
class _Plan(NamedTuple):
    """What generated code is told, but for the arrays: ``alive`` has the tables of it."""

    run: Callable
    told: ndarray
    alive: list
    buffer: int  # bytes
    work: int  # multiplications of a plane


class _Telling:
    """Numbers and tables, in bytes, for elements of a type."""

    def __init__(self, kind: np.dtype, width: int) -> None:
        """``width``: of the rows of sums."""
        self.item, self.lanes = kind.itemsize, _code().lanes(kind.name, width)
        self.alive: list[ndarray] = []

    def table(self, numbers: Sequence[int]) -> int:
        """The address of a table of distances in elements."""
        made = np.array(numbers, np.int64) * self.item
        self.alive.append(made)
        return address(made)

    def copying(self, buffer: _Buffer, size: Sequence[int]) -> list[int]:
        """The numbers of ``COPY``."""
        rows, columns = buffer.rows(size), buffer.columns(max(size[2], 2))
        near = [n * self.item for n in columns[:2]]
        return [len(rows), self.table(rows), size[2] * self.item, size[2], *near,
                self.table(columns)]  # fmt: skip

    def places(self, buffer: _Buffer, p: _Pass) -> list[int]:
        """The numbers of ``PLACES``."""
        far = buffer.room[1] * buffer.room[2] * self.item
        return [p.counts[0], far, *p.counts[1:], *(n * self.item for n in (p.to, *p.steps))]

    def taps(self, buffer: _Buffer, taps: Sequence[_Tap], each: int) -> list[int]:
        """The numbers of ``TAPS``; ``each``: elements that belong to a weight."""
        told = []
        for columns in _columns(taps, _code().COLUMN).values():
            entries = []
            for some in columns:
                place = buffer.at(list(zip(some[0].kinds, some[0].at)))
                step = some[1].weight - some[0].weight if len(some) > 1 else 0
                place += some[0].plane * buffer.size
                entries += [place, some[0].weight * each, step * each]
            told += [len(columns), self.table(entries)]
        return told

    def behind(self, buffer: _Buffer) -> int:
        """Elements behind a buffer that a block of sums may reach, as whole registers."""
        return (_code().HIGH + 1) * (buffer.room[2] + self.lanes)


@lru_cache(64)
def _sums(
    kind: np.dtype, size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple, channels: int, each: int, backward: bool,
) -> _Plan | None:  # fmt: skip
    """Of the convolution from planes of ``size`` to ``out``, or of its adjoint from ``out`` to
    ``size``."""
    axes = list(zip(size, out, kernel, stride, padding, dilation))
    t = _Telling(kind, -(-size[2] // stride[2]) if backward else out[2])
    if backward:
        source, result, sources, results = out, size, each, 1
        inward, outward, passes = _adjoint(axes, each, t.lanes)
    else:
        source, result, sources, results = size, out, 1, each
        inward, outward, passes = _forward(axes, t.lanes)
    begin = sources * inward.size + t.behind(inward)
    total = begin + outward.size + t.behind(outward) if outward.kinds[2] > 1 else begin
    run = _code().sums(kind.name, t.lanes, min(inward.kinds[2], 3), min(outward.kinds[2], 3))
    if run is None or total * t.item > _MOST:
        return None
    entries = []
    for p in passes:
        entries += [*t.places(inward, p), *t.taps(inward, p.taps, 1)]
    table = np.array(entries, np.int64)
    counts = (math.prod(source), math.prod(result), inward.size, begin, sources * math.prod(kernel))
    told = [channels, sources, results, *(n * t.item for n in counts)]
    told += [len(passes), address(table), inward.room[2] * t.item]
    told += t.copying(inward, source) + t.copying(outward, result)
    work = results * sum(len(p.taps) * math.prod(p.counts) for p in passes)
    return _Plan(run, np.array(told, np.int64), [*t.alive, table], total * t.item, work)


def _forward(axes: list, lanes: int) -> tuple[_Buffer, _Buffer, list[_Pass]]:
    """What is read and what is made as buffers, and the passes."""
    inward, counts = _Buffer(_padded(axes), lanes), [o for _, o, *_ in axes]
    outward = _Buffer([_Axis(1, 0, n) for n in counts], lanes)
    return inward, outward, [_Pass(counts, 0, _steps(counts), _met(axes))]


def _steps(size: Sequence[int]) -> tuple[int, int]:
    """Elements between planes of a volume in order, and between rows."""
    return size[1] * size[2], size[2]


def _padded(axes: list) -> list[_Axis]:
    """How what a convolution reads is laid out."""
    made = []
    for n, o, k, s, p, d in axes:
        needed = max(n + 2 * p, (o - 1) * s + d * (k - 1) + 1)
        made.append(_Axis(s, p, -(-needed // s)))
    return made


def _met(axes: list) -> list[_Tap]:
    """What the taps of a convolution meet."""
    found = []
    for weight, tap in enumerate(itertools.product(*(range(k) for _, _, k, *_ in axes))):
        places = [divmod(t * d, s) for t, (*_, s, _, d) in zip(tap, axes)]
        found.append(_Tap(0, tuple(r for _, r in places), tuple(q for q, _ in places), weight))
    return found


def _adjoint(axes: list, each: int, lanes: int) -> tuple[_Buffer, _Buffer, list[_Pass]]:
    """The same of the adjoint: a pass for the places that are alike modulo the strides."""
    every = [residues(n, k, s, p, d) for n, _, k, s, p, d in axes]
    rooms = [room_of(found, o) for found, (_, o, *_) in zip(every, axes)]
    inward = _Buffer([
        _Axis(1, before, max(before + o + after, found[0].places))
        for (before, after), (_, o, *_), found in zip(rooms, axes, every)
    ], lanes)  # fmt: skip
    outward = _Buffer([_Axis(len(found), 0, found[0].places) for found in every], lanes)
    size, strides, passes = [n for n, *_ in axes], [len(found) for found in every], []
    for chosen in itertools.product(*map(enumerate, every)):
        if strides[2] == 1:  # rows are made where they belong
            depth, row = _steps(size)
            to = sum(r.first * step for (_, r), step in zip(chosen, (depth, row, 1)))
            steps = strides[0] * depth, strides[1] * row
        else:
            to, steps = outward.at([(k, 0) for k, _ in chosen]), _steps(outward.room)
        found = [r for _, r in chosen]
        before = [b for b, _ in rooms]
        taps = list(_reached(found, before, [k for _, _, k, *_ in axes], each))
        passes.append(_Pass([r.places for r in found], to, steps, taps))
    return inward, outward, passes


def _reached(
    found: Sequence[Residue], before: Sequence[int], kernel: Sequence[int], each: int
) -> Iterator[_Tap]:
    """The taps that reach places, of all planes that a channel was taken to."""
    axes = [list(zip(r.taps, r.begins)) for r in found]
    for plane, chosen in itertools.product(range(each), list(itertools.product(*axes))):
        weight = plane
        for (tap, _), count in zip(chosen, kernel):
            weight = weight * count + tap
        yield _Tap(plane, (0, 0, 0), tuple(b + c for b, (_, c) in zip(before, chosen)), weight)


@lru_cache(64)
def _gradient(
    kind: np.dtype, size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple,
    dilation: tuple, channels: int, each: int, samples: int,
) -> _Plan | None:  # fmt: skip
    axes, t = list(zip(size, out, kernel, stride, padding, dilation)), _Telling(kind, out[2])
    inward, taps, places = _Buffer(_padded(axes), t.lanes), _met(axes), math.prod(out)
    begin = inward.size + t.behind(inward)
    total = begin + each * len(taps) * t.lanes
    run = _code().gradient(kind.name, t.lanes, min(inward.kinds[2], 3))
    if run is None or total * t.item > _MOST:
        return None
    counts = (math.prod(size), places, begin, inward.room[2])
    told = [samples, channels, each, -(-_SHORT // places), len(taps), *(n * t.item for n in counts)]
    told += t.places(inward, _Pass(out, 0, _steps(out), taps))
    told += t.taps(inward, taps, t.lanes) + t.copying(inward, size)
    work = len(taps) * places * each * samples
    return _Plan(run, np.array(told, np.int64), t.alive, total * t.item, work)


# --- runs --------------------------------------------------------------------------------------
def _fit(*arrays: ndarray) -> bool:
    """Whether there is something in them, and code for their type."""
    first = arrays[0].dtype
    if first.char not in "fd" or not first.isnative or first.itemsize > 8:
        return False
    return arrays[0].ndim <= 5 and all(a.dtype == first and a.size for a in arrays)


def _how(
    size: tuple, out: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
) -> tuple:
    given = ((size, 1), (out, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1))
    return tuple((*(fill,) * (3 - len(values)), *values) for values, fill in given)


def _over(plan: _Plan, count: int, *given: ndarray) -> None:
    """Run it for ``count`` planes, some on each thread, with a buffer of its own."""
    places = [address(a) for a in given]

    def some(part: slice) -> None:
        buffer = np.zeros(plan.buffer + _LINE, np.uint8)
        aligned = -(-address(buffer) // _LINE) * _LINE
        plan.run(*places, address(plan.told), aligned, part.start, part.stop)

    parts = threads.portions(count, 1, None if count * plan.work >= _SPREAD else 1)
    threads.spread([partial(some, part) for part in parts])


def convolve(
    x: ndarray, w: ndarray, bias: ndarray | None, y: ndarray, *, stride: tuple, padding: tuple,
    dilation: tuple, groups: int,
) -> bool:  # fmt: skip
    """``y``, in order, becomes the convolution of ``x`` with ``w``, which has one channel each."""
    if not _fit(x, w, y):
        return False
    how = _how(x.shape[2:], y.shape[2:], w.shape[2:], stride, padding, dilation)
    plan = _sums(y.dtype, *how, groups, w.shape[0] // groups, False)
    if plan is None:
        return False
    _over(plan, len(x) * groups, y, np.ascontiguousarray(x), np.ascontiguousarray(w))
    if bias is not None:
        y += bias.reshape(-1, *(1,) * (y.ndim - 2))
    return True


def input_grad(
    g: ndarray, w: ndarray, dx: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> bool:  # fmt: skip
    """``dx``, in order, becomes the adjoint of ``convolve`` in x at ``g``."""
    if not _fit(g, w, dx) or not np.isfinite(w).all():
        return False
    each, how = w.shape[0] // groups, (stride, padding, dilation)
    told = _how(dx.shape[2:], g.shape[2:], w.shape[2:], *how)
    plan = _sums(dx.dtype, *told, groups, each, True)
    if plan is None:
        return False
    _over(plan, len(g) * groups, dx, np.ascontiguousarray(g), np.ascontiguousarray(w))
    return True


def weight_grad(
    g: ndarray, x: ndarray, dw: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> bool:  # fmt: skip
    """``dw``, in order, becomes the adjoint of ``convolve`` in w at ``g``."""
    if not _fit(g, x, dw):
        return False
    each, how = dw.shape[0] // groups, (stride, padding, dilation)
    told = _how(x.shape[2:], g.shape[2:], dw.shape[2:], *how)
    plan = _gradient(dw.dtype, *told, groups, each, len(x))
    if plan is None:
        return False
    dw[...] = 0
    _over(plan, groups, dw, np.ascontiguousarray(x), np.ascontiguousarray(g))
    return bool(np.isfinite(dw).all())


__all__ = ["convolve", "input_grad", "weight_grad"]
