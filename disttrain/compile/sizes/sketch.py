"""Sketches: arrays of a symbolic run. Shapes whose sizes may be symbols, a type, and no numbers.

How the memory of a value lies is asked of the run (``Facts``), which has it from the capture and
lets every replay look whether it is so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...core.gate import Primitive
from ...symbolic import made
from ..sized import Unlike


class Facts(Protocol):
    """What answers how a value lies."""

    def fact(self, sketch: Sketch, name: str, *others: Sketch) -> bool: ...
    def result(self, prim: Primitive, arrays: Any, params: dict) -> Any: ...


class _Flags:
    """As numpy's."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    @property
    def c_contiguous(self) -> bool:
        sketch = self.sketch
        if sketch.in_order or not knows_strides(sketch):
            return sketch.in_order or sketch.run_of.fact(sketch, "c_contiguous")
        return _in_order(sketch.shape, sketch.strides, sketch.itemsize)

    @property
    def f_contiguous(self) -> bool:
        return self.sketch.run_of.fact(self.sketch, "f_contiguous")

    @property
    def forc(self) -> bool:
        return self.c_contiguous or self.f_contiguous

    @property
    def writeable(self) -> bool:
        return self.sketch.run_of.fact(self.sketch, "writeable")


def _indexed(a: Any, index: tuple) -> tuple:
    """The strides of what a basic index takes."""
    used = sum(i is not None and i is not Ellipsis for i in index)
    index = index if any(i is Ellipsis for i in index) else (*index, Ellipsis)
    out, dim, strides = list[Any](), 0, a.strides
    for item in index:
        if item is None:
            out.append(0)
        elif item is Ellipsis:
            out += strides[dim : dim + len(strides) - used]
            dim += len(strides) - used
        else:
            if item.__class__ is slice:
                out.append(strides[dim] * (1 if item.step is None else item.step))
            dim += 1
    return tuple(out)


def _expanded(a: Any, shape: tuple) -> tuple:
    lead = len(shape) - len(a.shape)
    pairs = zip(a.shape, a.strides, shape[lead:], strict=True)
    return (*(0,) * lead, *(s if n == want else 0 for n, s, want in pairs))


# The strides of views.
_STRIDES: dict[str, Any] = {
    "permute": lambda a, dims: tuple(a.strides[d] for d in dims),
    "getitem": _indexed,
    "expand": _expanded,
    "split": lambda a, dim, sizes: a.strides,
    "unbind": lambda a, dim: (*a.strides[:dim], *a.strides[dim + 1 :]),
}


def knows_strides(a: Any) -> bool:
    """Whether the strides of ``a`` follow from its sizes."""
    if not isinstance(a, Sketch) or a.in_order:
        return True
    return a.source is not None and a.source[1] in _STRIDES and knows_strides(a.source[0])


def _in_order(shape: Sequence, strides: Sequence, step: Any) -> bool:
    for n, found in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if found != step:
                return False
            step = step * n
    return True


def is_view(shape: Sequence, strides: Sequence, other: Sequence) -> bool:
    """Whether memory that lies so can be seen in an ``other`` shape without a copy: whether the
    dimensions that become others lie one behind the other."""
    old = [(n, step) for n, step in zip(shape, strides, strict=True) if n != 1]
    new = [n for n in other if n != 1]
    i = j = 0
    while i < len(old) and j < len(new):
        first, a, b = i, old[i][0], new[j]
        i, j = i + 1, j + 1
        while a != b:
            if b < a:
                b, j = b * new[j], j + 1
            else:
                a, i = a * old[i][0], i + 1
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(first, i - 1)):
            return False
    return True


class Sketch(ArrayKind):
    """``like``: the array of the capture that it stands for, where that is known; ``in_order``:
    whether its memory is in order for all sizes; ``fixed``: whether it depends on no sizes, so that
    it lies as it did; ``recipe``: how it is made of numbers."""

    __slots__ = ("dtype", "fixed", "in_order", "like", "recipe", "run_of", "shape", "source")
    as_host = True

    def __init__(
        self, run_of: Facts, shape: tuple, dtype: Any, like: Any = None, in_order: bool = False
    ) -> None:
        self.run_of, self.shape, self.dtype = run_of, tuple(shape), np.dtype(dtype)
        self.like, self.in_order, self.fixed = like, in_order or not shape, False
        self.recipe: tuple | None = None
        self.source: tuple[Any, str, dict] | None = None  # what it is a view of, and by what

    def __repr__(self) -> str:
        return f"Sketch({self.dtype})"

    @property
    def strides(self) -> tuple[Any, ...]:
        if not self.in_order and self.source is not None:
            array, name, params = self.source
            if name in _STRIDES:
                return _STRIDES[name](array, **params)
        if not self.flags.c_contiguous:
            raise Unlike("it looks at the strides of a value whose sizes may change")
        out, step = list[Any](), self.itemsize
        for n in reversed(self.shape):
            out.append(step)
            step = step * n
        return tuple(reversed(out))

    @property
    def flags(self) -> _Flags:
        return _Flags(self)

    @property
    def base(self) -> Any:
        return None if self.run_of.fact(self, "own") else self.like.base

    def run(self, prim: Any, arrays: Any, params: dict) -> Any:
        return self.run_of.result(prim, arrays, params)

    def shares_with(self, other: Any) -> bool:
        return self.run_of.fact(self, "shares", other)

    def ones(self) -> Any:
        return made(np.ones, self.shape, self.dtype, shape=self.shape)

    def zeros(self) -> Any:
        return made(np.zeros, self.shape, self.dtype, shape=self.shape)

    def copy(self, order: str = "K") -> Any:
        raise Unlike("it copies an array past the gate")
