"""Code for convolutions of small planes and their adjoints in the weights.

What is read is copied into a buffer with zeros around, row after row. There a weight meets all
places of a plane at one distance, so that a register holds neighbours of any rows: sums are made of
all numbers from the first place to the last, and those between the rows are left out at the end.

    convolve      a tile of some channels times some registers, all terms in order
    gradient      sums over the places of all samples, of some channels times some taps

A table of numbers (``CONVOLVE``, ``GRADIENT``, in bytes where not counts) tells where things are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ... import host
from ..loops import Text, functions
from .few_rows import KINDS, Tile, shape

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
CHANNELS, WIDE = (8, 4, 1), 2  # of a tile of sums: channels, registers
GROUP, TAPS = (4, 1), (3, 1)  # of a tile of gradients: channels, taps
COPY = ("plane", "rows", "width", "begin", "row", "column")  # bytes of a plane; where it goes
CONVOLVE = (
    *(f"x.{name}" for name in COPY),
    *("groups", "inward", "outward", "room"),  # channels of a group; bytes of a plane's copy
    *("terms", "table"),  # how many products a sum has; (distance, weight) of each, in bytes
    *("weight", "weights"),  # bytes between the weights of channels, and of groups
    *("parts", "part", "length"),  # stretches of places: how many, bytes apart, numbers of each
    *("y.plane", "y.rows", "y.width", "y.row", "y.column"),  # of a stretch, in the sums
    *("line", "sums"),  # bytes of a line of sums; where they are in the buffer
)
GRADIENT = (
    *(f"x.{name}" for name in COPY), *(f"g.{name}" for name in COPY),
    *("groups", "inward", "outward", "room", "line"),  # bytes of a plane's copies
    *("samples", "together"),  # all, and how many are copied at a time
    *("taps", "table", "length", "g.begins"),  # distances; numbers of a line; where lines begin
)  # fmt: skip


class _Planes(Tile):
    def __init__(self, text: Text, kind: str, lanes: int, names: tuple[str, ...]) -> None:
        super().__init__(kind, 1, lanes)
        self.text = text
        self.told = {
            name: text.let(f"load i64, ptr {text.at('%told', (str(k), '8'))}")
            for k, name in enumerate(names)
        }

    def times(self, *numbers: str) -> str:
        """A product of numbers, named ones among them."""
        found = [self.told.get(n, n) for n in numbers]
        value = found[0]
        for n in found[1:]:
            value = self.text.let(f"mul i64 {value}, {n}")
        return value

    def plus(self, a: str, b: str) -> str:
        return self.text.let(f"add i64 {a}, {b}")

    def far(self, base: str, *steps: tuple[str, str]) -> str:
        """An address: ``base`` and products (number, bytes of each, or the name of that)."""
        return self.text.at(base, *((n, self.told.get(s, s)) for n, s in steps))

    def there(self, base: str, name: str) -> str:
        return self.text.let(f"getelementptr i8, ptr {base}, i64 {self.told[name]}")

    def row(self, to: str, source: str, width: str, steps: tuple[str, str]) -> None:
        """``width`` numbers, with bytes between neighbours: some in order, which go by registers,
        others one by one."""
        text, item = self.text, str(self.size)
        alike = [text.let(f"icmp eq i64 {step}, {item}") for step in steps]
        near = text.let(f"and i1 {alike[0]}, {alike[1]}")
        together = text.let(f"select i1 {near}, i64 {width}, i64 0")
        with text.loop("0", together, self.lanes) as at:
            mask = self.mask_of(text, text.let(f"sub i64 {width}, {at}"))
            value = self.load(text, text.at(source, (at, item)), mask)
            self.store(text, value, text.at(to, (at, item)), mask)
        with text.loop(together, width, 1) as at:
            place = text.at(source, (at, steps[1]))
            value = text.let(f"load {self.name}, ptr {place}, align {self.size}")
            place = text.at(to, (at, steps[0]))
            text.add(f"store {self.name} {value}, ptr {place}, align {self.size}")

    def plane(self, to: str, source: str, which: str) -> None:
        """Copy a plane into its room."""
        told, text, item = self.told, self.text, str(self.size)
        to = self.there(to, f"{which}.begin")
        line = self.times(f"{which}.width", item)
        with text.loop("0", told[f"{which}.rows"], 1) as row:
            into, given = self.far(to, (row, f"{which}.row")), text.at(source, (row, line))
            self.row(into, given, told[f"{which}.width"], (told[f"{which}.column"], item))

    def odd(self, values: list[str]) -> None:
        """Note in the buffer's first word where something is not finite."""
        text, found = self.text, None
        for value in values:
            none = text.let(f"fsub {self.vector} {value}, {value}")
            here = text.let(f"fcmp uno {self.vector} {none}, {none}")
            found = here if found is None else text.let(f"or {self.mask} {found}, {here}")
        bits = text.let(f"bitcast {self.mask} {found} to i{self.lanes}")
        some = text.let(f"icmp ne i{self.lanes} {bits}, 0")
        old = text.let("load i64, ptr %buffer")
        new = text.let(f"or i64 {old}, {text.let(f'zext i1 {some} to i64')}")
        text.add(f"store i64 {new}, ptr %buffer")

    def tiles(self, sizes: tuple[int, ...], first: str, end: str, body: Callable) -> None:
        """``body(from, size)`` for pieces of the sizes, the largest first."""
        for size in sizes:
            many = self.text.let(f"sub i64 {end}, {first}")
            whole = self.text.let(f"sub i64 {many}, {self.text.let(f'srem i64 {many}, {size}')}")
            stop = self.plus(first, whole)
            with self.text.loop(first, stop, size) as at:
                body(at, size)
            first = stop


