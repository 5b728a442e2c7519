"""Code for the steps of a recurrence, all of them by one call.

A step has phases. A phase is a product of rows with a matrix (or the sum of several), and an
elementwise kernel that reads the product's columns in groups (``s0``, ``s1`` ... : a column of each
is one unit) and arrays of the step. A tile of rows and of all groups of some units is held in
registers while the terms are added, in their order; then the kernel takes it, before it leaves the
cache. So the bits of a row do not depend on the other rows. float32.

The matrix is given in panels: for each tile's units, term after term, the registers of a tile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ... import host
from ...lang.expr import walk
from ...lang.kernel import ITEMSIZE, Array, Kernel, Loop, Store, Types, resolve
from ..emit import STORED, Emitter, Target
from ..loops import Text, functions

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_TERMS = 128  # added up in registers at a time: long sums lose fewer bits so
_SIZE = 4  # bytes of an element
_WIDE = 4  # the most registers of a tile's row
TRACK = 5  # numbers that say where an array's rows are


class Phase(NamedTuple):
    """``groups`` of the product's columns; a tile has ``blocks`` registers of each. ``inputs``: how
    many arrays the rows of the product come from, their terms after each other. ``pairs``: a term
    is two numbers of bfloat16 and their products' sum, where there is ``pairs()``. ``columns``: the
    rows of the product are columns of what is given, whose stride is that between its rows."""

    kernel: Kernel
    groups: int
    blocks: int
    inputs: int = 1
    pairs: bool = False
    columns: bool = False

    @property
    def arrays(self) -> list[Array]:
        """What the kernel reads and writes beside the product."""
        return [a for a in self.kernel.arrays if a.name not in self.sums]

    @property
    def sums(self) -> list[str]:
        """What the kernel calls the groups of the product."""
        return [f"s{k}" for k in range(self.groups)]


@cache
def lanes() -> int:
    """Elements of a register; 0 where no code can be made."""
    features = host.cpu().features
    bits = host.vector_bits(features)
    return bits // 8 // _SIZE if bits > 128 and "fma" in features else 0


@cache
def pairs() -> bool:
    """Whether this processor multiplies pairs of bfloat16, which it adds up in float32."""
    return lanes() == 16 and "avx512_bf16" in host.cpu().features


def blocks(groups: int, units: int) -> int:
    """How many registers of each group a tile has."""
    return min(_WIDE // groups, 1 << max(0, -(-units // lanes()) - 1).bit_length())


def _rows(wide: int) -> int:
    """Rows of a tile: sums fill the registers that a turn of the product leaves."""
    free = (32 if lanes() == 16 else 16) - wide - 1
    return max(1, min(12, free // wide))


class _Input(NamedTuple):
    """What a product reads: where rows are, bytes between them, how many terms; bytes of a panel
    that come before those of its terms."""

    rows: str
    stride: str
    terms: str
    far: str


class _Into(Emitter):
    """Instructions of scalar expressions on registers, in ``text``."""

    def __init__(self, text: Text, lanes: int) -> None:
        super().__init__(lanes, Target(32 * lanes))
        self.text = text

    def op(self, text: str) -> str:
        return self.text.let(text)


class _Writer:
    """Writes one phase of a step. Names of registers and of what is given end in its number."""

    def __init__(self, text: Text, e: _Into, phase: Phase, number: int, column: int) -> None:
        self.text, self.e, self.phase, self.number = text, e, phase, number
        self.column = column  # of the table
        self.wide = phase.groups * phase.blocks
        self.rows = _rows(self.wide)
        self.vector, self.width = e.v, e.lanes * _SIZE

    def given(self, name: str) -> str:
        return f"%{name}{self.number}"

    def write(self, table: str) -> None:
        text, lanes = self.text, self.e.lanes
        units, groups = self.given("units"), self.phase.groups
        tiles = text.let(f"add i64 %rows, {self.rows - 1}")
        tiles = text.let(f"sdiv i64 {tiles}, {self.rows}")
        inputs, all_terms = [], "0"
        for k in range(self.phase.inputs):
            terms = self.given(f"terms{k}.")
            inputs.append(self.input(table, k, terms, all_terms))
            all_terms = text.let(f"add i64 {all_terms}, {terms}")
        with text.loop("0", units, self.phase.blocks * lanes) as unit:
            part = text.let(f"mul i64 {unit}, {groups * _SIZE}")
            first = text.at(self.given("first"), (part, "1"))
            panel = text.at(self.given("w"), (part, all_terms))
            with text.loop("0", tiles, 1) as tile:
                begin, end = (self.share(tile, more, tiles) for more in (0, 1))
                count = text.let(f"sub i64 {end}, {begin}")
                self.products(count, begin, inputs, panel, first)
                with text.loop("0", count, 1) as row:
                    at = text.let(f"add i64 {begin}, {row}")
                    sums = text.at("%sums", (row, str(self.wide * self.width)))
                    with text.loop("0", str(self.phase.blocks), 1) as block:
                        self.cell(table, at, unit, block, sums)

    def input(self, table: str, k: int, terms: str, before: str) -> _Input:
        """Input ``k`` of the product, with ``before`` terms before its own."""
        text = self.text
        rows = text.let(f"load ptr, ptr {text.at(table, (str(self.column + k), '8'))}")
        none = text.let(f"icmp eq ptr {rows}, null")
        terms = text.let(f"select i1 {none}, i64 0, i64 {terms}")
        far = text.let(f"mul i64 {before}, {self.wide * self.width}")
        return _Input(rows, self.stride(k), terms, far)

    def share(self, tile: str, more: int, tiles: str) -> str:
        """Where a tile begins, or the next one: tiles are as even as can be."""
        number = self.text.let(f"add i64 {tile}, {more}")
        number = self.text.let(f"mul i64 {number}, %rows")
        return self.text.let(f"sdiv i64 {number}, {tiles}")

    def stride(self, at: int) -> str:
        """Bytes between rows of what column ``at`` of this phase has."""
        place = self.text.at("%tracks", (str((self.column + at) * TRACK + 2), "8"))
        return self.text.let(f"load i64, ptr {place}")

    # -- the product -------------------------------------------------------------------------

    def products(
        self, count: str, begin: str, inputs: list[_Input], panel: str, first: str
    ) -> None:
        """``count`` rows of the tile, at ``%sums``."""
        text, name = self.text, self.text.fresh("rows")
        cases = " ".join(f"i64 {n}, label %{name}.{n}" for n in range(1, self.rows + 1))
        text.add(f"switch i64 {count}, label %{name}.end [{cases}]")
        for n in range(1, self.rows + 1):
            text.start(f"{name}.{n}")
            start = [self.load(first, c) for c in range(self.wide)] * n
            for at, value in enumerate(start):
                self.store(value, at)
            for given in inputs:
                next_row = str(_SIZE) if self.phase.columns else given.stride
                x, w = text.at(given.rows, (begin, next_row)), text.at(panel, (given.far, "1"))
                xs = [text.at(x, (str(r), next_row)) for r in range(n)]
                self.add(xs, w, given)
            text.add(f"br label %{name}.end")
        text.start(f"{name}.end")

    def add(self, xs: list[str], w: str, given: _Input) -> None:
        """The products of an input's terms, to ``%sums``."""
        text, terms = self.text, given.terms
        zeros = [(self.vector, "zeroinitializer")] * (len(xs) * self.wide)
        with text.loop("0", terms, _TERMS) as begin:
            far = text.let(f"add i64 {begin}, {_TERMS}")
            near = text.let(f"icmp slt i64 {far}, {terms}")
            end = text.let(f"select i1 {near}, i64 {far}, i64 {terms}")
            with text.loop(begin, end, 1, zeros) as turn:
                turn.new = self.term(turn.at, xs, w, turn.values, given.stride)
            for at, value in enumerate(turn.values):
                old = self.load("%sums", at)
                self.store(text.let(f"fadd {self.vector} {old}, {value}"), at)

    def load(self, base: str, at: int) -> str:
        place = self.text.at(base, (str(at * self.width), "1"))
        return self.text.let(f"load {self.vector}, ptr {place}, align {_SIZE}")

    def store(self, value: str, at: int) -> None:
        place = self.text.at("%sums", (str(at * self.width), "1"))
        self.text.add(f"store {self.vector} {value}, ptr {place}, align {_SIZE}")

    def term(self, at: str, xs: list[str], panel: str, sums: list[str], stride: str) -> list[str]:
        """``sums`` and the products of one term."""
        text, wide = self.text, self.wide
        w = text.at(panel, (at, str(wide * self.width)))
        columns = [self.load(w, c) for c in range(wide)]
        made: list[str] = []
        at = text.let(f"mul i64 {at}, {stride}") if self.phase.columns else at
        for r, x in enumerate(xs):
            made += self.row(sums[r * wide : (r + 1) * wide], columns, x, at)
        return made

    def row(self, sums: list[str], columns: list[str], x: str, at: str) -> list[str]:
        """``sums`` and number ``at`` of ``x`` times ``columns``. Said as instructions, since LLVM
        would load the numbers of all rows first, and has no registers left then."""
        wide, each = self.wide, 1 if self.phase.columns else _SIZE
        lines = [f"vbroadcastss (${3 * wide + 1},${3 * wide + 2},{each}), ${wide}"]
        multiply = "vdpbf16ps" if self.phase.pairs else "vfmadd231ps"
        lines += [f"{multiply} ${2 * wide + 1 + c}, ${wide}, ${c}" for c in range(wide)]
        where = ",".join(["=v"] * wide + ["=&v", *map(str, range(wide)), *["v"] * wide, "r", "r"])
        given = [f"{self.vector} {v}" for v in (*sums, *columns)] + [f"ptr {x}", f"i64 {at}"]
        made, code = f"{{{', '.join([self.vector] * (wide + 1))}}}", "\\0A".join(lines)
        all_of = self.text.let(
            f'call {made} asm sideeffect "{code}", "{where}"({", ".join(given)})'
        )
        return [self.text.let(f"extractvalue {made} {all_of}, {c}") for c in range(wide)]

    # -- the kernel --------------------------------------------------------------------------

    def cell(self, table: str, row: str, unit: str, block: str, sums: str) -> None:
        """The kernel on one register of units, whole or as far as there are units."""
        text, name, lanes = self.text, self.text.fresh("cell"), self.e.lanes
        far = text.let(f"mul i64 {block}, {lanes}")
        unit = text.let(f"add i64 {unit}, {far}")
        left = text.let(f"sub i64 {self.given('units')}, {unit}")
        sums = text.at(sums, (block, str(self.width)))
        whole, some = (text.let(f"icmp sge i64 {left}, {n}") for n in (lanes, 1))
        text.add(f"br i1 {whole}, label %{name}.whole, label %{name}.rest")
        text.start(f"{name}.whole")
        self.kernel(table, row, unit, sums, None)
        text.add(f"br label %{name}.end")
        text.start(f"{name}.rest")
        text.add(f"br i1 {some}, label %{name}.some, label %{name}.end")
        text.start(f"{name}.some")
        self.kernel(table, row, unit, sums, self.mask(left))
        text.add(f"br label %{name}.end")
        text.start(f"{name}.end")

    def mask(self, count: str) -> str:
        """The first ``count`` of a register."""
        kind, lanes = f"<{self.e.lanes} x i64>", range(self.e.lanes)
        all_of = self.e.broadcast(count, "i64")
        numbers = ", ".join(f"i64 {k}" for k in lanes)
        return self.text.let(f"icmp slt {kind} <{numbers}>, {all_of}")

    def kernel(self, table: str, row: str, unit: str, sums: str, mask: str | None) -> None:
        phase, arrays = self.phase, self.column + self.phase.inputs
        names = {f"s{g}": self.load(sums, g * phase.blocks) for g in range(phase.groups)}
        places = {}
        for k, array in enumerate(phase.arrays):
            base = self.text.let(f"load ptr, ptr {self.text.at(table, (str(arrays + k), '8'))}")
            stride, size = self.stride(phase.inputs + k), ITEMSIZE[array.dtype]
            places[array.name] = self.text.at(base, (row, stride), (unit, str(size)))
        values: dict[Any, str] = {}
        types = Types(phase.kernel)
        (loop,) = phase.kernel.steps
        assert isinstance(loop, Loop)
        stores = [s for s in loop.body if isinstance(s, Store)]
        for node in (n for s in stores for n in walk(s.value)):
            if node in values or node.op == "const":
                continue
            if node.op == "var":
                name = node.attr
                values[node] = names[name] if name in names else self.fetch(places[name], mask)
                continue
            args = [a.attr if a.op == "const" else values[a] for a in node.args]
            kinds = [resolve(types[a]) for a in node.args]
            values[node] = self.e.node(node, args, kinds, types)
        for s in stores:
            dtype = next(a.dtype for a in phase.arrays if a.name == s.array)
            self.put(values[s.value], places[s.array], mask, dtype)

    def fetch(self, place: str, mask: str | None) -> str:
        if mask is None:
            return self.text.let(f"load {self.vector}, ptr {place}, align {_SIZE}")
        name = f"@llvm.masked.load.v{self.e.lanes}f32.p0"
        self.e.declarations.add(
            f"declare {self.vector} {name}(ptr, i32, {self.e.b}, {self.vector})"
        )
        inside = f"ptr {place}, i32 {_SIZE}, {self.e.b} {mask}, {self.vector} zeroinitializer"
        return self.text.let(f"call {self.vector} {name}({inside})")

    def put(self, value: str, place: str, mask: str | None, dtype: str) -> None:
        e, size = self.e, ITEMSIZE[dtype]
        value, kind = e.narrow(value, dtype), f"<{e.lanes} x {STORED[dtype]}>"
        if mask is None:
            self.text.add(f"store {kind} {value}, ptr {place}, align {size}")
            return
        name = f"@llvm.masked.store.v{e.lanes}{'f32' if size == _SIZE else 'i16'}.p0"
        e.declarations.add(f"declare void {name}({kind}, ptr, i32, {e.b})")
        inside = f"{kind} {value}, ptr {place}, i32 {size}, {e.b} {mask}"
        self.text.add(f"call void {name}({inside})")


