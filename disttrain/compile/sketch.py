"""Sketches: arrays of a symbolic run. Shapes whose sizes may be symbols, a type, and no numbers.

How the memory of a value lies is asked of the run (``Facts``), which has it from the capture and
lets every replay look whether it is so.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..backends.array_kinds import ArrayKind
from ..core.gate import Primitive
from .sized import Unlike


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
        return self.sketch.in_order or self.sketch.run_of.fact(self.sketch, "c_contiguous")

    @property
    def f_contiguous(self) -> bool:
        return self.sketch.run_of.fact(self.sketch, "f_contiguous")

    @property
    def forc(self) -> bool:
        return self.c_contiguous or self.f_contiguous

    @property
    def writeable(self) -> bool:
        return self.sketch.run_of.fact(self.sketch, "writeable")


class Sketch(ArrayKind):
    """``like``: the array of the capture that it stands for, where that is known; ``in_order``:
    whether its memory is in order for all sizes; ``recipe``: how it is made of numbers."""

    __slots__ = ("dtype", "in_order", "like", "recipe", "run_of", "shape")
    as_host = True

    def __init__(
        self, run_of: Facts, shape: tuple, dtype: Any, like: Any = None, in_order: bool = False
    ) -> None:
        self.run_of, self.shape, self.dtype = run_of, tuple(shape), np.dtype(dtype)
        self.like, self.in_order = like, in_order
        self.recipe: tuple | None = None

    def __repr__(self) -> str:
        return f"Sketch({self.dtype})"

    @property
    def strides(self) -> tuple[Any, ...]:
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
        return Sketch(self.run_of, self.shape, self.dtype, in_order=True)

    zeros = ones

    def copy(self, order: str = "K") -> Any:
        raise Unlike("it copies an array past the gate")