def _convolve(kind: str, lanes: int) -> str:
    text = Text()
    with text.function("convolve", "ptr %y", "ptr %x", "ptr %w", "ptr %bias", "ptr %buffer",
                       "ptr %told", "i64 %from", "i64 %to"):  # fmt: skip
        t = _Planes(text, kind, lanes, CONVOLVE)
        told, item = t.told, str(t.size)
        planes = text.let("getelementptr i8, ptr %buffer, i64 64")
        sums, group_size = t.there("%buffer", "sums"), t.times("inward", "x.plane")
        out_group = t.times("outward", "y.plane")
        with text.loop("%from", "%to", 1) as sample, text.loop("0", told["groups"], 1) as group:
            number = t.plus(t.times(sample, "groups"), group)
            source, y = text.at("%x", (number, group_size)), text.at("%y", (number, out_group))
            with text.loop("0", told["inward"], 1) as channel:
                t.plane(t.far(planes, (channel, "room")), t.far(source, (channel, "x.plane")), "x")
            w, first = t.far("%w", (group, "weights")), t.times(group, "outward")

            def some(channel: str, count: int) -> None:
                bias = text.at("%bias", (t.plus(first, channel), item))
                weights = t.far(w, (channel, "weight"))
                with text.loop("0", told["parts"], 1) as part:
                    x = t.far(planes, (part, "part"))

                    def block(at: str, wide: int) -> None:
                        _sums(t, (text.at(x, (at, item)), weights, bias), count, wide,
                              text.at(sums, (at, item)))  # fmt: skip

                    wide = WIDE * lanes
                    end = t.plus(told["length"], str(lanes - 1))
                    end = text.let(f"sub i64 {end}, {text.let(f'srem i64 {end}, {lanes}')}")
                    whole = text.let(f"sub i64 {end}, {text.let(f'srem i64 {end}, {wide}')}")
                    with text.loop("0", whole, wide) as at:
                        block(at, WIDE)
                    with text.loop(whole, end, lanes) as at:
                        block(at, 1)
                    line = t.times("y.width", item)
                    rows = t.times(part, "y.rows")
                    with text.loop("0", str(count), 1) as k:
                        to = t.far(y, (t.plus(channel, k), "y.plane"), (rows, line))
                        given = t.far(sums, (k, "line"))
                        with text.loop("0", told["y.rows"], 1) as row:
                            t.row(text.at(to, (row, line)), t.far(given, (row, "y.row")),
                                  told["y.width"], (item, told["y.column"]))  # fmt: skip

            t.tiles(CHANNELS, "0", told["outward"], some)
    return t.head() + str(text)