def _text(lanes: int, *phases: Phase) -> str:
    text = Text()
    e, column, writers = _Into(text, lanes), 0, []
    for number, phase in enumerate(phases):
        writers.append(_Writer(text, e, phase, number, column))
        column += phase.inputs + len(phase.arrays)
    names = ["ptr %tracks", "i64 %steps", "i64 %rows", "i64 %from"]
    for k, phase in enumerate(phases):
        names += [f"i64 %units{k}", *(f"i64 %terms{j}.{k}" for j in range(phase.inputs))]
        names += [f"ptr %w{k}", f"ptr %first{k}"]
    most = max(w.rows * w.wide * w.width for w in writers)
    with text.function("sequence", *names):
        text.add(f"%sums = alloca [{most} x i8], align 64")
        text.add(f"%table = alloca [{8 * column} x i8], align 64")
        with text.loop("0", "%steps", 1) as step:
            _places(text, step, column)
            for writer in writers:
                writer.write("%table")
    return "\n".join([str(text), *sorted(e.declarations)]) + "\n"


def _places(text: Text, step: str, columns: int) -> None:
    """Put into ``%table`` where the rows of a step begin."""
    with text.loop("0", str(columns), 1) as column:
        track = text.at("%tracks", (column, str(8 * TRACK)))
        base, far, stride, odd, end = (
            text.let(f"load i64, ptr {text.at(track, (str(k), '8'))}") for k in range(TRACK)
        )
        far = text.let(f"mul i64 {far}, {step}")
        place = text.let(f"add i64 {base}, {far}")
        ends = text.let(f"icmp eq i64 {step}, {odd}")
        place = text.let(f"select i1 {ends}, i64 {end}, i64 {place}")
        none = text.let(f"icmp eq i64 {place}, 0")
        far = text.let(f"mul i64 {stride}, %from")
        some = text.let(f"add i64 {place}, {far}")
        place = text.let(f"select i1 {none}, i64 0, i64 {some}")
        text.add(f"store i64 {place}, ptr {text.at('%table', (column, '8'))}")


@cache
def sequence(*phases: Phase) -> Callable | None:
    """``sequence(tracks, steps, rows, from, (units, terms ..., w, first) of each phase)``: ``rows``
    rows of all steps, the first of which is number ``from``.

    ``tracks`` has five numbers for each array: first those of a phase's product, in order along
    their ``terms``, and the arrays of its kernel, then those of the next phase. They are the
    address at step 0, the bytes to the next step and to the next row, and a step at which the rows
    are elsewhere, and where (0: for a product, no rows, and the sums are ``first``). ``w``: panels
    (units / (blocks * lanes), terms, groups, blocks, lanes); ``first``: (units / (blocks * lanes),
    groups, blocks, lanes).

    None where code cannot be made.
    """
    if not lanes():
        return None
    kinds = [_POINTER, _NUMBER, _NUMBER, _NUMBER]
    for phase in phases:
        kinds += [_NUMBER] * (1 + phase.inputs) + [_POINTER] * 2
    return functions(_text, lanes(), *phases)("sequence", kinds)


__all__ = ["TRACK", "Phase", "blocks", "lanes", "pairs", "sequence"]
