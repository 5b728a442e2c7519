"""Code that copies a matrix into its transpose: tile by tile, through the registers.

A copy that walks one side in order misses the cache with every element of the other. Here both are
walked in tiles that fit it, and small squares are turned in registers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..loops import Text, functions

_TILE = 128  # elements of a tile's side
SIDE = {1: 16, 2: 8, 4: 8, 8: 4}  # of the squares that are turned in registers, by bytes


def _interleaved(text: Text, rows: list[str], kind: str) -> list[str]:
    """Transposed by as many perfect shuffles as the side has bits."""
    n = len(rows)
    for _ in range(n.bit_length() - 1):
        turned = []
        for a, b in zip(rows[: n // 2], rows[n // 2 :]):
            for first in (0, n // 2):
                turned.append(_shuffled(text, kind, a, b, [
                    k // 2 + first + (n if k % 2 else 0) for k in range(n)
                ]))  # fmt: skip
        rows = turned
    return rows


def _in_lanes(text: Text, rows: list[str], kind: str) -> list[str]:
    """Transposed within halves of a register first, then the halves."""
    n = len(rows)
    half = n // 2
    size = 1
    while size < half:
        turned = list(rows)
        for i in (k for k in range(n) if not k & size):
            for which, row in ((0, i), (1, i + size)):
                turned[row] = _shuffled(text, kind, rows[i], rows[i + size], [
                    (k & half) + which * size + (k & half - 1 & ~(2 * size - 1))
                    + (k & size - 1) + (n if k & size else 0)
                    for k in range(n)
                ])  # fmt: skip
        rows, size = turned, 2 * size
    low = [_shuffled(text, kind, a, b, [*range(half), *range(n, n + half)])
           for a, b in zip(rows[:half], rows[half:])]  # fmt: skip
    high = [_shuffled(text, kind, a, b, [*range(half, n), *range(n + half, 2 * n)])
            for a, b in zip(rows[:half], rows[half:])]  # fmt: skip
    return low + high


def transposed(text: Text, rows: list[str], kind: str) -> list[str]:
    """The columns of a square of registers of ``kind``."""
    return (_in_lanes if len(rows) in (4, 8) else _interleaved)(text, rows, kind)


def _shuffled(text: Text, kind: str, a: str, b: str, order: list[int]) -> str:
    mask = ", ".join(f"i32 {k}" for k in order)
    return text.let(f"shufflevector {kind} {a}, {kind} {b}, <{len(order)} x i32> <{mask}>")


def _text(item: int) -> str:
    """Of ``n`` by ``m`` matrices with these steps: out[p, q] = a[q, p]."""
    text = Text()
    steps = ["p", "q", "op", "aq", "n", "on", "an", "m", "om", "am"]
    with text.function("turn", "ptr %out", "ptr %a", *(f"i64 %{name}" for name in steps)):
        with text.loop("0", "%n", 1) as n, text.loop("0", "%m", 1) as m:
            out = text.at("%out", (n, "%on"), (m, "%om"))
            _matrix(text, item, out, text.at("%a", (n, "%an"), (m, "%am")))
    return str(text)


def _matrix(text: Text, item: int, out: str, a: str) -> None:
    side = str(SIDE[item])
    with (
        text.loop("0", "%p", _TILE) as p0,
        text.loop("0", "%q", _TILE) as q0,
    ):
        ends = []
        for start, end in ((p0, "%p"), (q0, "%q")):
            far = text.let(f"add i64 {start}, {_TILE}")
            near = text.let(f"icmp slt i64 {far}, {end}")
            ends.append(text.let(f"select i1 {near}, i64 {far}, i64 {end}"))
        whole = []
        for start, end in zip((p0, q0), ends):
            size = text.let(f"sub i64 {end}, {start}")
            some = text.let(f"and i64 {size}, -{side}")
            whole.append(text.let(f"add i64 {start}, {some}"))
        with text.loop(p0, whole[0], int(side)) as p:
            with text.loop(q0, whole[1], int(side)) as q:
                _square(text, item, text.at(out, (p, "%op"), (q, str(item))),
                        text.at(a, (q, "%aq"), (p, str(item))))  # fmt: skip
            rest = p, text.let(f"add i64 {p}, {side}")
            _singles(text, item, out, a, rest, (whole[1], ends[1]))
        _singles(text, item, out, a, (whole[0], ends[0]), (q0, ends[1]))


def _square(text: Text, item: int, target: str, source: str) -> None:
    n = SIDE[item]
    kind, rows = f"<{n} x i{8 * item}>", []
    for k in range(n):
        place = text.at(source, (str(k), "%aq"))
        rows.append(text.let(f"load {kind}, ptr {place}, align 1"))
    turned = (_in_lanes if item >= 4 else _interleaved)(text, rows, kind)
    for k, row in enumerate(turned):
        place = text.at(target, (str(k), "%op"))
        text.add(f"store {kind} {row}, ptr {place}, align 1")


def _singles(
    text: Text, item: int, out: str, a: str, ps: tuple[str, str], qs: tuple[str, str]
) -> None:
    kind, size = f"i{8 * item}", str(item)
    with text.loop(*ps, 1) as p, text.loop(*qs, 1) as q:
        value = text.let(f"load {kind}, ptr {text.at(a, (q, '%aq'), (p, size))}, align 1")
        text.add(f"store {kind} {value}, ptr {text.at(out, (p, '%op'), (q, size))}, align 1")


@cache
def turn(item: int) -> Callable | None:
    """``turn(out, a, p, q, step of p in out, step of q in a, (count, step in out, step in a) of two
    axes of matrices)`` for elements of ``item`` bytes, steps in bytes; p and q are neighbours on
    the other side. None where code cannot be made."""
    return functions(_text, item)("turn", (ctypes.c_void_p,) * 2 + (ctypes.c_int64,) * 10)


__all__ = ["SIDE", "transposed", "turn"]
