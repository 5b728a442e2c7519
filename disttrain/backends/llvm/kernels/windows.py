"""Code for pooling over windows that lie in an array as it is: taps beyond its borders are left
out, so that nothing is put around it.

For each axis a table has, per window, where its first tap is and how many there are. Axes go from
the outermost to the innermost; there are three, those of one window perhaps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ..loops import Text, functions
from .few_rows import KINDS

_LOW = "0xFFF0000000000000"  # (as LLVM writes the lowest infinity of either type)
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
TOLD = (
    *("plane", "windows"),  # bytes of a plane; windows of one
    *("count.0", "count.1", "count.2"),  # windows along each axis
    *("table.0", "table.1", "table.2"),  # of (bytes to the first tap, taps) of each window
    *("step.0", "step.1", "step.2"),  # bytes between taps
    "scales",  # bytes between what windows are multiplied by
)


class _Window(NamedTuple):
    base: str
    number: str  # among all of a plane
    at: str  # among all
    begin: list[str]
    counts: list[str]


class _Walk:
    def __init__(self, text: Text, kind: str) -> None:
        self.text = text
        self.name, self.size = KINDS[kind]
        self.told = {
            name: text.let(f"load i64, ptr {text.at('%told', (str(k), '8'))}")
            for k, name in enumerate(TOLD)
        }

    def windows(self, body: Callable[[_Window], None]) -> None:
        """``body`` for every window of the planes ``from`` ... ``to``."""
        text, told = self.text, self.told
        with text.loop("%from", "%to", 1) as plane:
            base = text.at("%x", (plane, told["plane"]))
            first = text.let(f"mul i64 {plane}, {told['windows']}")
            with text.loop("0", told["count.0"], 1) as i, text.loop("0", told["count.1"], 1) as j:
                row = text.let(f"mul i64 {i}, {told['count.1']}")
                row = text.let(f"add i64 {row}, {j}")
                row = text.let(f"mul i64 {row}, {told['count.2']}")
                outer = [self.entry(0, i), self.entry(1, j)]
                with text.loop("0", told["count.2"], 1) as k:
                    number = text.let(f"add i64 {row}, {k}")
                    entries = [*outer, self.entry(2, k)]
                    at = text.let(f"add i64 {first}, {number}")
                    body(_Window(base, number, at, *map(list, zip(*entries))))  # type: ignore[arg-type]

    def entry(self, axis: int, number: str) -> tuple[str, str]:
        table = self.text.let(f"inttoptr i64 {self.told[f'table.{axis}']} to ptr")
        place = self.text.at(table, (number, "16"))
        behind = self.text.let(f"getelementptr i8, ptr {place}, i64 8")
        return self.text.let(f"load i64, ptr {place}"), self.text.let(f"load i64, ptr {behind}")

    def taps(
        self, window: _Window, order: tuple[int, int, int], carried: list, body: Callable
    ) -> list[str]:
        """``body(bytes from the plane's beginning, values) -> values`` for the taps of a window,
        the first of ``order`` outermost."""
        return self._taps(window, order, "0", carried, body)

    def _taps(
        self, window: _Window, order: tuple[int, ...], far: str, carried: list, body: Callable
    ) -> list[str]:
        if not order:
            return list(body(far, [value for _, value in carried]))
        axis, *rest = order
        begin = self.text.let(f"add i64 {far}, {window.begin[axis]}")
        with self.text.loop("0", window.counts[axis], 1, carried) as turn:
            step = self.text.let(f"mul i64 {turn.at}, {self.told[f'step.{axis}']}")
            here = self.text.let(f"add i64 {begin}, {step}")
            inside = [(kind, value) for (kind, _), value in zip(carried, turn.values)]
            turn.new = self._taps(window, tuple(rest), here, inside, body)
        return list(turn.values)

    def load(self, base: str, far: str) -> str:
        place = self.text.let(f"getelementptr i8, ptr {base}, i64 {far}")
        return self.text.let(f"load {self.name}, ptr {place}, align {self.size}")

    def of(self, base: str, number: str) -> str:
        place = self.text.at(base, (number, str(self.size)))
        return self.text.let(f"load {self.name}, ptr {place}, align {self.size}")

    def put(self, value: str, base: str, number: str) -> None:
        place = self.text.at(base, (number, str(self.size)))
        self.text.add(f"store {self.name} {value}, ptr {place}, align {self.size}")

    def most(self, window: _Window) -> str:
        """The largest value of a window, or its last nan."""
        text = self.text

        def better(far: str, so_far: list[str]) -> list[str]:
            value = self.load(window.base, far)
            more = text.let(f"fcmp ogt {self.name} {value}, {so_far[0]}")
            odd = text.let(f"fcmp uno {self.name} {value}, {value}")
            take = text.let(f"or i1 {more}, {odd}")
            return [text.let(f"select i1 {take}, {self.name} {value}, {self.name} {so_far[0]}")]

        return self.taps(window, (0, 1, 2), [(self.name, _LOW)], better)[0]

    def best(self, window: _Window) -> list[str]:
        """The same, and where it is: the first of equal ones; -1 where there are no taps."""
        text = self.text

        def better(far: str, so_far: list[str]) -> list[str]:
            value = self.load(window.base, far)
            none = text.let(f"icmp slt i64 {so_far[1]}, 0")
            more = text.let(f"fcmp ogt {self.name} {value}, {so_far[0]}")
            odd = text.let(f"fcmp uno {self.name} {value}, {value}")
            take = text.let(f"or i1 {none}, {text.let(f'or i1 {more}, {odd}')}")
            return [
                text.let(f"select i1 {take}, {kind} {new}, {kind} {old}")
                for kind, new, old in zip((self.name, "i64"), (value, far), so_far)
            ]

        return self.taps(window, (0, 1, 2), [(self.name, _LOW), ("i64", "-1")], better)


_NUMBERS = ["ptr %told", "i64 %from", "i64 %to"]


def _text(kind: str) -> str:
    text = Text()
    with text.function("largest", "ptr %out", "ptr %x", *_NUMBERS):
        walk = _Walk(text, kind)
        walk.windows(lambda w: walk.put(walk.most(w), "%out", w.at))
    with text.function("spread", "ptr %dx", "ptr %g", "ptr %x", *_NUMBERS):
        walk = _Walk(text, kind)
        walk.windows(lambda w: _add(walk, w, walk.best(w)[1]))
    with text.function("mean", "ptr %out", "ptr %x", "ptr %scales", *_NUMBERS):
        walk = _Walk(text, kind)
        walk.windows(lambda w: _mean(walk, w))
    return str(text)


def _add(walk: _Walk, window: _Window, place: str) -> None:
    text, label = walk.text, walk.text.fresh("add")
    none = text.let(f"icmp slt i64 {place}, 0")
    text.add(f"br i1 {none}, label %{label}.end, label %{label}.do")
    text.start(f"{label}.do")
    far = text.let(f"ptrtoint ptr {window.base} to i64")
    far = text.let(f"sub i64 {far}, {text.let('ptrtoint ptr %x to i64')}")
    where = text.let(f"getelementptr i8, ptr %dx, i64 {text.let(f'add i64 {far}, {place}')}")
    old = text.let(f"load {walk.name}, ptr {where}, align {walk.size}")
    new = text.let(f"fadd {walk.name} {old}, {walk.of('%g', window.at)}")
    text.add(f"store {walk.name} {new}, ptr {where}, align {walk.size}")
    text.add(f"br label %{label}.end")
    text.start(f"{label}.end")


def _mean(walk: _Walk, window: _Window) -> None:
    """Sums along the first axis, those along the second, and so on."""
    text, zero = walk.text, (walk.name, "0.0")

    def along(axis: int, far: str) -> str:
        if axis < 0:
            return walk.load(window.base, far)
        begin = text.let(f"add i64 {far}, {window.begin[axis]}")
        with text.loop("0", window.counts[axis], 1, [zero]) as turn:
            step = text.let(f"mul i64 {turn.at}, {walk.told[f'step.{axis}']}")
            value = along(axis - 1, text.let(f"add i64 {begin}, {step}"))
            turn.new = [text.let(f"fadd {walk.name} {turn.values[0]}, {value}")]
        return turn.values[0]

    place = text.at("%scales", (window.number, walk.told["scales"]))
    scale = text.let(f"load {walk.name}, ptr {place}, align {walk.size}")
    walk.put(text.let(f"fmul {walk.name} {along(2, '0')}, {scale}"), "%out", window.at)


@cache
def code(kind: str) -> tuple[Any, Any, Any] | None:
    """``largest(out, x, told, from, to)``; ``spread(dx, g, x, told, from, to)``: ``dx += g`` where
    the largest are; ``mean(out, x, scales, told, from, to)``: sums times a scale; for planes in
    order. None where code cannot be made."""
    if kind not in KINDS:
        return None
    find, numbers = functions(_text, kind), [_POINTER, _NUMBER, _NUMBER]
    found = tuple(
        find(name, [_POINTER] * count + numbers)
        for name, count in (("largest", 2), ("spread", 3), ("mean", 3))
    )
    return None if None in found else found  # type: ignore[return-value]


__all__ = ["TOLD", "code"]
