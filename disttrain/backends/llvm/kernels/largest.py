"""Code that adds to the place of each window's largest value."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..loops import Text, functions

_KINDS = {"float32": ("float", 4), "float64": ("double", 8)}
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
MOST = 4096  # places of a window
_APART = 32  # up to which each has code of its own
NONE = 255  # of a byte that says which place it is: none of them


def _text(kind: str, count: int) -> str:
    text = Text()
    name, size = _KINDS[kind]
    names = ["ptr %to", "ptr %g", "ptr %x", "ptr %best", "ptr %places", "i64 %n", "i64 %plane"]
    names += [f"i64 %n{k}" for k in range(3)] + [f"i64 %s{k}" for k in range(3)]
    for first in (True, False):
        with text.function("first" if first else "known", *names):
            windows = text.let(f"mul i64 %n0, {text.let('mul i64 %n1, %n2')}")
            with text.loop("0", "%n", 1) as plane, text.loop("0", "%n0", 1) as i:
                with text.loop("0", "%n1", 1) as j:
                    row = text.let(f"mul i64 {i}, %n1")
                    row = text.let(f"mul i64 {text.let(f'add i64 {row}, {j}')}, %n2")
                    row = text.let(f"add i64 {row}, {text.let(f'mul i64 {plane}, {windows}')}")
                    begin = ((plane, "%plane"), (i, "%s0"), (j, "%s1"))
                    bases = [
                        text.at(base, *begin) for base in ("%to", "%x") if first or base != "%x"
                    ]
                    with text.loop("0", "%n2", 1) as k:
                        window = text.let(f"add i64 {row}, {k}")
                        at = [text.at(base, (k, "%s2")) for base in bases]
                        if first:
                            place = _first(text, name, size, count, at[1], window)
                        else:
                            place = _known(text, window)
                        _add(text, name, size, at[0], place, window)
    return str(text)


def _first(text: Text, name: str, size: int, count: int, x: str, window: str) -> str:
    """The first place of a window that has the largest value; -1 where none has."""
    best = text.let(f"load {name}, ptr {text.at('%best', (window, str(size)))}, align {size}")
    place = "-1"
    if count > _APART:
        with text.loop("0", str(count), 1, [("i64", place)]) as turn:
            last = text.let(f"sub i64 {count - 1}, {turn.at}")
            far = text.let(f"load i64, ptr {text.at('%places', (last, '8'))}")
            where = text.let(f"getelementptr i8, ptr {x}, i64 {far}")
            value = text.let(f"load {name}, ptr {where}, align {size}")
            hit = text.let(f"fcmp oeq {name} {value}, {best}")
            turn.new = [text.let(f"select i1 {hit}, i64 {far}, i64 {turn.values[0]}")]
        return turn.values[0]
    for t in reversed(range(count)):
        far = text.let(f"load i64, ptr {text.at('%places', (str(t), '8'))}")
        where = text.let(f"getelementptr i8, ptr {x}, i64 {far}")
        value = text.let(f"load {name}, ptr {where}, align {size}")
        hit = text.let(f"fcmp oeq {name} {value}, {best}")
        place = text.let(f"select i1 {hit}, i64 {far}, i64 {place}")
    return place


def _known(text: Text, window: str) -> str:
    """The same by a byte that says which one it is."""
    found = text.let(f"load i8, ptr {text.at('%best', (window, '1'))}")
    found = text.let(f"zext i8 {found} to i64")
    none = text.let(f"icmp eq i64 {found}, {NONE}")
    found = text.let(f"select i1 {none}, i64 0, i64 {found}")
    far = text.let(f"load i64, ptr {text.at('%places', (found, '8'))}")
    return text.let(f"select i1 {none}, i64 -1, i64 {far}")


def _add(text: Text, name: str, size: int, to: str, place: str, window: str) -> None:
    label = text.fresh("add")
    none = text.let(f"icmp slt i64 {place}, 0")
    text.add(f"br i1 {none}, label %{label}.end, label %{label}.do")
    text.start(f"{label}.do")
    given = text.let(f"load {name}, ptr {text.at('%g', (window, str(size)))}, align {size}")
    where = text.let(f"getelementptr i8, ptr {to}, i64 {place}")
    old = text.let(f"load {name}, ptr {where}, align {size}")
    text.add(f"store {name} {text.let(f'fadd {name} {old}, {given}')}, ptr {where}, align {size}")
    text.add(f"br label %{label}.end")
    text.start(f"{label}.end")


@cache
def code(kind: str, count: int) -> tuple[Callable, Callable] | None:
    """``first(to, g, x, best, places, n, plane, n0, n1, n2, s0, s1, s2)``: for ``n`` planes,
    ``plane`` bytes apart in ``x`` and ``to``, each of n0 n1 n2 windows, whose steps are s0, s1, s2
    bytes: ``to += g`` at the first of a window's ``count`` places that equals ``best``. ``places``:
    bytes from a window's beginning. ``known``: the same where ``best`` has a byte for each window,
    the number of the place (255: none); ``x`` is not read.

    None where code cannot be made.
    """
    find = functions(_text, kind, count)
    kinds = [_POINTER] * 5 + [_NUMBER] * 8
    first, known = find("first", kinds), find("known", kinds)
    return None if first is None or known is None else (first, known)


__all__ = ["MOST", "NONE", "code"]
