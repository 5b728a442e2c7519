"""Code that transforms places of x, y and g for Winograd's minimal filtering (see ``winograd``).

    inputs      places of x -> transformed ones, (products, channels, tiles)
    outputs     products, (products, channels, tiles) -> places of y
    gradients   places of g -> transformed ones, (products, tiles, channels)

A unit is a row of tiles: six numbers say where it reads and writes (``UNIT``). A tile is 2 x 2
results, or 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..loops import Text
from .transpose import transposed

UNIT = ("x", "h", "w", "y", "rows", "columns")
"""Bytes to the sample in x; first row and column there (also outside); bytes to the place in y;
how many of its rows there are, and columns from there on."""


class Shape(NamedTuple):
    """What the transforms are made for: products along each axis (1: no tiles along it; 3: of two
    weights; 4: of three), and how many interleaved sequences the columns are."""

    high: int
    wide: int
    phases: int


class Code:
    """A module's text, and registers of places in it."""

    def __init__(self, shape: Shape, lanes: int) -> None:
        self.text, self.shape, self.lanes = Text(), shape, lanes
        self.vector, self.places = f"<{lanes} x float>", f"<{lanes} x i32>"
        self.mask = f"<{lanes} x i1>"

    def __str__(self) -> str:
        vector, mask, bits = self.vector, self.mask, f"v{self.lanes}f32"
        return (
            f"declare {vector} @llvm.masked.load.{bits}.p0(ptr, i32, {mask}, {vector})\n"
            f"declare void @llvm.masked.store.{bits}.p0({vector}, ptr, i32, {mask})\n"
            f"declare {vector} @llvm.fma.{bits}({vector}, {vector}, {vector})\n{self.text}"
        )

    def number(self, base: str, at: int) -> str:
        """A number of a table."""
        return self.text.let(f"load i64, ptr {self.text.at(base, (str(at), '8'))}, align 8")

    def unit(self, at: str, *names: str) -> list[str]:
        """What the table says of a unit."""
        base = self.text.at("%units", (at, str(8 * len(UNIT))))
        return [self.number(base, UNIT.index(name)) for name in names]

    def within(self, first: str, end: str) -> str:
        """Which of the places from ``first`` on are not outside of 0 to ``end``."""
        text, kind = self.text, self.places
        near, far = (text.let(f"trunc i64 {n} to i32") for n in (first, end))
        counted = ", ".join(f"i32 {k}" for k in range(self.lanes))
        at = text.let(f"add {kind} {self.spread(near, 'i32')}, <{counted}>")
        return text.let(f"icmp ult {kind} {at}, {self.spread(far, 'i32')}")

    def spread(self, value: str, kind: str) -> str:
        """A register of one value."""
        many = f"<{self.lanes} x {kind}>"
        one = self.text.let(f"insertelement {many} poison, {kind} {value}, i32 0")
        return self.text.let(
            f"shufflevector {many} {one}, {many} poison, {self.places} zeroinitializer"
        )

    def load(self, place: str, mask: str | None = None) -> str:
        """A register, with zeros where it is not within."""
        if mask is None:
            return self.text.let(f"load {self.vector}, ptr {place}, align 4")
        return self.text.let(
            f"call {self.vector} @llvm.masked.load.v{self.lanes}f32.p0(ptr {place}, i32 4, "
            f"{self.mask} {mask}, {self.vector} zeroinitializer)"
        )

    def store(self, value: str, place: str, mask: str | None = None) -> None:
        """Put a register there."""
        if mask is None:
            self.text.add(f"store {self.vector} {value}, ptr {place}, align 4")
            return
        self.text.add(
            f"call void @llvm.masked.store.v{self.lanes}f32.p0({self.vector} {value}, "
            f"ptr {place}, i32 4, {self.mask} {mask})"
        )

    def shuffled(self, a: str, b: str, order: Sequence[int]) -> str:
        """Elements of two registers."""
        mask = ", ".join(f"i32 {k}" for k in order)
        return self.text.let(
            f"shufflevector {self.vector} {a}, {self.vector} {b}, {self.places} <{mask}>"
        )

    def add(self, a: str, b: str) -> str:
        return self.text.let(f"fadd {self.vector} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.text.let(f"fsub {self.vector} {a}, {b}")

    def negative(self, a: str) -> str:
        return self.text.let(f"fneg {self.vector} {a}")

    def every(self, parts: list[str], first: int) -> str:
        """Of twice as many numbers as parts have, in pairs of parts, every other from ``first``."""
        order = range(first, 2 * self.lanes, 2)
        while len(parts) > 1:
            parts = [self.shuffled(a, b, order) for a, b in zip(parts[::2], parts[1::2])]
        return parts[0]

    def pairs(self, a: str, b: str) -> list[str]:
        """Two registers of numbers of ``a`` and ``b`` in turn."""
        n = self.lanes
        order = [k // 2 + (n if k % 2 else 0) for k in range(2 * n)]
        return [self.shuffled(a, b, order[:n]), self.shuffled(a, b, order[n:])]

    # --- the sums of the algorithm: along the last axis of lists, then the first -----------------
    def before(self, d: list[str], count: int) -> list[str]:
        """Four numbers of x."""
        if count == 1:
            return d
        last = [self.sub(d[1], d[3])] if count == 4 else []
        return [self.sub(d[0], d[2]), self.add(d[1], d[2]), self.sub(d[2], d[1]), *last]

    def after(self, m: list[str]) -> list[str]:
        """Products to two results."""
        if len(m) == 1:
            return m
        first = self.add(self.add(m[0], m[1]), m[2])
        second = self.sub(m[1], m[2])
        return [first, self.sub(second, m[3]) if len(m) == 4 else second]

    def apart(self, g: list[str], count: int) -> list[str]:
        """The adjoint of ``after``."""
        if count == 1:
            return g
        last = [self.negative(g[1])] if count == 4 else []
        return [g[0], self.add(*g), self.sub(*g), *last]

    def both(self, rows: list[list[str]], each: Callable) -> list[list[str]]:
        """``each(numbers, products)`` along rows, then along columns of what it gives."""
        rows = [each(row, self.shape.wide) for row in rows]
        columns = [each(list(column), self.shape.high) for column in zip(*rows)]
        return [list(row) for row in zip(*columns)]


def inputs(code: Code) -> None:
    """``n`` units of x, of channels ``xc`` and rows ``xh`` bytes apart, ``dh`` rows from one of a
    tile to the next. Of unit u, tile k of a phase has the number (u phases + phase) ``tiles`` + k;
    of channel c and product p it lies at v + p ``position`` + c ``plane``. Behind the last tile
    there is room for a register."""
    text, shape, lanes = code.text, code.shape, code.lanes
    names = ["ptr %v", "ptr %x", "ptr %units", "i64 %n", "i64 %c", "i64 %xc", "i64 %xh", "i64 %h",
             "i64 %width", "i64 %dh", "i64 %tiles", "i64 %plane", "i64 %position"]  # fmt: skip
    with text.function("inputs", *names), text.loop("0", "%c", 1) as c:
        with text.loop("0", "%n", 1) as unit:
            x, h, w = code.unit(unit, "x", "h", "w")
            base = text.at("%x", (x, "1"), (c, "%xc"))
            row = text.let(f"mul i64 %tiles, {shape.phases}")
            v = text.at("%v", (c, "%plane"), (text.let(f"mul i64 {row}, {unit}"), "4"))
            for phase in range(shape.phases):
                with text.loop("0", "%tiles", lanes) as tile:
                    far = text.let(f"mul i64 {tile}, {2 * shape.phases}")
                    first = text.let(f"add i64 {text.let(f'add i64 {far}, {phase}')}, {w}")
                    found = _read(code, base, h, first)
                    to = text.let(f"add i64 {tile}, {text.let(f'mul i64 %tiles, {phase}')}")
                    place = text.at(v, (to, "4"))
                    made = code.both(found, code.before)
                    for k, value in enumerate(value for row in made for value in row):
                        code.store(value, text.at(place, (str(k), "%position")))


def _read(code: Code, base: str, h: str, first: str) -> list[list[str]]:
    """The numbers of tiles: rows of four registers."""
    text, lanes, phases = code.text, code.lanes, code.shape.phases
    found = []
    starts = [text.let(f"add i64 {first}, {k * lanes}") for k in range(2 * phases + 1)]
    masks = [code.within(start, "%width") for start in starts]
    for r in range(4 if code.shape.high > 1 else 1):
        row = text.let(f"add i64 {h}, {text.let(f'mul i64 %dh, {r}')}")
        inside = text.let(f"icmp ult i64 {row}, %h")
        row = text.let(f"select i1 {inside}, i64 {row}, i64 0")  # no memory: a mask of it is slow
        there = code.spread(inside, "i1")
        line = text.at(base, (row, "%xh"), (first, "4"))
        parts = [
            code.load(text.at(line, (str(k * lanes), "4")),
                      text.let(f"and {code.mask} {mask}, {there}"))
            for k, mask in enumerate(masks)
        ]  # fmt: skip
        *whole, more = parts
        if phases == 1:
            even, odd = code.every(whole, 0), code.every(whole, 1)
        else:
            halves = [code.every(whole[k : k + 2], 0) for k in (0, 2)]
            even, odd = code.every(halves, 0), code.every(halves, 1)
        shift = range(1, lanes + 1)
        last = code.shuffled(more, more, [phases] * lanes)
        found.append([even, odd, code.shuffled(even, more, shift), code.shuffled(odd, last, shift)])
    return found


def outputs(code: Code) -> None:
    """What products make, plus the bias of each channel. ``dh``: bytes between rows of a tile.
    ``bad``: a register for each unit, to which zeros are added: nan where a result is not
    finite."""
    text, shape, lanes = code.text, code.shape, code.lanes
    names = ["ptr %y", "ptr %m", "ptr %units", "i64 %n", "i64 %o", "i64 %yc", "i64 %dh",
             "i64 %tiles", "i64 %plane", "i64 %position", "ptr %bias", "ptr %bad"]  # fmt: skip
    with text.function("outputs", *names), text.loop("0", "%o", 1) as o:
        start = text.let(f"load float, ptr {text.at('%bias', (o, '4'))}, align 4")
        start = code.spread(start, "float")
        with text.loop("0", "%n", 1) as unit:
            y, rows, columns = code.unit(unit, "y", "rows", "columns")
            row = text.let(f"mul i64 %tiles, {shape.phases}")
            m = text.at("%m", (o, "%plane"), (text.let(f"mul i64 {row}, {unit}"), "4"))
            base, bad = text.at("%y", (y, "1"), (o, "%yc")), text.at("%bad", (unit, str(4 * lanes)))
            end = text.let(f"add i64 {columns}, {2 * shape.phases - 1}")
            end = text.let(f"udiv i64 {end}, {2 * shape.phases}")
            some = text.let(f"icmp sgt i64 {rows}, 0")
            end = text.let(f"select i1 {some}, i64 {end}, i64 0")
            with text.loop("0", end, lanes) as tile:
                _write(code, base, m, bad, tile, rows, columns, start)


def _write(
    code: Code, base: str, m: str, bad: str, tile: str, rows: str, columns: str, start: str
) -> None:
    text, lanes, shape = code.text, code.lanes, code.shape
    lines: list[list[str]] = [[], []]
    for phase in range(shape.phases):
        at = text.let(f"add i64 {tile}, {text.let(f'mul i64 %tiles, {phase}')}")
        place = text.at(m, (at, "4"))
        found = [
            [
                code.load(text.at(place, (str(r * shape.wide + c), "%position")))
                for c in range(shape.wide)
            ]
            for r in range(shape.high)
        ]
        made = code.both(found, lambda numbers, _: code.after(numbers))
        for line, (a, b) in zip(lines, made):
            line += code.pairs(code.add(a, start), code.add(b, start))
    first = text.let(f"mul i64 {tile}, {2 * shape.phases}")
    wrong = code.load(bad)
    for r, line in enumerate(lines[: 1 if shape.high == 1 else 2]):
        if shape.phases == 2:
            a0, a1, b0, b1 = line
            line = [*code.pairs(a0, b0), *code.pairs(a1, b1)]
        there = text.let(f"icmp sgt i64 {rows}, {r}")
        end = text.let(f"select i1 {there}, i64 {columns}, i64 0")
        place = text.at(base, (text.let(f"mul i64 %dh, {r}"), "1"), (first, "4"))
        for k, value in enumerate(line):
            mask = code.within(text.let(f"add i64 {first}, {k * lanes}"), end)
            code.store(value, text.at(place, (str(k * lanes), "4")), mask)
            seen = text.let(f"select {code.mask} {mask}, {code.vector} {value}, {code.vector} "
                            "zeroinitializer")  # fmt: skip
            wrong = text.let(
                f"call {code.vector} @llvm.fma.v{lanes}f32({code.vector} {seen}, "
                f"{code.vector} zeroinitializer, {code.vector} {wrong})"
            )
    code.store(wrong, bad)


def gradients(code: Code) -> None:
    """Tiles of g, as ``outputs`` has those of y; tile k at ``row`` k bytes, where the channels are
    together."""
    text, shape, lanes = code.text, code.shape, code.lanes
    size, down = 4 * lanes, 1 if shape.high == 1 else 2
    names = ["ptr %t", "ptr %g", "ptr %units", "i64 %n", "i64 %o", "i64 %gc", "i64 %dh",
             "i64 %tiles", "i64 %row", "i64 %position"]  # fmt: skip
    with text.function("gradients", *names):
        square = text.let(f"alloca [{2 * down * lanes * size} x i8], align 64")
        with text.loop("0", "%o", lanes) as channel, text.loop("0", "%n", 1) as unit:
            y, *ends = code.unit(unit, "y", "rows", "columns")
            for phase in range(shape.phases):
                at = text.let(f"mul i64 {unit}, {shape.phases}")
                at = text.let(f"mul i64 {text.let(f'add i64 {at}, {phase}')}, %tiles")
                t = text.at("%t", (at, "%row"), (channel, "4"))
                with text.loop("0", "%tiles", lanes) as tile:
                    first = text.let(f"mul i64 {tile}, {2 * shape.phases}")
                    first = text.let(f"add i64 {first}, {phase}")
                    with text.loop("0", str(lanes), 1) as k:
                        o = text.let(f"add i64 {channel}, {k}")
                        found = _given(code, text.at("%g", (y, "1"), (o, "%gc")), o, ends, first)
                        for which, value in enumerate(found):
                            code.store(value, text.at(square, (k, str(size)),
                                                      (str(which), str(lanes * size))))  # fmt: skip
                    for which in range(2 * down):
                        _turned(code, text.at(square, (str(which), str(lanes * size))))
                    left = text.let(f"sub i64 %tiles, {tile}")
                    near = text.let(f"icmp slt i64 {left}, {lanes}")
                    end = text.let(f"select i1 {near}, i64 {left}, i64 {lanes}")
                    with text.loop("0", end, 1) as k:
                        found = [
                            code.load(text.at(square, (k, str(size)), (str(w), str(lanes * size))))
                            for w in range(2 * down)
                        ]
                        made = code.both([found[:2], found[2:]][:down], code.apart)
                        place = text.at(t, (text.let(f"add i64 {tile}, {k}"), "%row"))
                        for p, value in enumerate(value for row in made for value in row):
                            code.store(value, text.at(place, (str(p), "%position")))


def _given(code: Code, base: str, o: str, ends: list[str], first: str) -> list[str]:
    """The numbers of g of tiles, row by row; zeros outside, and of channels that are not there."""
    text, lanes, phases = code.text, code.lanes, code.shape.phases
    there, found = text.let(f"icmp slt i64 {o}, %o"), []
    for r in range(1 if code.shape.high == 1 else 2):
        some = text.let(f"icmp sgt i64 {ends[0]}, {r}")
        some = text.let(f"and i1 {some}, {there}")
        end = text.let(f"select i1 {some}, i64 {ends[1]}, i64 0")
        line = text.at(base, (text.let(f"mul i64 %dh, {r}"), "1"), (first, "4"))
        parts = []
        for k in range(2 * phases):
            mask = code.within(text.let(f"add i64 {first}, {k * lanes}"), end)
            parts.append(code.load(text.at(line, (str(k * lanes), "4")), mask))
        if phases == 2:
            parts = [code.every(parts[:2], 0), code.every(parts[2:], 0)]
        found += [code.every(parts, 0), code.every(parts, 1)]
    return found


def _turned(code: Code, square: str) -> None:
    """Rows become columns, in place."""
    places = [code.text.at(square, (str(k), str(4 * code.lanes))) for k in range(code.lanes)]
    for place, value in zip(
        places, transposed(code.text, [code.load(place) for place in places], code.vector)
    ):
        code.store(value, place)


__all__ = ["UNIT", "Code", "Shape", "gradients", "inputs", "outputs"]
