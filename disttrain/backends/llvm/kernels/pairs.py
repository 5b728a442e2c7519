"""Code that lays out matrices of a half type as panels of pairs: what products of pairs read.

A panel has ``_WIDE`` columns; term after term it holds, for each of them, two numbers of the matrix
that follow each other along the terms. Columns beyond the matrix are zero.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..loops import Text, functions

_LANES, WIDE = 16, 64
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_PAIRS, _MASK = f"<{_LANES} x i32>", f"<{_LANES} x i1>"


def _mask(text: Text, count: str) -> str:
    kind = f"<{_LANES} x i64>"
    one = text.let(f"insertelement {kind} poison, i64 {count}, i32 0")
    all_of = text.let(f"shufflevector {kind} {one}, {kind} poison, {_PAIRS} zeroinitializer")
    numbers = ", ".join(f"i64 {k}" for k in range(_LANES))
    return text.let(f"icmp slt {kind} <{numbers}>, {all_of}")


def _half(text: Text, place: str, mask: str) -> str:
    """Numbers of a row, each in the low half of 32 bits."""
    half = f"<{_LANES} x i16>"
    value = text.let(
        f"call {half} @llvm.masked.load.v{_LANES}i16.p0(ptr {place}, i32 2, {_MASK} {mask}, "
        f"{half} zeroinitializer)"
    )
    return text.let(f"zext {half} {value} to {_PAIRS}")


def _across(text: Text, w: str, column: str, term: str, mask: str) -> str:
    """Columns lie together: two rows."""
    row = text.let(f"mul i64 {term}, 2")
    next_row = text.let(f"add i64 {row}, 1")
    low, high = (
        _half(text, text.at(w, (r, "%step"), (column, "2")), mask) for r in (row, next_row)
    )
    shift = ", ".join(["i32 16"] * _LANES)
    return text.let(f"or {_PAIRS} {low}, {text.let(f'shl {_PAIRS} {high}, <{shift}>')}")


def _along(text: Text, w: str, column: str, term: str, mask: str) -> str:
    """Terms lie together: a pair from each of some rows."""
    place, kind = text.at(w, (column, "%step"), (term, "4")), f"<{_LANES} x i64>"
    one = text.let(f"insertelement {kind} poison, i64 %step, i32 0")
    steps = text.let(f"shufflevector {kind} {one}, {kind} poison, {_PAIRS} zeroinitializer")
    numbers = ", ".join(f"i64 {k}" for k in range(_LANES))
    far = text.let(f"mul {kind} {steps}, <{numbers}>")
    places = text.let(f"getelementptr i8, ptr {place}, {kind} {far}")
    return text.let(
        f"call {_PAIRS} @llvm.masked.gather.v{_LANES}i32.v{_LANES}p0(<{_LANES} x ptr> {places}, "
        f"i32 2, {_MASK} {mask}, {_PAIRS} zeroinitializer)"
    )


def _text() -> str:
    text = Text()
    for name, pairs in (("across", _across), ("along", _along)):
        with text.function(name, "ptr %to", "ptr %w", "i64 %n", "i64 %terms", "i64 %step"):
            with text.loop("0", "%n", WIDE) as panel:
                to = text.at("%to", (text.let(f"mul i64 {panel}, %terms"), "4"))
                with text.loop("0", str(WIDE), _LANES) as part:
                    column = text.let(f"add i64 {panel}, {part}")
                    mask = _mask(text, text.let(f"sub i64 %n, {column}"))
                    with text.loop("0", "%terms", 1) as term:
                        value = pairs(text, "%w", column, term, mask)
                        place = text.at(to, (term, str(4 * WIDE)), (part, "4"))
                        text.add(f"store {_PAIRS} {value}, ptr {place}, align 4")
    half = f"<{_LANES} x i16>"
    return (
        f"declare {half} @llvm.masked.load.v{_LANES}i16.p0(ptr, i32, {_MASK}, {half})\n"
        f"declare {_PAIRS} @llvm.masked.gather.v{_LANES}i32.v{_LANES}p0(<{_LANES} x ptr>, i32, "
        f"{_MASK}, {_PAIRS})\n{text}"
    )


@cache
def panels(way: str) -> Callable | None:
    """``panels(to, w, n, terms, step)``: w has ``n`` columns of 2 * ``terms`` numbers; ``across``:
    rows of columns, ``along``: rows of terms, ``step`` bytes apart. None where code cannot be made.
    """
    return functions(_text)(way, (_POINTER, _POINTER, _NUMBER, _NUMBER, _NUMBER))


__all__ = ["WIDE", "panels"]
