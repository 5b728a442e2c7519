"""Code of running sums and products along one axis of a matrix.

Each element waits for the one before it; so several lines go side by side: columns as vectors,
rows as single numbers, since they do not lie together. Numbers are added in the order that they
have, in the type of the sums.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..loops import Text, functions

_KINDS = {"float32": ("float", 4), "float64": ("double", 8), "int64": ("i64", 8)}
_STEPS = {"add": "add", "multiply": "mul"}
_ROWS = 8  # side by side


class _Line:
    """What a step does to lanes of a type, kept in a type that may be wider."""

    def __init__(self, text: Text, kind: str, op: str, lanes: int) -> None:
        narrow, self.item = _KINDS[kind]
        wide = "double" if narrow == "float" else narrow
        self.text, self.whole = text, "1" if op == "multiply" else "0"
        self.step = _STEPS[op] if narrow == "i64" else "f" + _STEPS[op]
        self.narrow, self.wide = ((f"<{lanes} x {k}>" if lanes > 1 else k) for k in (narrow, wide))
        number = self.whole if narrow == "i64" else f"{self.whole}.0"
        self.start = number if lanes == 1 else f"<{', '.join([f'{wide} {number}'] * lanes)}>"

    def go(self, total: str, to: str, source: str) -> str:
        """Read, join with ``total``, write; the new total."""
        text = self.text
        value = text.let(f"load {self.narrow}, ptr {source}, align {self.item}")
        if self.narrow != self.wide:
            value = text.let(f"fpext {self.narrow} {value} to {self.wide}")
        total = text.let(f"{self.step} {self.wide} {total}, {value}")
        out = total
        if self.narrow != self.wide:
            out = text.let(f"fptrunc {self.wide} {total} to {self.narrow}")
        text.add(f"store {self.narrow} {out}, ptr {to}, align {self.item}")
        return total


def _text(kind: str, op: str) -> str:
    """``run(out, a, lines, n, step from line to line, step along a line)``, both steps in bytes and
    the same in ``out`` and ``a``; ``columns``: the same where lines are neighbours."""
    text = Text()
    size = _KINDS[kind][1]
    names = ("ptr %out", "ptr %a", "i64 %lines", "i64 %n", "i64 %over", "i64 %along")
    with text.function("run", *names):
        _lines(text, kind, op, "0", "%over")
    with text.function("columns", *names):
        lanes = 128 // size
        whole = text.let(f"and i64 %lines, -{lanes}")
        line = _Line(text, kind, op, lanes)
        with text.loop("0", whole, lanes) as first:
            to, source = (text.at(p, (first, str(size))) for p in ("%out", "%a"))
            with text.loop("0", "%n", 1, [(line.wide, line.start)]) as turn:
                places = (text.at(p, (turn.at, "%along")) for p in (to, source))
                turn.new[0] = line.go(turn.values[0], *places)
        _lines(text, kind, op, whole, str(size))
    return str(text)


def _lines(text: Text, kind: str, op: str, begin: str, over: str) -> None:
    """Line by line, from number ``begin`` on: some at a time, then one."""
    left = text.let(f"sub i64 %lines, {begin}")
    even = text.let(f"and i64 {left}, -{_ROWS}")
    whole = text.let(f"add i64 {begin}, {even}")
    line = _Line(text, kind, op, 1)
    for start, end, count in ((begin, whole, _ROWS), (whole, "%lines", 1)):
        with text.loop(start, end, count) as first:
            bases = []
            for k in range(count):
                number = text.let(f"add i64 {first}, {k}")
                bases.append([text.at(p, (number, over)) for p in ("%out", "%a")])
            carried = [(line.wide, line.start)] * count
            with text.loop("0", "%n", 1, carried) as turn:
                far = text.let(f"mul i64 {turn.at}, %along")
                for k, base in enumerate(bases):
                    places = (text.let(f"getelementptr i8, ptr {b}, i64 {far}") for b in base)
                    turn.new[k] = line.go(turn.values[k], *places)


@cache
def runs(kind: str, op: str) -> tuple[Callable | None, Callable | None]:
    """(``run``, ``columns``) for a type and numpy's name of what is done; None where there is no
    code."""
    find = functions(_text, kind, op)
    kinds = (ctypes.c_void_p,) * 2 + (ctypes.c_int64,) * 4
    return find("run", kinds), find("columns", kinds)


__all__ = ["runs"]