def _sums(t: _Planes, given: tuple[str, str, str], count: int, wide: int, to: str) -> None:
    """Sums of ``count`` channels at some registers of places, from the biases on."""
    text, told, (x, w, bias) = t.text, t.told, given
    starts = []
    for k in range(count):
        place = text.at(bias, (str(k), str(t.size)))
        start = t.spread(text, text.let(f"load {t.name}, ptr {place}, align {t.size}"))
        starts += [(t.vector, start)] * wide
    weights = [t.far(w, (str(k), "weight")) for k in range(count)]
    table = text.let(f"inttoptr i64 {told['table']} to ptr")
    with text.loop("0", told["terms"], 1, starts) as turn:
        entry = text.at(table, (turn.at, "16"))
        distance = text.let(f"load i64, ptr {entry}")
        weight = text.let(f"load i64, ptr {text.let(f'getelementptr i8, ptr {entry}, i64 8')}")
        here = text.let(f"getelementptr i8, ptr {x}, i64 {distance}")
        registers = [
            t.load(
                text, text.let(f"getelementptr i8, ptr {here}, i64 {k * t.lanes * t.size}"), None
            )
            for k in range(wide)
        ]
        turn.new = []
        for k in range(count):
            place = text.let(f"getelementptr i8, ptr {weights[k]}, i64 {weight}")
            number = text.let(f"load {t.name}, ptr {place}, align {t.size}")
            number = t.spread(text, number)
            for j, values in enumerate(registers):
                turn.new.append(t.fma(text, number, values, turn.values[k * wide + j]))
    t.odd(turn.values)
    for k in range(count):
        for j in range(wide):
            place = t.far(to, (str(k), "line"), (str(j * t.lanes), str(t.size)))
            t.store(text, turn.values[k * wide + j], place, None)


def _gradient(kind: str, lanes: int) -> str:
    text = Text()
    with text.function("gradient", "ptr %dw", "ptr %g", "ptr %x", "ptr %buffer", "ptr %told",
                       "i64 %from", "i64 %to"):  # fmt: skip
        t = _Planes(text, kind, lanes, GRADIENT)
        told = t.told
        planes, lines = (
            text.let("getelementptr i8, ptr %buffer, i64 64"), t.there("%buffer", "g.begins")
        )  # fmt: skip
        channels, outer = t.times("groups", "inward"), t.times("groups", "outward")
        sample, line = t.times(channels, "room"), t.times(outer, "line")
        table = text.let(f"inttoptr i64 {told['table']} to ptr")
        with text.loop("0", told["samples"], told["together"]) as begin:
            far = t.plus(begin, told["together"])
            near = text.let(f"icmp slt i64 {far}, {told['samples']}")
            far = text.let(f"select i1 {near}, i64 {far}, i64 {told['samples']}")
            count = text.let(f"sub i64 {far}, {begin}")
            with text.loop("0", t.times(count, channels), 1) as k:
                at = t.plus(t.times(begin, channels), k)
                t.plane(t.far(planes, (k, "room")), t.far("%x", (at, "x.plane")), "x")
            with text.loop("0", t.times(count, outer), 1) as k:
                at = t.plus(t.times(begin, outer), k)
                t.plane(t.far(lines, (k, "line")), t.far("%g", (at, "g.plane")), "g")
            with text.loop("0", told["groups"], 1) as group:
                inner, first = t.times(group, "inward"), t.times(group, "outward")

                def some(channel: str, many: int) -> None:
                    number = t.plus(first, channel)
                    g = t.far(lines, (number, "line"))
                    with text.loop("0", told["inward"], 1) as c:
                        x = t.far(planes, (t.plus(inner, c), "room"))
                        place = t.plus(t.times(number, "inward"), c)

                        def taps(tap: str, wide: int) -> None:
                            at = t.plus(t.times(place, "taps"), tap)
                            to = text.at("%dw", (at, str(t.size)))
                            _dots(t, (g, x, text.at(table, (tap, "8"))), many, wide,
                                  (sample, line, count), (to, begin))  # fmt: skip

                        t.tiles(TAPS, "0", told["taps"], taps)

                t.tiles(GROUP, "%from", "%to", some)
    add = f"declare {t.name} @llvm.vector.reduce.fadd.{t.bits}({t.name}, {t.vector})\n"
    return t.head() + add + str(text)


