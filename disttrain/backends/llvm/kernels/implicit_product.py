"""Code for products of matrices of which one is never laid out: its elements lie where the sum of
two numbers says, one of the row and one of the column. Windows over an array are such a matrix.

A tile of rows times one or two registers of columns is held in registers while the terms are added,
in their order. Where rows come in runs, with equal steps between them, the code knows those: one
address serves a run, and more rows fit. (What is read: M. Dukhan, "The Indirect Convolution
Algorithm", 2019. Tiles: K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ... import host
from ..loops import Text, functions
from .transpose import transposed

_KINDS = {"float32": ("float", 4), "float64": ("double", 8)}
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_TERMS = 512  # added up in registers at a time


@cache
def tile(kind: str) -> tuple[int, int]:
    """Rows of a tile, and columns of a register."""
    bits = host.vector_bits(host.cpu().features)
    return (14 if bits == 512 else 6), bits // 8 // _KINDS[kind][1]


class Runs(NamedTuple):
    """The rows of a tile: ``times`` runs of ``length``, ``step`` bytes apart within a run."""

    length: int
    step: int
    times: int


_ADDRESSES = 9  # that there are registers for, beside what else a loop needs


def runs(kind: str, length: int, step: int, total: int) -> Runs | None:
    """How tiles of one register of columns take ``total`` rows that come in runs of ``length``;
    None where that does not gain."""
    most = 2 * tile(kind)[0]
    fit = range(1, min(_ADDRESSES, most // max(length, 1), total // max(length, 1)) + 1)
    if not fit:
        return None

    def waste(count: int) -> tuple[int, int]:
        return -(-total // (length * count)) * length * count, -count

    return Runs(length, step, min(fit, key=waste))


def _text(kind: str, wide: int, rows: int, lanes: int, across: bool, runs: Runs | None) -> str:
    text, tile = Text(), Tile(kind, wide, rows, lanes, runs)
    rows = tile.rows
    names = ["ptr %y", "ptr %x", "ptr %rows", "i64 %m", "ptr %terms", "i64 %k", "ptr %b"]
    if not across:
        with text.function("product", *names):
            with text.loop("0", "%m", rows) as row:
                places = tile.places(text, "%x", row)
                tile.add(text, places, text.at("%y", (row, str(tile.bytes // rows))))
        return tile.head() + str(text)
    names += ["ptr %first", "i64 %lane", "i64 %lanes", "i64 %n", "i64 %xn", "i64 %yn"]
    with text.function("product", *names):
        sums = text.let(f"alloca [{tile.bytes} x i8], align 64")
        last = text.let(f"sub i64 %m, {rows}")
        with text.loop("0", "%n", 1) as sample:
            x, y = text.at("%x", (sample, "%xn")), text.at("%y", (sample, "%yn"))
            with text.loop("0", "%m", rows) as at:
                within = text.let(f"icmp slt i64 {at}, {last}")
                row = text.let(f"select i1 {within}, i64 {at}, i64 {last}")
                tile.sums(text, x, row, sums)
                tile.turned(text, sums, text.at(y, (row, str(tile.size))))
    return tile.head() + str(text)


class Tile:
    """Some rows times ``wide`` registers of columns."""

    def __init__(self, kind: str, wide: int, rows: int, lanes: int, runs: Runs | None) -> None:
        self.name, self.size = _KINDS[kind]
        self.runs = runs or Runs(1, 0, rows)
        self.wide, self.rows, self.lanes = wide, self.runs.length * self.runs.times, lanes
        self.vector = f"<{lanes} x {self.name}>"
        self.width = lanes * self.size  # bytes of a register
        self.bytes = self.width * wide * self.rows

    def head(self) -> str:
        """What the code calls."""
        return (
            f"declare void @llvm.masked.store.v{self.lanes}f{8 * self.size}.p0"
            f"({self.vector}, ptr, i32, <{self.lanes} x i1>)\n"
        )

    def load(self, text: Text, base: str, at: int) -> str:
        """Register ``at`` of those at ``base``."""
        place = text.at(base, (str(at * self.width), "1"))
        return text.let(f"load {self.vector}, ptr {place}, align {self.size}")

    def store(self, text: Text, value: str, base: str, at: int) -> None:
        """Put it there."""
        place = text.at(base, (str(at * self.width), "1"))
        text.add(f"store {self.vector} {value}, ptr {place}, align {self.size}")

    def places(self, text: Text, x: str, row: str) -> list[str]:
        """Where the runs of rows are."""
        table, found = text.at("%rows", (row, "8")), []
        for r in range(0, self.rows, self.runs.length):
            offset = text.let(f"load i64, ptr {text.at(table, (str(r), '8'))}, align 8")
            found.append(text.let(f"getelementptr i8, ptr {x}, i64 {offset}"))
        return found

    def sums(self, text: Text, x: str, row: str, sums: str) -> None:
        """``%first`` and the products, at ``sums``."""
        places, name = self.places(text, x, row), text.fresh("sums")
        first = [self.load(text, "%first", c) for c in range(self.wide)] * self.rows
        few = text.let(f"icmp sle i64 %k, {_TERMS}")
        text.add(f"br i1 {few}, label %{name}.few, label %{name}.many")
        text.start(f"{name}.few")
        self.store_all(text, self.products(text, "0", "%k", places, first), sums)
        text.add(f"br label %{name}.end")
        text.start(f"{name}.many")
        self.store_all(text, first, sums)
        self.add(text, places, sums)
        text.add(f"br label %{name}.end")
        text.start(f"{name}.end")

    def store_all(self, text: Text, values: list[str], base: str) -> None:
        """The registers of a tile."""
        for at, value in enumerate(values):
            self.store(text, value, base, at)

    def add(self, text: Text, places: list[str], sums: str) -> None:
        """Add the products to ``sums``, some terms at a time: long sums lose fewer bits so."""
        zeros = ["zeroinitializer"] * (self.wide * self.rows)
        with text.loop("0", "%k", _TERMS) as first:
            far = text.let(f"add i64 {first}, {_TERMS}")
            near = text.let(f"icmp slt i64 {far}, %k")
            end = text.let(f"select i1 {near}, i64 {far}, i64 %k")
            for at, value in enumerate(self.products(text, first, end, places, zeros)):
                old = self.load(text, sums, at)
                self.store(text, text.let(f"fadd {self.vector} {old}, {value}"), sums, at)

    def products(
        self, text: Text, first: str, end: str, places: list[str], start: list[str]
    ) -> list[str]:
        """``start`` and the products of some terms."""
        with text.loop(first, end, 1, [(self.vector, value) for value in start]) as turn:
            turn.new = self.term(text, turn.at, places, turn.values)
        return turn.values

    def term(self, text: Text, at: str, places: list[str], sums: list[str]) -> list[str]:
        """``sums`` and the products of one term."""
        offset = text.let(f"load i64, ptr {text.at('%terms', (at, '8'))}, align 8")
        b = text.at("%b", (at, str(self.wide * self.width)))
        columns = [self.load(text, b, c) for c in range(self.wide)]
        made = []
        for r in range(self.rows):
            old = sums[r * self.wide : (r + 1) * self.wide]
            which, step = divmod(r, self.runs.length)
            made += self.row(text, old, columns, places[which], offset, step * self.runs.step)
        return made

    def row(
        self, text: Text, sums: list[str], columns: list[str], row: str, term: str, far: int
    ) -> list[str]:
        """``sums`` and the number at ``row`` + ``term`` + ``far`` times ``columns``. Said as
        instructions, since LLVM would load the numbers of all rows first, and has no registers left
        then."""
        wide, letter = self.wide, "s" if self.size == 4 else "d"
        lines = [f"vbroadcasts{letter} {far}(${3 * wide + 1},${3 * wide + 2}), ${wide}"]
        lines += [f"vfmadd231p{letter} ${2 * wide + 1 + c}, ${wide}, ${c}" for c in range(wide)]
        if wide == 1 and self.width == 64:  # one instruction does both
            lines = [f"vfmadd231p{letter} {far}($4,$5){{1to{self.lanes}}}, $3, $0"]
        outputs = ["=v"] * wide + ["=&v"]
        inputs = [*map(str, range(wide)), *["v"] * wide, "r", "r"]
        given = [f"{self.vector} {v}" for v in (*sums, *columns)] + [f"ptr {row}", f"i64 {term}"]
        made = f"{{{', '.join([self.vector] * (wide + 1))}}}"
        code, where = "\\0A".join(lines), ",".join(outputs + inputs)
        all_of = text.let(f'call {made} asm sideeffect "{code}", "{where}"({", ".join(given)})')
        return [text.let(f"extractvalue {made} {all_of}, {c}") for c in range(wide)]

    def turned(self, text: Text, sums: str, y: str) -> None:
        """Store a tile at ``y`` so that what stands in a column is together."""
        lanes = self.lanes
        for c in range(self.wide):
            for part in range(0, self.rows, lanes):
                count = min(lanes, self.rows - part)
                some = [
                    self.load(text, sums, (part + k) * self.wide + c) if k < count
                    else "zeroinitializer"
                    for k in range(lanes)
                ]  # fmt: skip
                for k, column in enumerate(transposed(text, some, self.vector)):
                    place = text.at(y, (str(c * lanes + k), "%lane"), (str(part), str(self.size)))
                    self.store_if(text, c * lanes + k, column, place, count)

    def store_if(self, text: Text, lane: int, column: str, place: str, count: int) -> None:
        """Store the first ``count`` numbers where there is such a lane."""
        name = text.fresh("store")
        there = text.let(f"icmp sgt i64 %lanes, {lane}")
        text.add(f"br i1 {there}, label %{name}.do, label %{name}.end")
        text.start(f"{name}.do")
        mask = ", ".join(f"i1 {int(k < count)}" for k in range(self.lanes))
        text.add(
            f"call void @llvm.masked.store.v{self.lanes}f{8 * self.size}.p0({self.vector} "
            f"{column}, ptr {place}, i32 {self.size}, <{self.lanes} x i1> <{mask}>)"
        )
        text.add(f"br label %{name}.end")
        text.start(f"{name}.end")


@cache
def product(kind: str, wide: int, across: bool, runs: Runs | None = None) -> Callable | None:
    """``product(y, x, rows, m, terms, k, b)``: y[i, :] += sum over t of x[rows[i] + terms[t]]
    b[t, :], with ``wide`` registers of columns; numbers of bytes in ``rows`` and ``terms``, ``m`` a
    multiple of the tile's rows. ``runs``: those of a tile; then ``rows`` holds such runs only.

    ``across``: ``product(y, x, rows, m, terms, k, b, first, lane, lanes, n, xn, yn)``, for ``n``
    arrays ``xn`` bytes apart: y[j, i] = first[j] + the sum, for the first ``lanes`` columns j,
    ``lane`` bytes apart; ``m`` is at least the tile's rows.

    None where code cannot be made.
    """
    if "fma" not in host.cpu().features:
        return None
    kinds = [_POINTER, _POINTER, _POINTER, _NUMBER, _POINTER, _NUMBER, _POINTER]
    if across:
        kinds += [_POINTER, *(_NUMBER,) * 5]
    return functions(_text, kind, wide, *tile(kind), across, runs)("product", kinds)


__all__ = ["Runs", "Tile", "product", "runs", "tile"]
