"""Code of products with sparse matrices: rows of a table, times a number each, added to rows; and
products of rows, pair by pair."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..loops import Text, functions

_KINDS = {"float32": ("float", 4), "float64": ("double", 8)}


def _lanes(text: Text, name: str, size: int) -> tuple:
    """Of the dimension ``%d``: the bytes of a row, and how its numbers are taken: (first, end,
    how many at once, their type)."""
    lanes = 64 // size
    row = text.let(f"mul i64 %d, {size}")
    whole = text.let(f"and i64 %d, -{lanes}")
    return row, (("0", whole, lanes, f"<{lanes} x {name}>"), (whole, "%d", 1, name))


def _row(text: Text, base: str, numbers: str, i: str, row: str) -> str:
    """Where the row of ``base`` begins that number ``i`` of ``numbers`` names."""
    number = text.let(f"load i64, ptr {text.at(numbers, (i, '8'))}, align 8")
    return text.at(base, (number, row))


def _product_text(kind: str) -> str:
    """``product(out, values, b, rows, cols, n, d)``: out[rows[i]] += values[i] * b[cols[i]]."""
    text = Text()
    name, size = _KINDS[kind]
    names = ("ptr %out", "ptr %values", "ptr %b", "ptr %rows", "ptr %cols", "i64 %n", "i64 %d")
    with text.function("product", *names):
        row, parts = _lanes(text, name, size)
        with text.loop("0", "%n", 1) as i:
            to = _row(text, "%out", "%rows", i, row)
            source = _row(text, "%b", "%cols", i, row)
            place = text.at("%values", (i, str(size)))
            value = text.let(f"load {name}, ptr {place}, align {size}")
            for first, end, count, full in parts:
                factor = _spread(text, value, name, count)
                with text.loop(first, end, count) as k:
                    at = text.at(to, (k, str(size)))
                    old = text.let(f"load {full}, ptr {at}, align {size}")
                    more = text.at(source, (k, str(size)))
                    other = text.let(f"load {full}, ptr {more}, align {size}")
                    times = text.let(f"fmul contract {full} {other}, {factor}")
                    total = text.let(f"fadd contract {full} {old}, {times}")
                    text.add(f"store {full} {total}, ptr {at}, align {size}")
    return str(text)


def _spread(text: Text, value: str, name: str, count: int) -> str:
    """``value`` in every lane of ``count``."""
    if count == 1:
        return value
    full = f"<{count} x {name}>"
    one = text.let(f"insertelement {full} poison, {name} {value}, i32 0")
    return text.let(f"shufflevector {full} {one}, {full} poison, <{count} x i32> zeroinitializer")


def _sampled_text(kind: str) -> str:
    """``sampled(out, a, b, rows, cols, n, d)``: out[i] = the sum of a[rows[i]] * b[cols[i]]."""
    text = Text()
    name, size = _KINDS[kind]
    names = ("ptr %out", "ptr %a", "ptr %b", "ptr %rows", "ptr %cols", "i64 %n", "i64 %d")
    lanes = 64 // size
    with text.function("sampled", *names):
        row, parts = _lanes(text, name, size)
        with text.loop("0", "%n", 1) as i:
            mine, its = (_row(text, x, at, i, row) for x, at in (("%a", "%rows"), ("%b", "%cols")))
            total = _zero = "0.0"
            for first, end, count, full in parts:
                initial = "zeroinitializer" if count > 1 else total
                with text.loop(first, end, count, ((full, initial),)) as turn:
                    values = [
                        text.let(
                            f"load {full}, ptr {text.at(x, (turn.at, str(size)))}, align {size}"
                        )
                        for x in (mine, its)
                    ]
                    times = text.let(f"fmul contract {full} {values[0]}, {values[1]}")
                    turn.new[0] = text.let(f"fadd contract {full} {turn.values[0]}, {times}")
                total = turn.values[0]
                if count > 1:
                    total = text.let(
                        f"call reassoc {name} @llvm.vector.reduce.fadd.v{lanes}f{8 * size}"
                        f"({name} {_zero}, {full} {total})"
                    )
            text.add(f"store {name} {total}, ptr {text.at('%out', (i, str(size)))}, align {size}")
    text.lines.append(
        f"declare {name} @llvm.vector.reduce.fadd.v{lanes}f{8 * size}({name}, <{lanes} x {name}>)"
    )
    return str(text)


_TEXTS = {"product": _product_text, "sampled": _sampled_text}


@cache
def product(name: str, kind: str) -> Callable | None:
    """The function "product" or "sampled" for a type; None where code cannot be made."""
    if kind not in _KINDS:
        return None
    return functions(_TEXTS[name], kind)(name, (ctypes.c_void_p,) * 5 + (ctypes.c_int64,) * 2)


__all__ = ["product"]
