"""Structs of arguments, packed often: what does not change is kept as bytes. Knows no driver."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..device.structs import Field, Number, Pointer, Value, record

_FORMAT = {"u64": "Q", "i64": "q", "u32": "I", "i32": "i", "f32": "f", "f64": "d"}
_FORMAT |= {"int32": "i", "int64": "q", "float32": "f", "float64": "d", "bool": "?"}


class StructMemory:
    """Memory for one struct, and for the driver's pointer to it."""

    def __init__(self, size: int) -> None:
        memory = np.zeros(size + 24, np.uint8)
        at = -memory.ctypes.data % 16
        self.bytes = memory[at : at + size]
        self.pointer = np.array([self.bytes.ctypes.data], np.uint64)
        self.address = self.pointer.ctypes.data


class Layout:
    """How a struct is packed: ``pick`` takes its members out of (*addresses, *numbers, *constants),
    where addresses are those of the arrays and then those of ``derived``."""

    def __init__(
        self, fields: Sequence[Field], values: Mapping[str, Value], arrays: int, numbers: int
    ) -> None:
        kind = record(list(fields))
        self.size = max(kind.itemsize, 1)
        self.derived: list[tuple[int, int]] = []
        self.integers: list[tuple[int, str]] = []
        self.short: set[int] = set()  # numbers that are stored in float32
        constants: list[bytes] = []
        members: list[tuple[str, int]] = []  # which of: address, derived, number, constant
        words, end = ["<"], 0

        def constant(data: bytes) -> None:
            if members and members[-1][0] == "constant":
                constants[-1] += data
                words[-1] = f"{len(constants[-1])}s"
            else:
                members.append(("constant", len(constants)))
                constants.append(data)
                words.append(f"{len(data)}s")

        for f in fields:
            gap = kind.fields[f.name][1] - end  # type: ignore[index]
            if gap:
                constant(bytes(gap))
            value = values[f.name]
            for v in value if isinstance(value, tuple) else (value,):
                if isinstance(v, Pointer):
                    members.append(self._pointer(v))
                    words.append("Q")
                elif isinstance(v, Number):
                    members.append(("number", v.place))
                    words.append(_FORMAT[f.kind])
                    if _FORMAT[f.kind] in "QqIi":
                        self.integers.append((v.place, f.kind))
                    elif _FORMAT[f.kind] == "f":
                        self.short.add(v.place)
                else:
                    constant(np.asarray(v).astype(kind[f.name].base).tobytes())
            end = kind.fields[f.name][1] + kind[f.name].itemsize  # type: ignore[index]
        starts = {"address": 0, "derived": arrays}
        starts["number"] = arrays + len(self.derived)
        starts["constant"] = starts["number"] + numbers
        self.constants = tuple(constants)
        places = [starts[kind] + k for kind, k in members]
        self.pick: Callable[[list], Any] = operator.itemgetter(*places)
        if len(places) == 1 or places == list(range(starts["constant"] + len(constants))):
            self.pick = operator.itemgetter(slice(places[0], places[-1] + 1))
        self.pack_into: Callable[..., None] = struct.Struct("".join(words)).pack_into

    def write(
        self, room: StructMemory, addresses: list[int], numbers: list[Any], scratch: int
    ) -> None:
        """Pack the struct into ``room``. ``scratch``: the address of scratch memory."""
        values: list[Any] = [*addresses]
        for array, offset in self.derived:
            values.append((scratch if array < 0 else addresses[array]) + offset)
        first = len(values)
        values += numbers
        values += self.constants
        for place, _ in self.integers:
            values[first + place] = int(values[first + place])
        try:
            self.pack_into(room.bytes, 0, *self.pick(values))
        except (OverflowError, struct.error):
            self._write_rounded(room, values, first, numbers)

    def _write_rounded(
        self, room: StructMemory, values: list[Any], first: int, numbers: list[Any]
    ) -> None:
        """Numbers beyond the range of float32 are infinite; integers wrap."""
        kinds = dict(self.integers)
        for k, n in enumerate(numbers):
            kind = kinds.get(k)
            if kind is not None:
                bits = 64 if "64" in kind else 32
                n = int(n) & ((1 << bits) - 1)
                signed = kind[0] != "u" and n >> (bits - 1)
                values[first + k] = n - (1 << bits) if signed else n
            elif k in self.short:
                with np.errstate(over="ignore"):
                    values[first + k] = float(np.float32(n))
        self.pack_into(room.bytes, 0, *self.pick(values))

    def _pointer(self, v: Pointer) -> tuple[str, int]:
        if v.array >= 0 and not v.offset:
            return "address", v.array
        self.derived.append((v.array, v.offset))
        return "derived", len(self.derived) - 1
