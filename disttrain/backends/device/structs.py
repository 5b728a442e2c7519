"""What device code is given, as plain data: arrays as plans see them, and structs of arguments.

``Field`` says what is in the one struct that a function takes, so that its text (``struct``) and
its bytes (``record``) are made of one list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Operand:
    """An array as a plan sees it: ``strides`` in bytes, as numpy's."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @staticmethod
    def of(array: np.ndarray) -> Operand:
        """That of an array of numpy, or of one that has numpy's attributes."""
        return Operand(tuple(array.shape), tuple(array.strides), array.dtype.name)


def dense(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides of a contiguous array in C order."""
    steps, step = [], itemsize
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address: ``offset`` bytes into an array (by its number), or into scratch memory (-1)."""

    array: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Number:
    """The value of a number among the arguments, by its place among these."""

    place: int


Value = int | Pointer | Number | tuple[int | Pointer, ...]


C_TYPES = {
    "bool": "bool",
    "int32": "int",
    "int64": "dt_i64",
    "float32": "float",
    "float64": "double",
}
C_STORED = {
    **C_TYPES,
    "bool": "unsigned char",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
}
_FIELD = {
    "u64": ("dt_u64", np.uint64),
    "u32": ("unsigned", np.uint32),
    "i64": ("dt_i64", np.int64),
    "i32": ("int", np.int32),
    "f32": ("float", np.float32),
    "f64": ("double", np.float64),
    "int32": ("int", np.int32),
    "int64": ("dt_i64", np.int64),
    "float32": ("float", np.float32),
    "float64": ("double", np.float64),
    "bool": ("unsigned char", np.uint8),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a function's struct; ``count`` of them in a row where it is not 0."""

    name: str
    kind: str
    count: int = 0


def struct(name: str, fields: list[Field]) -> str:
    """The struct as C text."""
    lines = [f"struct {name} {{"]
    for f in fields:
        lines.append(f"  {_FIELD[f.kind][0]} {f.name}{f'[{f.count}]' if f.count else ''};")
    return "\n".join([*lines, "};"])


def record(fields: list[Field]) -> np.dtype:
    """The same as a numpy type, laid out as a C compiler lays it out."""
    parts = []
    for f in fields:
        kind = np.dtype(_FIELD[f.kind][1])
        parts.append((f.name, kind, (f.count,)) if f.count else (f.name, kind))
    return np.dtype(parts, align=True)


def packed(
    fields: Sequence[Field],
    values: Mapping[str, Value],
    pointers: Sequence[int],
    numbers: Sequence[float],
    scratch: int = 0,
) -> bytes:
    """The struct's bytes. ``pointers``: the arrays' addresses; ``scratch``: of scratch memory."""

    def known(value: int | Pointer | Number) -> float:
        if isinstance(value, Pointer):
            return value.offset + (scratch if value.array < 0 else pointers[value.array])
        return numbers[value.place] if isinstance(value, Number) else value

    out = np.zeros((), record(list(fields)))
    for f in fields:
        value = values[f.name]
        if isinstance(value, tuple):
            out[f.name] = [known(v) for v in value]
        else:
            out[f.name] = np.asarray(known(value)).astype(out.dtype[f.name])
    return out.tobytes()
