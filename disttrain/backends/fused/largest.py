"""Sums at the places of windows' largest values, by generated code: gradients of max pooling.

    add_first(to, g, x, best, kernel, stride, dilation)     at the first place of x that has it
    add_known(to, g, found, kernel, stride, dilation)       at the place whose number is known

``to`` and ``x``: (N, C, ...) in order, as far as windows reach; the others (N, C, windows ...).
Both add window after window, and say whether they have.
"""

from __future__ import annotations

import importlib
import itertools
import math
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numpy import ndarray

from .. import threads
from ..addresses import address

_KINDS = {"f": "float32", "d": "float64"}  # (numpy makes a name anew each time it is asked)
_SPLIT = 1 << 16  # windows from which it takes several threads


@cache
def _code() -> Any:
    """What makes machine code is loaded with the first windows."""
    return importlib.import_module("..llvm.kernels.largest", __package__)


def add_first(
    to: ndarray, g: ndarray, x: ndarray, best: ndarray, kernel: tuple, stride: tuple,
    dilation: tuple,
) -> bool:  # fmt: skip
    """``to += g`` at the first place of each window where ``x`` is ``best``."""
    if x.dtype != to.dtype or best.dtype != to.dtype:
        return False
    return _add(0, to, g, np.ascontiguousarray(x), best, kernel, stride, dilation)


def add_known(
    to: ndarray, g: ndarray, found: ndarray, kernel: tuple, stride: tuple, dilation: tuple
) -> bool:
    """``to += g`` at place ``found`` (uint8; 255 is none) of each window."""
    return _add(1, to, g, to, found, kernel, stride, dilation)


@lru_cache(256)
def _walk(
    steps: tuple, windows: tuple, kernel: tuple, stride: tuple, dilation: tuple
) -> tuple[ndarray, list[int], list[int]]:
    """Bytes from a window's beginning to its taps; windows along three axes, and bytes between
    them."""
    taps = itertools.product(*map(range, kernel))
    far = [d * step for d, step in zip(dilation, steps, strict=True)]
    places = np.array([sum(t * f for t, f in zip(tap, far)) for tap in taps], np.int64)
    empty = 3 - len(kernel)
    moves = [0] * empty + [s * step for s, step in zip(stride, steps, strict=True)]
    return places, [1] * empty + list(windows), moves


def _add(
    which: int, to: ndarray, g: ndarray, x: ndarray, best: ndarray, kernel: tuple, stride: tuple,
    dilation: tuple,
) -> bool:  # fmt: skip
    code = _code()
    if g.dtype != to.dtype or to.dtype.char not in "fd" or not g.size:
        return False
    if math.prod(kernel) > code.MOST or not to.dtype.isnative or not to.flags.c_contiguous:
        return False
    run = code.code(_KINDS[to.dtype.char], math.prod(kernel))
    if run is None:
        return False
    g, best = np.ascontiguousarray(g), np.ascontiguousarray(best)
    places, counts, moves = _walk(to.strides[2:], g.shape[2:], kernel, stride, dilation)
    plane, each = to.strides[1], math.prod(counts)
    starts = [(address(a), n) for a, n in (
        (to, plane), (g, each * g.itemsize), (x, plane), (best, each * best.itemsize)
    )]  # fmt: skip

    def some(part: slice) -> None:
        begins = [first + part.start * n for first, n in starts]
        run[which](*begins, address(places), part.stop - part.start, plane, *counts, *moves)

    several = None if g.size >= _SPLIT else 1
    planes = threads.portions(g.shape[0] * g.shape[1], 1, several)
    threads.spread([partial(some, part) for part in planes])
    return True


__all__ = ["add_first", "add_known"]
