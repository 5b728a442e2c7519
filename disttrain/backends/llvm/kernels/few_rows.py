"""Code for products of a few rows with a matrix: y = x w, where w is read once, in the order in
which it lies.

    across   w (k, n) has its columns together: registers of columns, times numbers of x
    along    w (n, k) has its rows together: registers along both rows, added up at the end

A tile of results is held in registers while the terms of a block are added, in their order; blocks
are added to y. So the bits of a row do not depend on how many rows there are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ... import host
from ..loops import Text, functions

KINDS = {"float32": ("float", 4), "float64": ("double", 8)}
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_BLOCK = {"across": 256, "along": 1024}  # terms at a time
_ROWS = 4  # of w that are multiplied together, along


@cache
def shape(kind: str) -> tuple[int, int, int]:
    """Elements of a register; the most rows of a tile, and registers of its sums."""
    bits = host.vector_bits(host.cpu().features)
    return (bits // 8 // KINDS[kind][1], *((8, 24) if bits == 512 else (6, 12)))


def most(kind: str, way: str) -> int:
    """The most rows of a tile."""
    _, rows, sums = shape(kind)
    return rows if way == "across" else min(rows, sums // _ROWS)


class Tile:
    """Some rows of x times some columns of w."""

    def __init__(self, kind: str, rows: int, lanes: int) -> None:
        self.name, self.size = KINDS[kind]
        self.rows, self.lanes = rows, lanes
        self.vector, self.mask = f"<{lanes} x {self.name}>", f"<{lanes} x i1>"
        self.bits = f"v{lanes}f{8 * self.size}"

    def head(self) -> str:
        """What the code calls."""
        vector, mask = self.vector, self.mask
        return (
            f"declare {vector} @llvm.fma.{self.bits}({vector}, {vector}, {vector})\n"
            f"declare {vector} @llvm.masked.load.{self.bits}.p0(ptr, i32, {mask}, {vector})\n"
            f"declare void @llvm.masked.store.{self.bits}.p0({vector}, ptr, i32, {mask})\n"
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"
        )

    def load(self, text: Text, place: str, mask: str | None) -> str:
        """A register from there, or as much of it as ``mask`` says."""
        if mask is None:
            return text.let(f"load {self.vector}, ptr {place}, align {self.size}")
        return text.let(
            f"call {self.vector} @llvm.masked.load.{self.bits}.p0(ptr {place}, i32 {self.size}, "
            f"{self.mask} {mask}, {self.vector} zeroinitializer)"
        )

    def store(self, text: Text, value: str, place: str, mask: str | None) -> None:
        """Put a register there."""
        if mask is None:
            text.add(f"store {self.vector} {value}, ptr {place}, align {self.size}")
            return
        text.add(
            f"call void @llvm.masked.store.{self.bits}.p0({self.vector} {value}, ptr {place}, "
            f"i32 {self.size}, {self.mask} {mask})"
        )

    def fma(self, text: Text, a: str, b: str, c: str) -> str:
        """a b + c."""
        given = ", ".join(f"{self.vector} {v}" for v in (a, b, c))
        return text.let(f"call {self.vector} @llvm.fma.{self.bits}({given})")

    def spread(self, text: Text, number: str) -> str:
        """A register of one number."""
        one = text.let(f"insertelement {self.vector} poison, {self.name} {number}, i32 0")
        return text.let(
            f"shufflevector {self.vector} {one}, {self.vector} poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )

    def mask_of(self, text: Text, count: str) -> str:
        """The first ``count`` of a register."""
        kind = f"<{self.lanes} x i64>"
        one = text.let(f"insertelement {kind} poison, i64 {count}, i32 0")
        all_of = text.let(
            f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer"
        )
        numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
        return text.let(f"icmp slt {kind} <{numbers}>, {all_of}")


def _least(text: Text, a: str, b: str) -> str:
    near = text.let(f"icmp slt i64 {a}, {b}")
    return text.let(f"select i1 {near}, i64 {a}, i64 {b}")


_PARAMS = ("ptr %y", "ptr %x", "ptr %w", "i64 %n", "i64 %k", "i64 %ym", "i64 %xm", "i64 %ws")


def _across(kind: str, rows: int, lanes: int, wide: int) -> str:
    text, tile = Text(), _Across(kind, rows, lanes)
    with text.function("product", *_PARAMS):
        with text.loop("0", "%k", _BLOCK["across"]) as begin:
            end = _least(text, text.let(f"add i64 {begin}, {_BLOCK['across']}"), "%k")
            first = text.let(f"icmp eq i64 {begin}, 0")
            whole = text.let(f"srem i64 %n, {wide * lanes}")
            whole = text.let(f"sub i64 %n, {whole}")
            with text.loop("0", whole, wide * lanes) as column:
                tile.add(text, begin, end, first, column, wide, None)
            with text.loop(whole, "%n", lanes) as column:
                mask = tile.mask_of(text, text.let(f"sub i64 %n, {column}"))
                tile.add(text, begin, end, first, column, 1, mask)
    return tile.head() + str(text)


class _Across(Tile):
    """Columns of w lie together."""

    def add(
        self, text: Text, begin: str, end: str, first: str, column: str, wide: int,
        mask: str | None,
    ) -> None:  # fmt: skip
        """The terms of a block to a tile of y, which is the sum of the first one."""
        size = str(self.size)
        w = text.at("%w", (column, size))
        xs = [text.at("%x", (str(r), "%xm")) for r in range(self.rows)]
        zeros = [(self.vector, "zeroinitializer")] * (wide * self.rows)
        with text.loop(begin, end, 1, zeros) as turn:
            row = text.at(w, (turn.at, "%ws"))
            columns = []
            for c in range(wide):
                place = text.at(row, (str(c * self.lanes), size))
                columns.append(self.load(text, place, mask))
            turn.new = []
            for r, x in enumerate(xs):
                number = text.let(f"load {self.name}, ptr {text.at(x, (turn.at, size))}")
                number = self.spread(text, number)
                for c, values in enumerate(columns):
                    turn.new.append(self.fma(text, number, values, turn.values[r * wide + c]))
        y = text.at("%y", (column, size))
        for r in range(self.rows):
            for c in range(wide):
                place = text.at(y, (str(r), "%ym"), (str(c * self.lanes), size))
                old = self.load(text, place, mask)
                value = turn.values[r * wide + c]
                total = text.let(f"fadd {self.vector} {old}, {value}")
                total = text.let(f"select i1 {first}, {self.vector} {value}, {self.vector} {total}")
                self.store(text, total, place, mask)


def _along(kind: str, rows: int, lanes: int, wide: int) -> str:
    text, tile = Text(), _Along(kind, rows, lanes)
    with text.function("product", *_PARAMS):
        with text.loop("0", "%k", _BLOCK["along"]) as begin:
            end = _least(text, text.let(f"add i64 {begin}, {_BLOCK['along']}"), "%k")
            first = text.let(f"icmp eq i64 {begin}, 0")
            whole = text.let(f"and i64 %n, -{wide}")
            with text.loop("0", whole, wide) as row:
                tile.add(text, begin, end, first, row, wide)
            with text.loop(whole, "%n", 1) as row:
                tile.add(text, begin, end, first, row, 1)
    return tile.head() + str(text)


class _Along(Tile):
    """Rows of w lie together."""

    def add(self, text: Text, begin: str, end: str, first: str, row: str, wide: int) -> None:
        """The terms of a block to a tile of y, which is the sum of the first one."""
        size = str(self.size)
        xs = [text.at("%x", (str(r), "%xm")) for r in range(self.rows)]
        ws = [text.at("%w", (row, "%ws"), (str(c), "%ws")) for c in range(wide)]
        sums = [(self.vector, "zeroinitializer")] * (wide * self.rows)
        many = text.let(f"sub i64 {end}, {begin}")
        rest = text.let(f"srem i64 {many}, {self.lanes}")
        whole = text.let(f"sub i64 {end}, {rest}")
        with text.loop(begin, whole, self.lanes, sums) as turn:
            turn.new = self.terms(text, turn.at, xs, ws, turn.values, None)
        mask = self.mask_of(text, rest)
        rest_end = text.let(f"add i64 {whole}, {rest}")
        sums = [(self.vector, value) for value in turn.values]
        with text.loop(whole, rest_end, self.lanes, sums) as turn:
            turn.new = self.terms(text, turn.at, xs, ws, turn.values, mask)
        y = text.at("%y", (row, size))
        for r in range(self.rows):
            place = text.at(y, (str(r), "%ym"))
            self.put(text, turn.values[r * wide : (r + 1) * wide], place, first)

    def terms(
        self, text: Text, at: str, xs: list[str], ws: list[str], sums: list[str], mask: str | None
    ) -> list[str]:
        """``sums`` and the products of a register of terms."""
        place = (at, str(self.size))
        rows = [self.load(text, text.at(w, place), mask) for w in ws]
        made = []
        for r, x in enumerate(xs):
            values = self.load(text, text.at(x, place), mask)
            for c, other in enumerate(rows):
                made.append(self.fma(text, values, other, sums[r * len(ws) + c]))
        return made

    def put(self, text: Text, sums: list[str], place: str, first: str) -> None:
        """What registers add up to, at ``place``, added to what is there but for the first."""
        lanes = self.lanes
        while lanes > len(sums):
            lanes //= 2
            sums = [self.halves(text, value, lanes) for value in sums]
        part = lanes
        while len(sums) > 1:
            sums = [self.pairs(text, a, b, lanes, part) for a, b in zip(sums[::2], sums[1::2])]
            part //= 2
        kind = f"<{lanes} x {self.name}>"
        old = text.let(f"load {kind}, ptr {place}, align {self.size}")
        total = text.let(f"fadd {kind} {old}, {sums[0]}")
        total = text.let(f"select i1 {first}, {kind} {sums[0]}, {kind} {total}")
        text.add(f"store {kind} {total}, ptr {place}, align {self.size}")

    def halves(self, text: Text, value: str, count: int) -> str:
        """The sum of the two halves, of ``count`` numbers each."""
        kind = f"<{2 * count} x {self.name}>"
        parts = []
        for first in (0, count):
            order = ", ".join(f"i32 {first + k}" for k in range(count))
            parts.append(
                text.let(f"shufflevector {kind} {value}, {kind} poison, <{count} x i32> <{order}>")
            )
        return text.let(f"fadd <{count} x {self.name}> {parts[0]}, {parts[1]}")

    def pairs(self, text: Text, a: str, b: str, count: int, part: int) -> str:
        """The sums of the halves of each ``part`` numbers, those of ``a`` first; as ``halves`` adds
        them, so that a sum has the same bits in a tile of any size."""
        kind, parts = f"<{count} x {self.name}>", []
        for first in (0, part // 2):
            begins = range(first, 2 * count, part)
            order = ", ".join(f"i32 {begin + k}" for begin in begins for k in range(part // 2))
            parts.append(
                text.let(f"shufflevector {kind} {a}, {kind} {b}, <{count} x i32> <{order}>")
            )
        return text.let(f"fadd {kind} {parts[0]}, {parts[1]}")


@cache
def product(kind: str, way: str, rows: int) -> Callable | None:
    """``product(y, x, w, n, k, bytes between rows of y, of x, of w)``: y (rows, n) = x (rows, k)
    times w, (k, n) ``across`` or the transpose of (n, k) ``along``. Not for k = 0.

    None where code cannot be made.
    """
    if "fma" not in host.cpu().features:
        return None
    lanes, _, sums = shape(kind)
    if way == "across":
        make, wide = _across, min(8, max(1, sums // rows))
    else:
        make, wide = _along, _ROWS
    kinds = [_POINTER] * 3 + [_NUMBER] * 5
    return functions(make, kind, rows, lanes, wide)("product", kinds)


__all__ = ["KINDS", "Tile", "most", "product", "shape"]