def _dots(
    t: _Planes, given: tuple[str, str, str], many: int, wide: int, over: tuple[str, str, str],
    where: tuple[str, str],
) -> None:  # fmt: skip
    """Sums over the places of some samples, of ``many`` channels by ``wide`` taps."""
    text, told, (g, x, table) = t.text, t.told, given
    size, (sample, line, count), (to, begin) = str(t.size), over, where
    distances = [text.let(f"load i64, ptr {text.at(table, (str(k), '8'))}") for k in range(wide)]
    zeros = [(t.vector, "zeroinitializer")] * (many * wide)
    with text.loop("0", count, 1, zeros) as each:
        gs = [t.far(g, (each.at, line), (str(k), "line")) for k in range(many)]
        xs = [
            text.let(f"getelementptr i8, ptr {text.at(x, (each.at, sample))}, i64 {d}")
            for d in distances
        ]
        carried = [(t.vector, value) for value in each.values]
        with text.loop("0", told["length"], t.lanes, carried) as turn:
            left, right = (
                [t.load(text, text.at(p, (turn.at, size)), None) for p in places]
                for places in (gs, xs)
            )
            turn.new = [
                t.fma(text, a, b, turn.values[k * wide + j])
                for k, a in enumerate(left) for j, b in enumerate(right)
            ]  # fmt: skip
        each.new = list(turn.values)
    t.odd(each.values)
    first = text.let(f"icmp eq i64 {begin}, 0")
    weights = t.times("inward", "taps", size)
    for k in range(many):
        for j in range(wide):
            total = text.let(
                f"call reassoc {t.name} @llvm.vector.reduce.fadd.{t.bits}({t.name} -0.0, "
                f"{t.vector} {each.values[k * wide + j]})"
            )
            place = text.at(to, (str(k), weights), (str(j), size))
            old = text.let(f"load {t.name}, ptr {place}, align {t.size}")
            both = text.let(f"fadd {t.name} {old}, {total}")
            value = text.let(f"select i1 {first}, {t.name} {total}, {t.name} {both}")
            text.add(f"store {t.name} {value}, ptr {place}, align {t.size}")


@cache
def lanes(kind: str) -> int:
    """Numbers of a register."""
    return shape(kind)[0]


@cache
def code(kind: str) -> tuple[Any, Any] | None:
    """``convolve(y, x, w, bias, buffer, told, from, to)`` for samples ``from`` ... ``to``, and
    ``gradient(dw, g, x, buffer, told, from, to)`` for those channels of each group. Arrays in
    order; ``buffer`` has a word, which is set where a result is not finite, then 56 bytes, then
    zeros. None where code cannot be made."""
    if "fma" not in host.cpu().features or kind not in KINDS:
        return None
    find = functions(_convolve, kind, lanes(kind))
    convolve = find("convolve", [_POINTER] * 6 + [_NUMBER] * 2)
    find = functions(_gradient, kind, lanes(kind))
    gradient = find("gradient", [_POINTER] * 5 + [_NUMBER] * 2)
    return None if convolve is None or gradient is None else (convolve, gradient)


__all__ = ["CONVOLVE", "COPY", "GRADIENT", "code", "lanes"]
