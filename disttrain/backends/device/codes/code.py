"""Kernels that are written for devices by hand: CUDA C, how it is launched, and what it means.

    platform.run_code(code, (*arrays, *numbers))

A ``Code`` has no element type of its own: ``plan`` says for given arrays which functions run, with
how many threads and which arguments; ``reference`` is the same by numpy, on arrays of numpy, and is
what platforms without a compiler run. Both write into the arrays that are to be written. Arrays are
contiguous where a code does not say otherwise. Pure: compiles nothing, knows no device.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....errors import DTypeError, ShapeError
from ..structs import Field, Number, Operand, Pointer, Value, dense, struct


@dataclass(frozen=True, slots=True)
class Step:
    """One launch. ``body``: what the function does with its struct ``a``; ``helpers``: functions
    that it calls, beside the prelude's; ``shared``: bytes of dynamic shared memory."""

    name: str
    body: str
    fields: tuple[Field, ...]
    values: Mapping[str, Value]
    grid: int
    block: int = 256
    helpers: tuple[str, ...] = ()
    shared: int = 0

    def text(self) -> str:
        """The function as CUDA C, without its helpers."""
        return "\n".join(
            [
                struct(f"{self.name}_args", list(self.fields)),
                f'extern "C" __global__ void __launch_bounds__({self.block}, 1)',
                f"{self.name}(const __grid_constant__ {self.name}_args a) {{{self.body}}}",
            ]
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """Launches in order, and how much scratch memory (aligned to 256 bytes) they share."""

    launches: tuple[Step, ...]
    scratch: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """``numbers``: kinds of the arguments after the arrays ("u64", "i64", "f32", "f64").
    ``writes``: places of the arrays that it writes into."""

    name: str
    arrays: int  # how many; -1: any number
    numbers: tuple[str, ...]
    writes: tuple[int, ...]
    make: Callable[[tuple[Operand, ...]], Steps]
    reference: Callable[..., None]
    strided: tuple[int, ...] = field(default=())  # places of arrays that need not be contiguous

    def split(self, args: Sequence[Any]) -> tuple[tuple, tuple]:
        """(arrays, numbers); ``TypeError`` for a wrong count."""
        at = len(args) - len(self.numbers)
        if at != self.arrays and self.arrays >= 0:
            needed = self.arrays + len(self.numbers)
            raise TypeError(f"{self.name}: {len(args)} arguments; {needed} are needed")
        return tuple(args[:at]), tuple(args[at:])

    def plan(self, operands: Sequence[Operand]) -> Steps:
        """How it runs on such arrays. ``ShapeError``, ``DTypeError`` where they do not fit."""
        for k, o in enumerate(operands):
            fits = o.size == 0 or o.strides == dense(o.shape, itemsize(o.dtype))
            if not fits and k not in self.strided and not _lies_so(o):
                raise ShapeError(
                    f"{self.name}: array {k}, of shape {o.shape}, has gaps or another order; make "
                    "it contiguous first"
                )
        return self.make(tuple(operands))


def _lies_so(o: Operand) -> bool:
    """Whether it is contiguous but for what strides of axes of one element say."""
    steps = dense(o.shape, itemsize(o.dtype))
    return all(n == 1 or s == d for n, s, d in zip(o.shape, o.strides, steps))


def itemsize(dtype: str) -> int:
    """Bytes of an element of that type, by its name."""
    if dtype == "bfloat16":
        return 2
    if dtype in ("bool", "int8", "uint8") or dtype.startswith("float8"):
        return 1
    return int("".join(c for c in dtype if c.isdigit())) // 8


def expect(name: str, what: str, o: Operand, dtypes: Sequence[str]) -> None:
    """Refuse an array of another type."""
    if o.dtype not in dtypes:
        raise DTypeError(f"{name}: {what} is {o.dtype}; it must be {' or '.join(dtypes)}")


def filled(text: str, **names: object) -> str:
    """``text`` with ``$name`` replaced."""
    return string.Template(text).substitute({k: str(v) for k, v in names.items()})


def blocks(n: int, each: int = 256) -> int:
    """How many blocks serve ``n`` things."""
    return -(-n // each)


__all__ = [
    "Code",
    "Field",
    "Number",
    "Operand",
    "Pointer",
    "Step",
    "Steps",
    "blocks",
    "expect",
    "filled",
    "itemsize",
]
