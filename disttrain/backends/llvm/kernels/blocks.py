"""Code that copies a block of rows between arrays in which other things stand between the rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..loops import Text, functions


def _text() -> str:
    """``copy(to, from, counts of three axes, bytes of a row, steps in to, steps in from)``."""
    text = Text()
    numbers = [f"i64 %{k}" for k in ("n0", "n1", "n2", "row", "t0", "t1", "t2", "f0", "f1", "f2")]
    with text.function("copy", "ptr %to", "ptr %from", *numbers):
        with text.loop("0", "%n0", 1) as i, text.loop("0", "%n1", 1) as j:
            into, source = (text.at(f"%{a}", (i, f"%{a[0]}0"), (j, f"%{a[0]}1"))
                            for a in ("to", "from"))  # fmt: skip
            with text.loop("0", "%n2", 1) as k:
                _row(text, text.at(into, (k, "%t2")), text.at(source, (k, "%f2")))
    return str(text)


def _row(text: Text, to: str, source: str) -> None:
    """A row, by pieces that get smaller."""
    first = "0"
    for size in (64, 16, 4):
        end = text.let(f"and i64 %row, -{size}")
        with text.loop(first, end, size) as at:
            kind = f"<{size // 4} x i32>"
            place = text.let(f"getelementptr i8, ptr {source}, i64 {at}")
            value = text.let(f"load {kind}, ptr {place}, align 4")
            place = text.let(f"getelementptr i8, ptr {to}, i64 {at}")
            text.add(f"store {kind} {value}, ptr {place}, align 4")
        first = end


@cache
def copy() -> Callable | None:
    """``copy(to, from, n0, n1, n2, row, t0, t1, t2, f0, f1, f2)``: n0 n1 n2 rows of so many bytes
    (a multiple of four), with the steps of the axes in bytes; None where code cannot be made."""
    return functions(_text)("copy", (ctypes.c_void_p,) * 2 + (ctypes.c_int64,) * 10)


__all__ = ["copy"]
