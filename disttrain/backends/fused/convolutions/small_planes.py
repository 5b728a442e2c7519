"""Convolutions of small planes in one or two dimensions, and their gradients, by code that needs no
windows laid out and no product of matrices (``llvm/kernels/small_planes.py``).

    convolve(x, w, bias, y, ...)       y = the convolution of ``x``
    input_grad(g, w, dx, ...)          dx = its adjoint in x; also a transposed convolution
    weight_grad(g, x, dw, ...)         dw = its adjoint in w

Each gives False, with nothing of worth done, where there is too much to do for a sample, for other
types than float32 and float64, and of gradients where something is not finite. Arrays are
(N, C, *spatial); ``groups`` split the channels.

The sums of one result are added in an order that depends on sizes of one sample alone (those of
weights: on how many samples there are, too).
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ... import threads
from ...addresses import address

MOST = 1_200_000  # multiplications of a sample up to which it gains (measured)
_SPREAD = 1 << 23  # multiplications from which threads gain
_ROOM = 1 << 21
_TOGETHER = 1 << 17  # bytes of samples of which a gradient is added up at a time
_WORD = 64  # bytes in front of a buffer


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first convolution that needs it."""
    return importlib.import_module("...llvm.kernels.small_planes", __package__)


class _Plan(NamedTuple):
    """What code is told of a convolution, and buffers for it that are free."""

    run: Callable
    told: ndarray
    table: ndarray
    size: int  # bytes of a buffer
    work: int  # multiplications of a sample
    free: list[ndarray]

    def buffer(self) -> ndarray:
        """One that no other thread has, whose first word is 0."""
        try:
            found = self.free.pop()
        except IndexError:
            return np.zeros(self.size // 8, np.int64)
        found[0] = 0
        return found


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


class _Sizes(NamedTuple):
    """A convolution along two axes: of each (input, output, kernel, stride, padding, dilation)."""

    kind: str
    item: int
    lanes: int
    groups: int
    inner: int  # channels of a group
    outer: int
    axes: tuple[tuple[int, int, int, int, int, int], ...]

    @property
    def taps(self) -> int:
        return self.axes[0][2] * self.axes[1][2]

    def each(self, which: int) -> tuple[int, int]:
        return self.axes[0][which], self.axes[1][which]

    def distances(self, pitch: int) -> list[int]:
        """Bytes from a place to what each tap meets, in rows of ``pitch`` numbers."""
        (*_, k, _, _, d), (*_, l, _, _, e) = self.axes
        return [(i * d * pitch + j * e) * self.item for i in range(k) for j in range(l)]

    def copied(
        self, which: str, size: tuple, begin: tuple, step: tuple, pitch: int
    ) -> dict[str, int]:
        """How a plane goes to rows of ``pitch`` numbers."""
        return {
            f"{which}.plane": size[0] * size[1] * self.item, f"{which}.rows": size[0],
            f"{which}.width": size[1],
            f"{which}.begin": (begin[0] * pitch + begin[1]) * self.item,
            f"{which}.row": step[0] * pitch * self.item, f"{which}.column": step[1] * self.item,
        }  # fmt: skip


@lru_cache(256)
def _sizes(
    kind: np.dtype, x: tuple, w: tuple, out: tuple, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> _Sizes | None:  # fmt: skip
    """Of samples ``x`` (C, ...); None where code does nothing for it."""
    if kind.char not in "fd" or not kind.isnative or len(x) not in (2, 3) or 0 in x or 0 in w:
        return None
    axes = list(zip(x[1:], out, w[2:], stride, padding, dilation, strict=True))
    axes = [(1, 1, 1, 1, 0, 1)] * (2 - len(axes)) + axes
    sums = math.prod(w[1:]) * w[0]
    if sums * math.prod(o * s for _, o, _, s, _, _ in axes) > MOST or min(out) < 1:
        return None
    if _code().code(kind.name) is None:
        return None
    return _Sizes(kind.name, kind.itemsize, _code().lanes(kind.name), groups, w[1], w[0] // groups,
                  tuple(axes))  # fmt: skip


class _Output(NamedTuple):
    """Places of which sums are made: how many on each axis, and the steps between them."""

    counts: tuple[int, int]
    steps: tuple[int, int]
    channels: int  # of a group
    weight: int  # bytes between the weights of channels


def _convolution(
    s: _Sizes, copied: dict[str, int], inward: int, height: int, pitch: int, to: _Output,
    terms: Iterator[tuple[int, int]], sums: int,
) -> _Plan | None:  # fmt: skip
    (rows, width), (down, right) = to.counts, to.steps
    one = down == right == 1
    length = (rows - 1) * pitch + width if one else (width - 1) * right + 1
    line = _up(length, s.lanes) * s.item
    room = _up(height * pitch * s.item, _WORD)
    table = np.array(list(terms), np.int64).reshape(-1, 2)
    reach = (0 if one else (rows - 1) * down * pitch * s.item) + int(table[:, 0].max()) + line
    begin = _WORD + _up(max(inward * room, reach), _WORD)
    size = begin + max(_code().CHANNELS) * line
    if size > _ROOM:
        return None
    told = {
        **copied, "groups": s.groups, "inward": inward, "outward": to.channels, "room": room,
        "terms": len(table), "table": address(table),
        "weight": to.weight, "weights": s.outer * s.inner * s.taps * s.item,
        "parts": 1 if one else rows, "part": down * pitch * s.item, "length": length,
        "y.plane": rows * width * s.item, "y.rows": rows if one else 1, "y.width": width,
        "y.row": pitch * s.item, "y.column": right * s.item, "line": line, "sums": begin,
    }  # fmt: skip
    names = _code().CONVOLVE
    return _Plan(_code().code(s.kind)[0], np.array([told[n] for n in names], np.int64), table,
                 size, sums, [])  # fmt: skip


@lru_cache(256)
def _forward(s: _Sizes) -> _Plan | None:
    height, pitch = (n + 2 * p for n, _, _, _, p, _ in s.axes)
    copied = s.copied("x", s.each(0), s.each(4), (1, 1), pitch)
    room = _up(height * pitch * s.item, _WORD)
    met = itertools.product(range(s.inner), enumerate(s.distances(pitch)))
    terms = ((c * room + far, (c * s.taps + t) * s.item) for c, (t, far) in met)
    to = _Output(s.each(1), s.each(3), s.outer, s.inner * s.taps * s.item)
    work = s.groups * s.outer * s.inner * s.taps * math.prod(s.each(1))
    return _convolution(s, copied, s.inner, height, pitch, to, terms, work)


@lru_cache(256)
def _backward(s: _Sizes) -> _Plan | None:
    """The adjoint is a convolution of the gradient, its places apart as windows are, by the weights
    in the other order."""
    back = tuple(d * (k - 1) - p for _, _, k, _, p, d in s.axes)
    work = s.groups * s.outer * s.inner * s.taps * math.prod(s.each(0))
    if min(back) < 0 or work > MOST:
        return None
    height, pitch = (n + d * (k - 1) for n, _, k, _, _, d in s.axes)
    copied = s.copied("x", s.each(1), back, s.each(3), pitch)
    room = _up(height * pitch * s.item, _WORD)
    met = itertools.product(range(s.outer), enumerate(s.distances(pitch)))
    terms = (
        (o * room + far, (o * s.inner * s.taps + s.taps - 1 - t) * s.item) for o, (t, far) in met
    )
    to = _Output(s.each(0), (1, 1), s.inner, s.taps * s.item)
    return _convolution(s, copied, s.outer, height, pitch, to, terms, work)


@lru_cache(256)
def _gradient(s: _Sizes, samples: int) -> _Plan | None:
    height, pitch = (n + 2 * p for n, _, _, _, p, _ in s.axes)
    (_, rows, _, down, _, _), (_, width, _, right, _, _) = s.axes
    line = _up((rows - 1) * down * pitch + (width - 1) * right + 1, s.lanes) * s.item
    room, table = _up(height * pitch * s.item, _WORD), np.array(s.distances(pitch), np.int64)
    channels, outer = s.groups * s.inner, s.groups * s.outer
    together = max(1, min(samples, _TOGETHER // (channels * room + outer * line)))
    reach = (together * channels - 1) * room + int(table.max()) + line
    begin = _WORD + _up(max(together * channels * room, reach), _WORD)
    size = begin + together * outer * line
    if size > _ROOM:
        return None
    told = {
        **s.copied("x", s.each(0), s.each(4), (1, 1), pitch),
        **s.copied("g", s.each(1), (0, 0), s.each(3), pitch),
        "groups": s.groups, "inward": s.inner, "outward": s.outer, "room": room, "line": line,
        "samples": samples, "together": together, "taps": s.taps, "table": address(table),
        "length": line // s.item, "g.begins": begin,
    }  # fmt: skip
    names = _code().GRADIENT
    work = samples * s.groups * s.outer * s.inner * s.taps * rows * width
    return _Plan(_code().code(s.kind)[1], np.array([told[n] for n in names], np.int64), table,
                 size, work, [])  # fmt: skip


def _run(plan: _Plan, count: int, work: int, *given: int) -> bool:
    """For ``count`` things, some on each thread; whether all results are finite."""
    told = address(plan.told)

    def some(part: slice) -> bool:
        buffer = plan.buffer()
        plan.run(*given, address(buffer), told, part.start, part.stop)
        odd = bool(buffer[0])
        plan.free.append(buffer)
        return not odd

    if work < _SPREAD:
        return some(slice(0, count))
    finite: list[bool] = []
    parts = threads.portions(count)
    threads.spread([lambda part=part: finite.append(some(part)) for part in parts])  # type: ignore[misc]
    return all(finite)


def _ordered(a: ndarray) -> ndarray:
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


@lru_cache(64)
def _zeros(count: int, kind: np.dtype) -> ndarray:
    """What stands for a bias that is missing; only read."""
    return np.zeros(count, kind)


def convolve(
    x: ndarray, w: ndarray, bias: ndarray | None, y: ndarray, *, stride: tuple, padding: tuple,
    dilation: tuple, groups: int,
) -> bool:  # fmt: skip
    """``y``, in order, becomes the convolution of ``x`` with ``w``."""
    kind = y.dtype
    if (
        x.dtype != kind
        or w.dtype != kind
        or not len(x)
        or (bias is not None and bias.dtype != kind)
    ):
        return False
    s = _sizes(kind, x.shape[1:], w.shape, y.shape[2:], stride, padding, dilation, groups)
    plan = None if s is None else _forward(s)
    if plan is None:
        return False
    x, w = _ordered(x), _ordered(w)
    start = _zeros(len(w), kind) if bias is None else _ordered(bias)
    _run(plan, len(x), len(x) * plan.work, *map(address, (y, x, w, start)))
    return True


def input_grad(
    g: ndarray, w: ndarray, dx: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> bool:  # fmt: skip
    """``dx``, in order, becomes the adjoint of ``convolve`` in x at ``g``."""
    kind = dx.dtype
    if g.dtype != kind or w.dtype != kind or not len(g):
        return False
    s = _sizes(kind, dx.shape[1:], w.shape, g.shape[2:], stride, padding, dilation, groups)
    plan = None if s is None else _backward(s)
    if plan is None:
        return False
    g, w = _ordered(g), _ordered(w)
    start = _zeros(dx.shape[1], kind)
    return _run(plan, len(g), len(g) * plan.work, *map(address, (dx, g, w, start)))


def weight_grad(
    g: ndarray, x: ndarray, dw: ndarray, *, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> bool:  # fmt: skip
    """``dw``, in order, becomes the adjoint of ``convolve`` in w at ``g``."""
    kind = dw.dtype
    if g.dtype != kind or x.dtype != kind or not len(g):
        return False
    s = _sizes(kind, x.shape[1:], dw.shape, g.shape[2:], stride, padding, dilation, groups)
    plan = None if s is None else _gradient(s, len(x))
    if plan is None or s is None:
        return False
    g, x = _ordered(g), _ordered(x)  # (which live on until it has run)
    return _run(plan, s.outer, plan.work, *map(address, (dw, g, x)))


__all__ = ["MOST", "convolve", "input_grad", "weight_grad"]
