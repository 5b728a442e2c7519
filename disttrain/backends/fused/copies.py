"""Copies of arrays whose elements lie in another order.

    contiguous(a) -> a new array in order        fill(out, a) -> whether it has copied
    onto(out, a) -> the same for any two       reshaped(a, shape) -> a view, else a copy

What would not gain by generated code (a small array, one whose rows are the same on both sides and
long, elements of other widths) is left to numpy.
"""

from __future__ import annotations

import importlib
import math
import operator
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from .. import threads
from ..addresses import address as _address

_LEAST = 1 << 14  # elements from which it is worth a look (measured)
_SPLIT = 1 << 20  # elements from which it takes several threads
_MOST = 4096  # matrices that may be asked for one by one, or pair of axes of them
_ROW = 2048  # bytes of a row up to which own code gains
_SIDES = {1: 32, 2: 16, 4: 16, 8: 8}  # the least sides of such matrices, by bytes of an element


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first copy that needs it."""
    return importlib.import_module("..llvm.kernels.transpose", __package__)


@cache
def _blocks() -> Any:
    return importlib.import_module("..llvm.kernels.blocks", __package__)


def _merged(shape: tuple, to: tuple, source: tuple) -> list[tuple[int, int, int]]:
    """(size, step in ``to``, step in ``source``) of the axes, those joined that both walk alike."""
    axes: list[tuple[int, int, int]] = []
    for n, far, step in zip(shape, to, source):
        if n == 1:
            continue
        if axes and axes[-1][1:] == (far * n, step * n):
            axes[-1] = (axes[-1][0] * n, far, step)
        else:
            axes.append((n, far, step))
    return axes


def fill(out: np.ndarray, a: Any) -> bool:
    """Copy ``a`` into ``out``, of the same shape and type, apart in memory and in order along its
    last axis; False where nothing was done."""
    item = a.itemsize
    if a.size < _LEAST or item not in _SIDES or a.dtype.hasobject:
        return False
    rows = _short_rows(a.shape, out.strides, a.strides, item)
    if rows is not None:
        return _rows(out, a, *rows)
    return _turned(out, a, _merged(a.shape, out.strides, a.strides))


@lru_cache(512)
def _short_rows(
    shape: tuple, to: tuple, source: tuple, item: int
) -> tuple[list[tuple[int, int, int]], int, tuple[int, ...]] | None:
    """Where both have the same short rows in order: three axes of them, their bytes, and what code
    is told of all of it."""
    *outer, (n, far, step) = _merged(shape, to, source)
    size = n * item
    if (far, step) != (item,) * 2 or not outer or len(outer) > 3 or size % 4 or size > _ROW:
        return None
    if _blocks().copy() is None:
        return None
    axes = [(1, 0, 0)] * (3 - len(outer)) + outer
    counts, into, given = zip(*axes, strict=True)
    return axes, size, (*counts, size, *into, *given)


def _rows(
    out: np.ndarray, a: np.ndarray, axes: list[tuple[int, int, int]], size: int, told: tuple
) -> bool:
    copy = _blocks().copy()
    if a.size < _SPLIT:
        copy(_address(out), _address(a), *told)
        return True
    longest = max(range(3), key=lambda k: axes[k][0])
    n, far, step = axes[longest]

    def share(part: slice) -> None:
        mine = [*axes[:longest], (part.stop - part.start, far, step), *axes[longest + 1 :]]
        counts, to, source = zip(*mine, strict=True)
        begin = _address(out) + part.start * far, _address(a) + part.start * step
        copy(*begin, *counts, size, *to, *source)

    threads.spread([partial(share, part) for part in _shares(n, a.size)])
    return True


def _turned(out: np.ndarray, a: np.ndarray, axes: list[tuple[int, int, int]]) -> bool:
    """Where rows of one are columns of the other."""
    item = a.itemsize
    side = _SIDES[item]
    across = [k for k, (n, _, step) in enumerate(axes) if step == item and n >= side]
    along = [k for k, (n, far, _) in enumerate(axes) if far == item and n >= side]
    if len(across) != 1 or len(along) != 1 or across == along:
        return False
    p, q = axes[across[0]], axes[along[0]]
    if p[1] < 0 or q[2] < 0:
        return False
    rest = [axis for k, axis in enumerate(axes) if k not in (across[0], along[0])]
    rest, few = rest[:-2], [number for axis in [(1, 0, 0)] * 2 + rest for number in axis][-6:]
    counts = [n for n, _, _ in rest]
    turn = _code().turn(item) if math.prod(counts) <= _MOST else None
    if turn is None:
        return False
    to, source = _address(out), _address(a)

    def share(part: slice) -> None:
        for places in np.ndindex(*counts):
            far = part.start * p[1] + sum(k * axis[1] for k, axis in zip(places, rest))
            step = part.start * item + sum(k * axis[2] for k, axis in zip(places, rest))
            turn(to + far, source + step, part.stop - part.start, q[0], p[1], q[2],
                 *few)  # fmt: skip

    threads.spread([partial(share, part) for part in _shares(p[0], a.size, side)])
    return True


def _shares(n: int, size: int, least: int = 1) -> list[slice]:
    """An axis of ``n`` in a copy of ``size`` elements, as one part for each thread."""
    return threads.portions(n, least, None if size >= _SPLIT else 1)


def contiguous(a: np.ndarray) -> np.ndarray:
    """A new array of the values of ``a``, in order."""
    if a.__class__ is np.ndarray and a.size >= _LEAST and not a.flags.c_contiguous:
        out = np.empty(a.shape, a.dtype)
        if fill(out, a):
            return out
    return np.array(a, order="C", copy=True)


def onto(out: object, a: object) -> bool:
    """``fill`` for any ``out`` and ``a``."""
    if out.__class__ is not np.ndarray or a.__class__ is not np.ndarray or a.size < _LEAST:
        return False
    same = out.shape == a.shape and out.dtype == a.dtype
    if not same or out.strides == a.strides or np.may_share_memory(out, a):
        return False
    return fill(out, a)


def reshaped(a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``a.reshape(shape)``."""
    if a.size < _LEAST or a.__class__ is not np.ndarray or a.flags.c_contiguous:
        return a.reshape(shape)
    return (a if has_view(a, shape) else contiguous(a)).reshape(shape)


def has_view(a: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Whether numpy may reshape without a copy: where axes do not continue each other in memory,
    the new ones have a border, too."""
    if not a.size:
        return True
    known = math.prod(shape)
    sizes = [a.size // -known if n == -1 else n for n in shape] if known < 0 else shape
    axes = [(n, step) for n, step in zip(a.shape, a.strides) if n != 1]
    ends = accumulate((n for n, _ in axes), operator.mul)
    borders = {
        end for end, (_, step), (n, behind) in zip(ends, axes, axes[1:]) if step != behind * n
    }
    return borders <= set(accumulate(sizes, operator.mul))


__all__ = ["contiguous", "fill", "has_view", "onto", "reshaped"]
