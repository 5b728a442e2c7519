"""Code for normalisation over groups of channels and its gradients, group by group: what a group
has is read from memory once, and from the cache after that.

A group is ``each`` rows (channels) of ``places`` numbers, one after the other. Sums are kept in
``_SUMS`` registers, added up at the end in a fixed order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ... import host
from ..loops import Text, functions
from ..row_sums import TURNS
from .few_rows import KINDS, Tile, shape

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_SUMS = 4


class _Groups(Tile):
    """Registers of numbers, and single ones."""

    def __init__(self, text: Text, kind: str, lanes: int, short: bool) -> None:
        """``short``: a row is a register at most."""
        super().__init__(kind, 1, lanes)
        self.text, self.short = text, short

    def number(self, how: str, *given: str) -> str:
        """An instruction on single numbers."""
        return self.text.let(f"{how} {self.name} {', '.join(given)}")

    def vector_of(self, how: str, *given: str) -> str:
        """An instruction on registers."""
        return self.text.let(f"{how} {self.vector} {', '.join(given)}")

    def at(self, base: str, index: str) -> str:
        return self.text.at(base, (index, str(self.size)))

    def one(self, base: str, index: str) -> str:
        """A single number from an array."""
        return self.text.let(f"load {self.name}, ptr {self.at(base, index)}, align {self.size}")

    def put_one(self, value: str, base: str, index: str) -> None:
        place = self.at(base, index)
        self.text.add(f"store {self.name} {value}, ptr {place}, align {self.size}")

    def root(self, value: str) -> str:
        return self.text.let(f"call {self.name} @llvm.sqrt.f{8 * self.size}({self.name} {value})")

    def head(self) -> str:
        root = f"declare {self.name} @llvm.sqrt.f{8 * self.size}({self.name})"
        return f"{super().head()}{root}\ndeclare i64 @llvm.smax.i64(i64, i64)\n"

    def walk(self, count: str, sums: int, body: Callable[..., list[str]]) -> list[str]:
        """``body(index, mask, sums) -> sums`` for all registers of ``count`` numbers; what the sums
        add up to."""
        text, lanes = self.text, self.lanes
        wide = _SUMS * lanes
        whole = text.let(f"srem i64 {count}, {wide}")
        whole = text.let(f"sub i64 {count}, {whole}")
        first, long = ("0", None) if not sums or self.size == 8 else self.long(whole, sums, body)
        totals = self.added(first, whole, sums, body)
        carried = [(self.vector, total) for total in totals] or [("i1", "0")]
        with text.loop(whole, count, lanes, carried) as turn:
            mask = self.mask_of(text, text.let(f"sub i64 {count}, {turn.at}"))
            turn.new = body(turn.at, mask, turn.values[:sums]) or turn.values
        last = turn.values[:sums]
        return [self.total(value) for value in (long(last) if long else last)]

    def walk_row(self, sums: int, body: Callable[..., list[str]]) -> list[str]:
        """``walk`` over the places of a channel: in the same bits where they are few."""
        if not self.short:
            return self.walk("%places", sums, body)
        mask = self.mask_of(self.text, "%places")
        found = body("0", mask, ["zeroinitializer"] * sums)
        return [self.total(value) for value in found]

    def added(self, first: str, end: str, sums: int, body: Callable[..., list[str]]) -> list[str]:
        """The sums over the numbers from ``first`` to ``end``, whole registers, without a mask."""
        text = self.text
        carried = [(self.vector, "zeroinitializer")] * (sums * _SUMS) or [("i1", "0")]
        with text.loop(first, end, _SUMS * self.lanes, carried) as turn:
            new: list[str] = []
            for k in range(_SUMS):
                index = text.let(f"add i64 {turn.at}, {k * self.lanes}")
                new += body(index, None, turn.values[k * sums : (k + 1) * sums])
            turn.new = new or turn.values
        return [self.folded(turn.values[k::sums]) for k in range(sums)]

    def long(
        self, whole: str, sums: int, body: Callable[..., list[str]]
    ) -> tuple[str, Callable[[list[str]], list[str]]]:
        """Blocks whose sums are added up in float64, but for the last: where that begins, and what
        joins its sums with them, which leaves them as they are where there is one block."""
        text, step = self.text, _SUMS * self.lanes * TURNS
        wide = f"<{self.lanes} x double>"
        least = text.let(f"call i64 @llvm.smax.i64(i64 {whole}, i64 1)")
        far = text.let(f"sdiv i64 {text.let(f'sub i64 {least}, 1')}, {step}")
        far = text.let(f"mul i64 {far}, {step}")

        def widened(old: str, value: str) -> str:
            value = text.let(f"fpext {self.vector} {value} to {wide}")
            return text.let(f"fadd {wide} {old}, {value}")

        with text.loop("0", far, step, [(wide, "zeroinitializer")] * sums) as block:
            end = text.let(f"add i64 {block.at}, {step}")
            found = self.added(block.at, end, sums, body)
            block.new = [widened(old, value) for old, value in zip(block.values, found)]
        past = list(block.values)

        def join(last: list[str]) -> list[str]:
            once = text.let(f"call i64 @llvm.smax.i64(i64 {far}, i64 1)")
            with text.loop("0", far, once, [(self.vector, value) for value in last]) as turn:
                turn.new = [
                    text.let(f"fptrunc {wide} {widened(old, value)} to {self.vector}")
                    for old, value in zip(past, turn.values)
                ]
            return list(turn.values)

        return far, join

    def folded(self, sums: list[str]) -> str:
        while len(sums) > 1:
            sums = [self.vector_of("fadd", a, b) for a, b in zip(sums[::2], sums[1::2])]
        return sums[0]

    def total(self, value: str) -> str:
        """What a register adds up to."""
        lanes = self.lanes
        while lanes > 1:
            kind, half, parts = f"<{lanes} x {self.name}>", lanes // 2, []
            for first in (0, half):
                order = ", ".join(f"i32 {first + k}" for k in range(half))
                parts.append(self.text.let(
                    f"shufflevector {kind} {value}, {kind} poison, <{half} x i32> <{order}>"
                ))  # fmt: skip
            value = self.text.let(f"fadd <{half} x {self.name}> {parts[0]}, {parts[1]}")
            lanes = half
        return self.text.let(f"extractelement <1 x {self.name}> {value}, i64 0")

    def masked(self, value: str, mask: str | None) -> str:
        """``value`` where the mask is, else zero."""
        if mask is None:
            return value
        zero = f"{self.vector} zeroinitializer"
        return self.text.let(f"select {self.mask} {mask}, {self.vector} {value}, {zero}")


def _forward(kind: str, lanes: int, short: bool) -> str:
    text = Text()
    t = _Groups(text, kind, lanes, short)
    names = ["ptr %x", "ptr %out", "ptr %means", "ptr %rstds", "ptr %weight", "ptr %bias"]
    names += ["i64 %from", "i64 %to", "i64 %groups", "i64 %each", "i64 %places"]
    with text.function("forward", *names, "double %eps.wide", "double %share.wide"):
        eps, share = _scalars(t)
        count = text.let("mul i64 %each, %places")
        with text.loop("%from", "%to", 1) as group:
            x, out = (t.at(base, text.let(f"mul i64 {group}, {count}")) for base in ("%x", "%out"))

            def add(index: str, mask: str | None, sums: list[str]) -> list[str]:
                return [t.vector_of("fadd", sums[0], t.load(text, t.at(x, index), mask))]

            near = t.number("fmul", t.walk(count, 1, add)[0], share)
            centre = t.spread(text, near)

            def squares(index: str, mask: str | None, sums: list[str]) -> list[str]:
                far = t.vector_of("fsub", t.load(text, t.at(x, index), mask), centre)
                far = t.masked(far, mask)
                return [t.fma(text, far, far, sums[0]), t.vector_of("fadd", sums[1], far)]

            both = [t.number("fmul", a, share) for a in t.walk(count, 2, squares)]
            spread = t.number("fsub", both[0], t.number("fmul", both[1], both[1]))
            low = text.let(f"fcmp olt {t.name} {spread}, 0.0")
            spread = text.let(f"select i1 {low}, {t.name} 0.0, {t.name} {spread}")
            rstd = t.number("fdiv", "1.0", t.root(t.number("fadd", spread, eps)))
            mean = t.number("fadd", near, both[1])
            t.put_one(mean, "%means", group)
            t.put_one(rstd, "%rstds", group)
            centre, first = t.spread(text, mean), _first_channel(text, group)
            with text.loop("0", "%each", 1) as row:
                channel, far = (
                    text.let(f"add i64 {first}, {row}"),
                    text.let(f"mul i64 {row}, %places"),
                )
                scale = t.number("fmul", rstd, t.one("%weight", channel))
                scale, shift = t.spread(text, scale), t.spread(text, t.one("%bias", channel))
                source, to = t.at(x, far), t.at(out, far)

                def write(index: str, mask: str | None, sums: list[str]) -> list[str]:
                    value = t.vector_of("fsub", t.load(text, t.at(source, index), mask), centre)
                    t.store(text, t.fma(text, value, scale, shift), t.at(to, index), mask)
                    return sums

                t.walk_row(0, write)
    return t.head() + str(text)


def _scalars(t: _Groups) -> tuple[str, str]:
    if t.size == 8:
        return "%eps.wide", "%share.wide"
    eps, share = (t.text.let(f"fptrunc double %{n}.wide to float") for n in ("eps", "share"))
    return eps, share


def _first_channel(text: Text, group: str) -> str:
    number = text.let(f"srem i64 {group}, %groups")
    return text.let(f"mul i64 {number}, %each")


def _backward(kind: str, lanes: int, short: bool) -> str:
    text = Text()
    t = _Groups(text, kind, lanes, short)
    names = ["ptr %g", "ptr %x", "ptr %means", "ptr %rstds", "ptr %weight", "ptr %dx"]
    names += ["ptr %of.g", "ptr %of.both"]
    names += ["i64 %from", "i64 %to", "i64 %groups", "i64 %each", "i64 %places"]
    with text.function("backward", *names, "double %eps.wide", "double %share.wide"):
        _, share = _scalars(t)
        count = text.let("mul i64 %each, %places")
        with text.loop("%from", "%to", 1) as group:
            begin = text.let(f"mul i64 {group}, {count}")
            g, x, dx = (t.at(base, begin) for base in ("%g", "%x", "%dx"))
            rstd, first = t.one("%rstds", group), _first_channel(text, group)
            centre = t.spread(text, t.one("%means", group))
            with text.loop("0", "%each", 1, [(t.name, "0.0")] * 2) as turn:
                turn.new = _sums(t, turn, group, first, (g, x), (centre, rstd))
            shift, slope = (t.number("fmul", t.number("fmul", v, share), rstd) for v in turn.values)
            shift = t.number("fsub", "-0.0", shift)
            slope = t.number("fsub", "-0.0", t.number("fmul", slope, rstd))
            shift, slope = t.spread(text, shift), t.spread(text, slope)
            with text.loop("0", "%each", 1) as row:
                far, channel = (
                    text.let(f"mul i64 {row}, %places"),
                    text.let(f"add i64 {first}, {row}"),
                )
                scale = t.spread(text, t.number("fmul", rstd, t.one("%weight", channel)))
                gs, xs, to = (t.at(base, far) for base in (g, x, dx))

                def write(index: str, mask: str | None, sums: list[str]) -> list[str]:
                    given, value = (t.load(text, t.at(base, index), mask) for base in (gs, xs))
                    value = t.fma(text, t.vector_of("fsub", value, centre), slope, shift)
                    t.store(text, t.fma(text, given, scale, value), t.at(to, index), mask)
                    return sums

                t.walk_row(0, write)
    return t.head() + str(text)


def _sums(t: _Groups, turn: Any, group: str, first: str, arrays: tuple, known: tuple) -> list[str]:
    """The sums of a channel, put where they belong; ``turn``'s with them, times the weight."""
    text, (centre, rstd) = t.text, known
    far = text.let(f"mul i64 {turn.at}, %places")
    gs, xs = (t.at(base, far) for base in arrays)

    def add(index: str, mask: str | None, sums: list[str]) -> list[str]:
        given, value = (t.load(text, t.at(base, index), mask) for base in (gs, xs))
        value = t.vector_of("fsub", value, centre)
        return [t.vector_of("fadd", sums[0], given), t.fma(text, given, value, sums[1])]

    of_g, of_both = t.walk_row(2, add)
    of_both = t.number("fmul", of_both, rstd)
    place = text.let(f"mul i64 {group}, %each")
    place = text.let(f"add i64 {place}, {turn.at}")
    t.put_one(of_g, "%of.g", place)
    t.put_one(of_both, "%of.both", place)
    weight = t.one("%weight", text.let(f"add i64 {first}, {turn.at}"))
    return [
        t.number("fadd", old, t.number("fmul", value, weight))
        for old, value in zip(turn.values, (of_g, of_both))
    ]


