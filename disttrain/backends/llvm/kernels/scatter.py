"""Code that adds rows to the rows of a table that numbers name, one after the other, or numbers to
places along an axis."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..loops import Text, functions

_KINDS = {"float32": ("float", 4), "float64": ("double", 8)}


def _text(kind: str) -> str:
    """``scatter(out, a, index, n, d)``: out[index[i]] += a[i] for n rows of d numbers."""
    text = Text()
    name, size = _KINDS[kind]
    lanes = 64 // size
    names = ("ptr %out", "ptr %a", "ptr %index", "i64 %n", "i64 %d")
    with text.function("scatter", *names):
        row = text.let(f"mul i64 %d, {size}")
        whole = text.let(f"and i64 %d, -{lanes}")
        with text.loop("0", "%n", 1) as i:
            number = text.let(f"load i64, ptr {text.at('%index', (i, '8'))}, align 8")
            to, source = text.at("%out", (number, row)), text.at("%a", (i, row))
            for first, end, count in (("0", whole, lanes), (whole, "%d", 1)):
                kind = f"<{count} x {name}>" if count > 1 else name
                with text.loop(first, end, count) as k:
                    place = text.at(to, (k, str(size)))
                    old = text.let(f"load {kind}, ptr {place}, align {size}")
                    more = text.at(source, (k, str(size)))
                    new = text.let(f"load {kind}, ptr {more}, align {size}")
                    total = text.let(f"fadd {kind} {old}, {new}")
                    text.add(f"store {kind} {total}, ptr {place}, align {size}")
    return str(text)


@cache
def scatter(kind: str) -> Callable | None:
    """The function for a type; None where code cannot be made."""
    if kind not in _KINDS:
        return None
    return functions(_text, kind)("scatter", (ctypes.c_void_p,) * 3 + (ctypes.c_int64,) * 2)


def _along_text(kind: str) -> str:
    """``along(out, a, index, n, d, inner, size)``: out[i, index[i, k, j], j] += a[i, k, j], in
    float64."""
    text = Text()
    name, item = _KINDS[kind]
    names = ("ptr %out", "ptr %a", "ptr %index", "i64 %n", "i64 %d", "i64 %inner", "i64 %size")
    with text.function("along", *names):
        given = text.let("mul i64 %d, %inner")
        table = text.let("mul i64 %size, %inner")
        with text.loop("0", "%n", 1) as i:
            first = text.let(f"mul i64 {i}, {given}")
            a = text.at("%a", (first, str(item)))
            index = text.at("%index", (first, "8"))
            start = text.let(f"mul i64 {i}, {table}")
            out = text.at("%out", (start, "8"))
            with text.loop("0", "%d", 1) as k:
                row = text.let(f"mul i64 {k}, %inner")
                with text.loop("0", "%inner", 1) as j:
                    at = text.let(f"add i64 {row}, {j}")
                    number = text.let(f"load i64, ptr {text.at(index, (at, '8'))}, align 8")
                    there = text.let(f"mul i64 {number}, %inner")
                    place = text.at(out, (text.let(f"add i64 {there}, {j}"), "8"))
                    new = text.let(f"load {name}, ptr {text.at(a, (at, str(item)))}, align {item}")
                    if kind == "float32":
                        new = text.let(f"fpext float {new} to double")
                    old = text.let(f"load double, ptr {place}, align 8")
                    total = text.let(f"fadd double {old}, {new}")
                    text.add(f"store double {total}, ptr {place}, align 8")
    return str(text)


@cache
def along(kind: str) -> Callable | None:
    """The function for a type; None where code cannot be made."""
    if kind not in _KINDS:
        return None
    return functions(_along_text, kind)("along", (ctypes.c_void_p,) * 3 + (ctypes.c_int64,) * 4)


__all__ = ["along", "scatter"]
