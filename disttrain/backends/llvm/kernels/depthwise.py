"""Code for convolutions of single channels, and for their gradients in weights.

Planes are taken one by one. What a plane is read from is laid out in a buffer with zeros around it,
and with places alike modulo the stride together: then what a weight meets at neighbouring places is
neighbours. A block of rows and registers of sums is held in registers while the taps are taken, in
columns: a register that is read serves all taps of a column, for the rows that it reaches.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import cache

from ... import host
from ..loops import Text, functions

_KINDS = {"float32": ("float", 4), "float64": ("double", 8)}
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
HIGH = 8  # the most rows of a block
# Blocks of sums: (registers of a row, rows), for planes of a few rows and for others.
_FEW, _FLAT, _HIGH = 2, ((8, (1,)), (4, (1,)), (1, (1,))), ((2, (4,)), (1, (HIGH, 4)))
COLUMN = 4  # the most taps of a column
# What the numbers of a plan say, in order. Offsets are bytes; tables are addresses of offsets.
COPY = ("rows", "table", "row_bytes", "width", "even", "odd", "columns")
TAPS = tuple(f"{what}{n}" for n in range(COLUMN, 0, -1) for what in ("count", "table"))
ENTRY = ("place", "weight", "weight_step")  # of a table of columns of taps
PLAN = (
    "channels", "sources", "results", "source_bytes", "result_bytes", "buffer_bytes", "sums",
    "weights", "passes", "pass_table", "step",
    *(f"in_{name}" for name in COPY), *(f"out_{name}" for name in COPY),
)  # fmt: skip
PLACES = ("depth", "far", "rows", "width", "to", "to_far", "to_step")
PASS = (*PLACES, *TAPS)
GRADIENT = (
    "samples", "channels", "each", "together", "taps", "x_bytes", "g_bytes", "sums", "step",
    *PLACES, *TAPS, *(f"in_{name}" for name in COPY),
)  # fmt: skip


@cache
def lanes(kind: str, width: int) -> int:
    """Elements of the registers for rows of ``width``: of half the size where they fit into it."""
    whole = host.vector_bits(host.cpu().features) // 8 // _KINDS[kind][1]
    return whole // 2 if width <= whole // 2 and whole >= 8 else whole


class _Writer:
    """Writes pieces of functions for one type of elements."""

    def __init__(self, kind: str, lanes: int) -> None:
        self.text, self.lanes = Text(), lanes
        self.name, self.size = _KINDS[kind]
        self.vector, self.mask = f"<{lanes} x {self.name}>", f"<{lanes} x i1>"
        self.suffix = f"v{lanes}f{8 * self.size}"

    def __str__(self) -> str:
        v, m, s = self.vector, self.mask, self.suffix
        return f"{self.text}" + "\n".join([
            f"declare {v} @llvm.masked.load.{s}.p0(ptr, i32, {m}, {v})",
            f"declare void @llvm.masked.store.{s}.p0({v}, ptr, i32, {m})",
            f"declare {v} @llvm.fma.{s}({v}, {v}, {v})",
            f"declare {self.name} @llvm.vector.reduce.fadd.{s}({self.name}, {v})\n",
        ])  # fmt: skip

    # -- numbers -----------------------------------------------------------------------------
    def numbers(self, table: str, names: tuple[str, ...]) -> dict[str, str]:
        """The numbers of a table by name."""
        return {name: self.number(table, str(k)) for k, name in enumerate(names)}

    def number(self, table: str, at: str) -> str:
        place = self.text.let(f"getelementptr i64, ptr {table}, i64 {at}")
        return self.text.let(f"load i64, ptr {place}, align 8")

    def pointer(self, number: str) -> str:
        return self.text.let(f"inttoptr i64 {number} to ptr")

    def far(self, base: str, offset: str) -> str:
        return self.text.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def element(self, base: str, at: str) -> str:
        return self.text.let(f"getelementptr {self.name}, ptr {base}, i64 {at}")

    def among(self, a: str, count: str, b: str) -> str:
        """The number of ``b`` among those of ``a``, each of which has ``count``."""
        return self.text.let(f"add i64 {self.text.let(f'mul i64 {a}, {count}')}, {b}")

    def least(self, a: str, b: str) -> str:
        """The smaller of two."""
        return self.text.let(
            f"select i1 {self.text.let(f'icmp slt i64 {a}, {b}')}, i64 {a}, i64 {b}"
        )

    # -- registers ---------------------------------------------------------------------------
    def load(self, place: str, mask: str | None = None) -> str:
        v = self.vector
        if mask is None:
            return self.text.let(f"load {v}, ptr {place}, align {self.size}")
        return self.text.let(
            f"call {v} @llvm.masked.load.{self.suffix}.p0(ptr {place}, i32 {self.size}, "
            f"{self.mask} {mask}, {v} zeroinitializer)"
        )

    def store(self, value: str, place: str, mask: str | None = None) -> None:
        if mask is None:
            self.text.add(f"store {self.vector} {value}, ptr {place}, align {self.size}")
            return
        self.text.add(
            f"call void @llvm.masked.store.{self.suffix}.p0({self.vector} {value}, ptr {place}, "
            f"i32 {self.size}, {self.mask} {mask})"
        )

    def first(self, count: str) -> str:
        """The mask of the first ``count`` lanes."""
        many = f"<{self.lanes} x i64>"
        one = self.text.let(f"insertelement {many} poison, i64 {count}, i64 0")
        all_of = self.text.let(
            f"shufflevector {many} {one}, {many} poison, <{self.lanes} x i32> zeroinitializer"
        )
        numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
        return self.text.let(f"icmp slt {many} <{numbers}>, {all_of}")

    def spread(self, value: str) -> str:
        v = self.vector
        one = self.text.let(f"insertelement {v} poison, {self.name} {value}, i64 0")
        return self.text.let(
            f"shufflevector {v} {one}, {v} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def fma(self, a: str, b: str, c: str) -> str:
        v = self.vector
        return self.text.let(f"call {v} @llvm.fma.{self.suffix}({v} {a}, {v} {b}, {v} {c})")

    def shuffled(self, a: str, b: str, order: list[int]) -> str:
        which = ", ".join(f"i32 {k}" for k in order)
        v = self.vector
        return self.text.let(f"shufflevector {v} {a}, {v} {b}, <{self.lanes} x i32> <{which}>")

    # -- rows --------------------------------------------------------------------------------
    def copy(self, numbers: dict[str, str], prefix: str) -> dict[str, str]:
        """The numbers of ``COPY``, and of a row: ``whole`` pieces, of as many registers as there
        are kinds of places up to two, and masks of the registers behind them."""
        c, text, n = {name: numbers[prefix + name] for name in COPY}, self.text, self.lanes
        for k in (1, 2):
            whole = text.let(f"sdiv i64 {c['width']}, {k * n}")
            c[f"whole{k}"] = text.let(f"mul i64 {whole}, {k * n}")
            left = text.let(f"sub i64 {c['width']}, {c[f'whole{k}']}")
            c[f"left{k}"], c[f"mask{k}"] = left, self.first(left)
        c["places"] = self.pointer(c["table"])
        c["high2"] = self.first(text.let(f"sub i64 {c['left2']}, {n}"))
        return c

    def copied(self, step: int, c: dict[str, str], source: str, to: str, outward: bool) -> None:
        """Copy rows between a plane, in which they are in order, and a buffer, in which they lie
        where the table says. ``step``: what places are alike modulo; ``outward``: to the plane."""
        name = f"whole{min(step, 2)}"
        short = self.text.let(f"icmp eq i64 {c[name]}, 0")
        for condition, longer in ((short, False), (self.text.let(f"xor i1 {short}, true"), True)):
            with self.when(condition), self.text.loop("0", c["rows"], 1) as row:
                line = self.text.at(to if outward else source, (row, c["row_bytes"]))
                far = self.number(c["places"], row)
                place = self.far(source if outward else to, far)
                if step > 2:
                    self.by_table(c, line, place, outward)
                else:
                    self.by_registers(step, c, line, place, outward, longer)

    def by_registers(
        self, step: int, c: dict[str, str], line: str, place: str, outward: bool, longer: bool
    ) -> None:
        """A row whose elements, or every other one, are neighbours in the buffer. ``longer`` than
        one piece or not."""
        places = [self.far(place, c[name]) for name in ("even", "odd")[:step]]
        piece = self.row if step == 1 else self.joined if outward else self.parted
        if not longer:
            piece(c, line, places, "0")
            return
        with self.text.loop("0", c[f"whole{step}"], step * self.lanes) as at:
            piece(None, line, places, at)
        with self.when(self.text.let(f"icmp ne i64 {c[f'left{step}']}, 0")):
            piece(c, line, places, c[f"whole{step}"])

    def row(self, c: dict[str, str] | None, line: str, places: list[str], at: str) -> None:
        """A register from a plane to a buffer; with ``c``, under the mask. What is stored is whole:
        zeros behind a row, where the next row begins later."""
        mask = c["mask1"] if c else None
        self.store(self.load(self.element(line, at), mask), self.element(places[0], at))

    def parted(self, c: dict[str, str] | None, line: str, places: list[str], at: str) -> None:
        """Two registers' elements of even numbers, and of odd ones."""
        n = self.lanes
        first = self.element(line, at)
        masks = (c["mask2"], c["high2"]) if c else (None, None)
        pair = [self.load(self.element(first, str(k * n)), masks[k]) for k in range(2)]
        half = self.text.let(f"lshr i64 {at}, 1")
        into = [self.element(place, half) for place in places]
        for k, place in enumerate(into):
            value = self.shuffled(pair[0], pair[1], [2 * i + k for i in range(n)])
            self.store(value, place)

    def joined(self, c: dict[str, str] | None, line: str, places: list[str], at: str) -> None:
        """Elements of even numbers and of odd ones as two registers of a plane."""
        n, first = self.lanes, self.element(line, at)
        masks = (c["mask2"], c["high2"]) if c else (None, None)
        half = self.text.let(f"lshr i64 {at}, 1")
        pair = [self.load(self.element(place, half)) for place in places]
        for k in range(2):
            order = [(k * n + i) // 2 + (n if i % 2 else 0) for i in range(n)]
            self.store(
                self.shuffled(pair[0], pair[1], order), self.element(first, str(k * n)), masks[k]
            )

    def by_table(self, c: dict[str, str], line: str, place: str, outward: bool) -> None:
        """A row, element by element."""
        columns = self.pointer(c["columns"])
        with self.text.loop("0", c["width"], 1) as at:
            there = self.far(place, self.number(columns, at))
            here = self.element(line, at)
            source, to = (there, here) if outward else (here, there)
            one = self.text.let(f"load {self.name}, ptr {source}, align {self.size}")
            self.text.add(f"store {self.name} {one}, ptr {to}, align {self.size}")

    # -- sums --------------------------------------------------------------------------------
    def blocks(self, p: dict[str, str]) -> Iterator[tuple[int, int, str, str, str]]:
        """All places as blocks: (registers of a row, rows, place on the first axis, first row,
        column)."""
        text, few = self.text, self.text.let(f"icmp sle i64 {p['rows']}, {_FEW}")
        for shapes, condition in (
            (_FLAT, few), (_HIGH, text.let(f"xor i1 {few}, true"))
        ):  # fmt: skip
            with self.when(condition):
                column = "0"
                for wide, highs in shapes:
                    step = wide * self.lanes
                    behind = self.share(p["width"], step, self.lanes - 1 if wide > 1 else step - 1)
                    row = "0"
                    for high in highs:
                        last = high == highs[-1]
                        under = p["rows"] if last else self.share(p["rows"], high, highs[-1] - 1)
                        with (
                            text.loop("0", p["depth"], 1) as depth,
                            text.loop(column, behind, step) as at,
                            text.loop(row, under, high) as line,
                        ):
                            yield wide, high, depth, line, at
                        row = under
                    column = behind

    def share(self, count: str, step: int, more: int) -> str:
        """The multiple of ``step`` up to ``count`` and some more."""
        count = self.text.let(f"add i64 {count}, {more}")
        return self.text.let(f"mul i64 {self.text.let(f'sdiv i64 {count}, {step}')}, {step}")

    def within(self, p: dict[str, str], wide: int, column: str) -> list[str]:
        """The masks of a row's registers."""
        left = self.text.let(f"sub i64 {p['width']}, {column}")
        return [
            self.first(self.text.let(f"sub i64 {left}, {k * self.lanes}") if k else left)
            for k in range(wide)
        ]

    def sums(self, p: dict[str, str], step: str, source: str, w: str, to: str) -> None:
        """``to`` becomes the sums over the taps of a pass."""
        text = self.text
        for wide, high, depth, row, column in self.blocks(p):
            x = self.element(text.at(source, (depth, p["far"]), (row, step)), column)
            values = ["zeroinitializer"] * (wide * high)
            for count in range(COLUMN, 0, -1):
                values = self.taken(p, count, (x, step), w, values, wide)
            line = text.at(to, (depth, p["to_far"]), (row, p["to_step"]))
            masks = self.within(p, wide, column)
            left = text.let(f"sub i64 {p['rows']}, {row}")
            for r in range(high):
                with self.when(text.let(f"icmp sgt i64 {left}, {r}")):
                    place = self.element(text.at(line, (str(r), p["to_step"])), column)
                    for k in range(wide):
                        one = self.element(place, str(k * self.lanes))
                        self.store(values[r * wide + k], one, masks[k])

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is done if it holds."""
        name = self.text.fresh("when")
        self.text.add(f"br i1 {condition}, label %{name}.do, label %{name}.end")
        self.text.start(f"{name}.do")
        yield
        self.text.add(f"br label %{name}.end")
        self.text.start(f"{name}.end")

    def taken(
        self, p: dict[str, str], count: int, x: tuple[str, str], w: str, values: list[str],
        wide: int,
    ) -> list[str]:  # fmt: skip
        """``values`` and the products with all columns of ``count`` taps."""
        text, (base, step) = self.text, x
        table, high = self.pointer(p[f"table{count}"]), len(values) // wide
        carried = [(self.vector, value) for value in values]
        with text.loop("0", p[f"count{count}"], 1, carried) as turn:
            place, *weights = self.column(table, turn.at, base, w, count)
            scales = [
                self.spread(text.let(f"load {self.name}, ptr {one}, align {self.size}"))
                for one in weights
            ]
            for i in range(high + count - 1):
                for k, read in enumerate(self.line(place, step, i, wide)):
                    for t in range(max(0, i - high + 1), min(count, i + 1)):
                        at = (i - t) * wide + k
                        turn.new[at] = self.fma(read, scales[t], turn.new[at])
        return turn.values

    def column(self, table: str, at: str, base: str, w: str, count: int) -> list[str]:
        """Where what a column of taps meets is, and where what belongs to its weights is."""
        entry = self.text.at(table, (at, str(8 * len(ENTRY))))
        place, first, step = (self.number(entry, str(k)) for k in range(len(ENTRY)))
        first = self.far(w, first)
        return [self.far(base, place), *(self.text.at(first, (str(t), step)) for t in range(count))]

    def line(self, base: str, step: str, row: int, wide: int) -> list[str]:
        """The registers of a row."""
        place = self.text.at(base, (str(row), step))
        return [self.load(self.element(place, str(k * self.lanes))) for k in range(wide)]

    def products(self, p: dict[str, str], step: str, x: str, g: str, sums: str) -> None:
        """Add to ``sums``, a register for each tap, the products of ``g`` with what it meets."""
        text = self.text
        for wide, high, depth, row, column in self.blocks(p):
            place = self.element(text.at(x, (depth, p["far"]), (row, step)), column)
            line = text.at(g, (depth, p["to_far"]), (row, p["to_step"]))
            masks = self.within(p, wide, column)
            left = text.let(f"sub i64 {p['rows']}, {row}")
            given = []
            for r in range(high):
                here = self.element(text.at(line, (str(r), p["to_step"])), column)
                there = text.let(f"icmp sgt i64 {left}, {r}")
                for k in range(wide):
                    mask = text.let(f"select i1 {there}, {self.mask} {masks[k]}, {self.mask} "
                                    "zeroinitializer")  # fmt: skip
                    given.append(self.load(self.element(here, str(k * self.lanes)), mask))
            for count in range(COLUMN, 0, -1):
                self.added(p, count, (place, step), given, wide, sums)

    def added(
        self, p: dict[str, str], count: int, x: tuple[str, str], given: list[str], wide: int,
        sums: str,
    ) -> None:  # fmt: skip
        """The same of all columns of ``count`` taps."""
        text, (base, step) = self.text, x
        table, high = self.pointer(p[f"table{count}"]), len(given) // wide
        with text.loop("0", p[f"count{count}"], 1) as at:
            place, *places = self.column(table, at, base, sums, count)
            values = [[self.load(place), "zeroinitializer"] for place in places]
            for i in range(high + count - 1):
                for k, read in enumerate(self.line(place, step, i, wide)):
                    for t in range(max(0, i - high + 1), min(count, i + 1)):
                        which = (i - t + k) % 2
                        one = given[(i - t) * wide + k]
                        values[t][which] = self.fma(read, one, values[t][which])
            for to, pair in zip(places, values):
                self.store(text.let(f"fadd {self.vector} {pair[0]}, {pair[1]}"), to)

    def folded(self, count: str, sums: str, to: str) -> None:
        """Add the lanes of so many registers to numbers, and begin anew."""
        text, v = self.text, self.vector
        with text.loop("0", count, 1) as at:
            place = text.at(sums, (at, str(self.lanes * self.size)))
            total = text.let(
                f"call reassoc {self.name} @llvm.vector.reduce.fadd.{self.suffix}({self.name} "
                f"-0.0, {v} {self.load(place)})"
            )
            self.store("zeroinitializer", place)
            number = self.element(to, at)
            old = text.let(f"load {self.name}, ptr {number}, align {self.size}")
            new = text.let(f"fadd {self.name} {old}, {total}")
            text.add(f"store {self.name} {new}, ptr {number}, align {self.size}")


def _sums_text(kind: str, lanes: int, inward: int, outward: int) -> str:
    writer = _Writer(kind, lanes)
    text, parameters = writer.text, ["ptr %to", "ptr %x", "ptr %w", "ptr %plan", "ptr %buffer"]
    with text.function("sums", *parameters, "i64 %first", "i64 %end"):
        p = writer.numbers("%plan", PLAN)
        into_buffer, into_plane = writer.copy(p, "in_"), writer.copy(p, "out_")
        made, passes = writer.far("%buffer", p["sums"]), writer.pointer(p["pass_table"])
        with text.loop("%first", "%end", 1) as group:
            channel = text.let(f"urem i64 {group}, {p['channels']}")
            with text.loop("0", p["sources"], 1) as k:
                source = text.at("%x", (writer.among(group, p["sources"], k), p["source_bytes"]))
                to = text.at("%buffer", (k, p["buffer_bytes"]))
                writer.copied(inward, into_buffer, source, to, False)
            with text.loop("0", p["results"], 1) as k:
                w = text.at("%w", (writer.among(channel, p["results"], k), p["weights"]))
                to = text.at("%to", (writer.among(group, p["results"], k), p["result_bytes"]))
                into = made if outward > 1 else to
                with text.loop("0", p["passes"], 1) as number:
                    q = writer.numbers(text.at(passes, (number, str(8 * len(PASS)))), PASS)
                    writer.sums(q, p["step"], "%buffer", w, writer.far(into, q["to"]))
                if outward > 1:
                    writer.copied(outward, into_plane, made, to, True)
    return str(writer)


def _gradient_text(kind: str, lanes: int, inward: int) -> str:
    writer = _Writer(kind, lanes)
    text, parameters = writer.text, ["ptr %dw", "ptr %x", "ptr %g", "ptr %plan", "ptr %buffer"]
    register = str(lanes * writer.size)
    with text.function("gradient", *parameters, "i64 %first", "i64 %end"):
        p = writer.numbers("%plan", GRADIENT)
        into_buffer, sums = writer.copy(p, "in_"), writer.far("%buffer", p["sums"])
        all_of = text.let(f"mul i64 {p['each']}, {p['taps']}")
        with text.loop("%first", "%end", 1) as channel:
            dw = text.at("%dw", (channel, text.let(f"mul i64 {all_of}, {writer.size}")))
            with text.loop("0", p["samples"], p["together"]) as some:
                last = writer.least(text.let(f"add i64 {some}, {p['together']}"), p["samples"])
                with text.loop(some, last, 1) as sample:
                    plane = writer.among(sample, p["channels"], channel)
                    source = text.at("%x", (plane, p["x_bytes"]))
                    writer.copied(inward, into_buffer, source, "%buffer", False)
                    with text.loop("0", p["each"], 1) as k:
                        g = text.at("%g", (writer.among(plane, p["each"], k), p["g_bytes"]))
                        to = text.at(sums, (text.let(f"mul i64 {k}, {p['taps']}"), register))
                        writer.products(p, p["step"], "%buffer", g, to)
                writer.folded(all_of, sums, dw)
    return str(writer)


def _found(make: Callable[..., str], name: str, *how: object) -> Callable | None:
    if "fma" not in host.cpu().features:
        return None
    types = [*(_POINTER,) * 5, _NUMBER, _NUMBER]
    return functions(make, *how)(name, types)


@cache
def sums(kind: str, lanes: int, inward: int, outward: int) -> Callable | None:
    """``sums(to, x, w, plan, buffer, first, end)``: the planes from number ``first`` to ``end``.
    ``plan``: the numbers of ``PLAN``, whose ``pass_table`` has those of ``PASS`` for each pass.
    ``inward``, ``outward``: what columns of ``x`` and of ``to`` are alike modulo (3: any number).
    None where code cannot be made."""
    return _found(_sums_text, "sums", kind, lanes, inward, outward)


@cache
def gradient(kind: str, lanes: int, inward: int) -> Callable | None:
    """``gradient(dw, x, g, plan, buffer, first, end)``: adds for these channels. ``plan``: the
    numbers of ``GRADIENT``."""
    return _found(_gradient_text, "gradient", kind, lanes, inward)


__all__ = [
    "COLUMN",
    "COPY",
    "ENTRY",
    "GRADIENT",
    "HIGH",
    "PASS",
    "PLAN",
    "gradient",
    "lanes",
    "sums",
]
