"""Code that adds rows to the rows of a table that numbers name, one after the other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from .loops import Text, functions

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


__all__ = ["scatter"]
