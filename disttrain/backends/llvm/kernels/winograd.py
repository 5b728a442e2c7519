"""Code for convolutions by Winograd's minimal filtering, F(2, 3): two results of three weights by
four products in place of six, along one axis or two.

    forward     transforms x, multiplies that with transformed weights, and transforms it to y
    backward    transforms x and g, and adds up their products: of transformed weights the gradient

Some units of tiles at a time, so that all stays in a cache. float32 only. (A. Lavin and S. Gray,
"Fast Algorithms for Convolutional Neural Networks", 2016. Their measurements, and ours: no less
precise than long sums of products.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

from ..loops import Text, functions
from . import implicit_product
from .implicit_product import Tile
from .winograd_tiles import UNIT, Code, Shape, gradients, inputs, outputs

WIDE = 2  # registers of tiles, or of channels, at a time
_POINTER = ctypes.c_void_p


def rows(count: int) -> int:
    """How many rows of ``count`` a tile of registers takes: all, or an equal share of them."""
    most = implicit_product.tile("float32")[0]
    return -(-count // -(-count // most))


def lanes() -> int:
    """Floats of a register."""
    return implicit_product.tile("float32")[1]


def _multiply(code: Code, count: int) -> None:
    """m[o, t] = the sum over parts and terms of u[term, o] v[term, t], for each product."""
    text, lanes = code.text, code.lanes
    tile = Tile("float32", WIDE, count, lanes, None)
    names = ["ptr %m", "ptr %u", "ptr %v", "ptr %entries", "i64 %n", "i64 %parts", "ptr %terms",
             "i64 %k", "i64 %tiles", "i64 %blocks", "i64 %row", "i64 %plane"]  # fmt: skip
    with text.function("multiply", *names):
        size = text.let("shl i64 %parts, 4")
        size = text.let(f"add i64 {size}, 8")
        with (
            text.loop("0", "%n", 1) as entry,
            text.loop("0", "%blocks", count) as block,
            text.loop("0", "%tiles", WIDE * lanes) as at,
        ):
            table = text.at("%entries", (entry, size))
            sums = _parts(text, tile, table, block, at)
            to = text.let(f"load i64, ptr {table}, align 8")
            m = text.at("%m", (to, "1"), (block, "%plane"), (at, "4"))
            for r in range(count):
                line = text.at(m, (str(r), "%plane"))
                for c in range(WIDE):
                    tile.store(text, sums[r * WIDE + c], line, c)


def _parts(text: Text, tile: Tile, table: str, block: str, at: str) -> list[str]:
    """The sums of products of all parts of an entry."""
    zeros = [(tile.vector, "zeroinitializer")] * (WIDE * tile.rows)
    with text.loop("0", "%parts", 1, zeros) as part:
        here = text.at(table, (part.at, "16"))
        u, v = (text.let(f"load i64, ptr {text.at(here, (str(k), '8'))}, align 8") for k in (1, 2))
        u, v = text.at("%u", (u, "1"), (block, "4")), text.at("%v", (v, "1"), (at, "4"))
        with text.loop("0", "%k", 1, [(tile.vector, value) for value in part.values]) as term:
            offset = text.let(f"load i64, ptr {text.at('%terms', (term.at, '8'))}, align 8")
            b, far = text.at(v, (offset, "1")), text.let(f"mul i64 {term.at}, %row")
            term.new = _products(text, tile, term.values, u, far, b, 4)
        part.new = term.values
    return part.values


def _products(
    text: Text, tile: Tile, sums: list[str], a: str, far: str, b: str, step: int
) -> list[str]:
    """``sums`` and those of numbers at ``a`` + ``far``, ``step`` bytes apart, times registers."""
    columns, wide, made = [tile.load(text, b, c) for c in range(tile.wide)], tile.wide, []
    for r in range(tile.rows):
        made += tile.row(text, sums[r * wide : (r + 1) * wide], columns, a, far, r * step)
    return made


def _gather(code: Code, count: int, wide: int, plane: int) -> None:
    """u[c, o] += the sum over tiles of v[c, tile] t[tile, o], for each entry."""
    text, lanes = code.text, code.lanes
    tile = Tile("float32", wide, count, lanes, None)
    names = ["ptr %u", "ptr %v", "ptr %t", "ptr %entries", "i64 %n", "i64 %blocks", "i64 %first",
             "i64 %end", "i64 %tiles", "i64 %row"]  # fmt: skip
    with (
        text.function(f"gather{wide}", *names),
        text.loop("0", "%n", 1) as entry,
        text.loop("0", "%blocks", count) as block,
        text.loop("%first", "%end", wide * lanes) as channel,
    ):
        table = text.at("%entries", (entry, "24"))
        to, v, t = (
            text.let(f"load i64, ptr {text.at(table, (str(k), '8'))}, align 8") for k in range(3)
        )
        v = text.at("%v", (v, "1"), (block, str(plane)))
        t = text.at("%t", (t, "1"), (channel, "4"))
        zeros = [(tile.vector, "zeroinitializer")] * (wide * count)
        with text.loop("0", "%tiles", 1, zeros) as at:
            far, b = text.let(f"mul i64 {at.at}, 4"), text.at(t, (at.at, "%row"))
            at.new = _products(text, tile, at.values, v, far, b, plane)
        u = text.at("%u", (to, "1"), (block, "%row"), (channel, "4"))
        for r in range(count):
            line = text.at(u, (str(r), "%row"))
            for c in range(wide):
                old = tile.load(text, line, c)
                new = text.let(f"fadd {tile.vector} {old}, {at.values[r * wide + c]}")
                tile.store(text, new, line, c)


# --- all of it, for units after units ----------------------------------------------------------
_UNITS = "units first end step all reach row x xc xh h width dh tiles plane apart channels"
FORWARD = (*_UNITS.split(), *"""v m u y bias bad terms tables many padded uc yc down position outer
    groups xg ug yg""".split())  # fmt: skip
"""What ``forward`` is told, as a table of numbers. Addresses: ``units``, ``x`` with ``channels``
``xc`` bytes apart and rows ``xh``, of which there are ``h`` of ``width``; room for ``v`` and ``m``;
transformed weights ``u`` with terms ``uc`` apart, ``padded`` of them; ``y`` with ``outer`` channels
``yc`` apart and the next row of a tile ``down``; a ``bias`` for each channel; ``bad``: a register
for each unit from ``first`` on, to which zeros are added: nan where a result is not finite;
``terms``: where channels are in v; ``tables``: address, length and parts of as ``many`` tables of
products. A product: its place in m, then for each part those in u and in v. Units
from ``first`` to ``end`` are worked on, ``step`` at a time with ``reach`` more of ``all``; one is
``row`` tiles: ``tiles`` for each phase. ``dh``: rows of x between those of a tile. A channel of v
and m has ``plane`` bytes, what is of one product ``apart`` and ``position``. ``xg``, ``ug``,
``yg``: bytes from one of ``groups`` to the next."""
BACKWARD = (*_UNITS.split(), *"""v t u g entries length blocks whole padded uc gc down position
    outer""".split())  # fmt: skip
"""What ``backward`` is told: as ``forward``, of g in place of y; ``t``: room for tiles of g, of
``padded`` channels each; ``u``: where sums are added up, of ``blocks`` channels ``uc`` bytes apart;
``entries``: places in u, in v and in t, a ``length`` of them; ``whole``: how many of the ``padded``
channels are taken by two registers."""


class _Job:
    """A function that is told all by one table, for units after units."""

    def __init__(self, text: Text, names: Sequence[str]) -> None:
        self.text, self.names = text, list(names)
        self.known = {name: self.told(name) for name in names}

    def told(self, name: str) -> str:
        """A number of the table."""
        place = self.text.at("%job", (str(self.names.index(name)), "8"))
        return self.text.let(f"load i64, ptr {place}, align 8")

    def __getitem__(self, name: str) -> str:
        return self.known[name]

    def times(self, a: str, b: str) -> str:
        """The product of two numbers."""
        return self.text.let(f"mul i64 {a}, {b}")

    def sum(self, a: str, b: str) -> str:
        return self.text.let(f"add i64 {a}, {b}")

    def least(self, a: str, b: str) -> str:
        near = self.text.let(f"icmp slt i64 {a}, {b}")
        return self.text.let(f"select i1 {near}, i64 {a}, i64 {b}")

    def call(self, name: str, kinds: str, *given: str) -> None:
        """Call one of the functions; ``kinds``: p for an address."""
        values = [
            f"ptr {self.text.let(f'inttoptr i64 {value} to ptr')}"
            if kind == "p"
            else f"i64 {value}"
            for kind, value in zip(kinds, given, strict=True)
        ]
        self.text.add(f"call void @{name}({', '.join(values)})")

    def read(self, x: str, at: str) -> tuple[str, str]:
        """Transform some of x; how many units from ``at`` on, and the address of the first."""
        count = self.least(self["step"], self.text.let(f"sub i64 {self['end']}, {at}"))
        more = self.least(self.sum(count, self["reach"]),
                          self.text.let(f"sub i64 {self['all']}, {at}"))  # fmt: skip
        units = self.sum(self["units"], self.times(at, str(8 * len(UNIT))))
        rest = ("channels", "xc", "xh", "h", "width", "dh", "tiles", "plane", "apart")
        self.call("inputs", "pppiiiiiiiiii", self["v"], x, units, more, *(self[n] for n in rest))
        return count, units


def _forward(shape: Shape, count: int, lanes: int) -> str:
    code = Code(shape, lanes)
    text = code.text
    inputs(code)
    _multiply(code, count)
    outputs(code)
    with text.function("run", "ptr %job"):
        job = _Job(text, FORWARD)
        with text.loop("0", job["groups"], 1) as group:
            x, u, y = (job.sum(job[n], job.times(group, job[f"{n}g"])) for n in "xuy")
            bias = job.sum(job["bias"], job.times(group, job.times(job["outer"], "4")))
            with text.loop(job["first"], job["end"], job["step"]) as at:
                some, units = job.read(x, at)
                with text.loop("0", job["many"], 1) as which:
                    table = text.at(text.let(f"inttoptr i64 {job['tables']} to ptr"), (which, "24"))
                    entries, length, parts = (code.number(table, k) for k in range(3))
                    job.call("multiply", "ppppiipiiiii", job["m"], u, job["v"], entries, length,
                             parts, job["terms"], job["channels"], job.times(some, job["row"]),
                             job["padded"], job["uc"], job["plane"])  # fmt: skip
                bad = text.let(f"sub i64 {at}, {job['first']}")
                bad = job.sum(job["bad"], job.times(bad, str(4 * lanes)))
                job.call("outputs", "pppiiiiiiipp", y, job["m"], units, some, job["outer"],
                         job["yc"], job["down"], job["tiles"], job["plane"], job["position"], bias,
                         bad)  # fmt: skip
    return str(code)


def _backward(shape: Shape, count: int, plane: int, lanes: int) -> str:
    code = Code(shape, lanes)
    text = code.text
    inputs(code)
    gradients(code)
    for wide in (1, WIDE):
        _gather(code, count, wide, plane)
    with text.function("run", "ptr %job"):
        job = _Job(text, BACKWARD)
        with text.loop(job["first"], job["end"], job["step"]) as at:
            some, units = job.read(job["x"], at)
            job.call("gradients", "pppiiiiiii", job["t"], job["g"], units, some, job["outer"],
                     job["gc"], job["down"], job["tiles"], job["uc"], job["position"])  # fmt: skip
            tiles = job.times(some, job["row"])
            for wide, first, end in ((WIDE, "0", job["whole"]), (1, job["whole"], job["padded"])):
                job.call(f"gather{wide}", "ppppiiiiii", job["u"], job["v"], job["t"],
                         job["entries"], job["length"], job["blocks"], first, end, tiles,
                         job["uc"])  # fmt: skip
    return str(code)


def _run(make: Callable[..., str], *given: object) -> Callable | None:
    if "fma" not in implicit_product.host.cpu().features:
        return None
    return functions(make, *given, lanes())("run", [_POINTER])


@cache
def forward(shape: Shape, count: int) -> Callable | None:
    """``run(table)``, of the numbers ``FORWARD``: a convolution, whose products are taken of
    ``count`` channels at a time. None where code cannot be made."""
    return _run(_forward, shape, count)


@cache
def backward(shape: Shape, count: int, plane: int) -> Callable | None:
    """``run(table)``, of the numbers ``BACKWARD``: sums over tiles of x and g, of ``count``
    channels of x at a time, which are ``plane`` bytes apart. None where code cannot be made."""
    return _run(_backward, shape, count, plane)


__all__ = ["BACKWARD", "FORWARD", "UNIT", "Shape", "backward", "forward", "lanes", "rows"]