def is_short(kind: str, places: int) -> bool:
    """Whether so many places are a register at most."""
    return kind in KINDS and places <= shape(kind)[0]


@cache
def code(kind: str, short: bool = False) -> tuple[Callable, Callable] | None:
    """For "float32" or "float64" arrays (N, groups, each, places), in order:

    ``forward(x, out, means, rstds, weight, bias, from, to, groups, each, places, eps, share)`` and
    ``backward(g, x, means, rstds, weight, dx, of_g, of_both, from, to, groups, each, places, eps,
    share)`` for the groups ``from`` ... ``to`` of all samples'. ``share``: one over the numbers of
    a group; weight and bias: a number per channel; ``of_g``, ``of_both``: per channel of each
    sample, the sums of g and of g times the normalised x. ``short``: for few places
    (``is_short``), in the same bits.

    None where code cannot be made.
    """
    if "fma" not in host.cpu().features or kind not in KINDS:
        return None
    lanes, numbers = shape(kind)[0], [_NUMBER] * 5 + [ctypes.c_double] * 2
    forward = functions(_forward, kind, lanes, short)("forward", [_POINTER] * 6 + numbers)
    backward = functions(_backward, kind, lanes, short)("backward", [_POINTER] * 8 + numbers)
    return None if forward is None or backward is None else (forward, backward)


__all__ = ["code", "is_short"]
