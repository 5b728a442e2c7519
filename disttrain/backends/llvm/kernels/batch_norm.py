"""Code for normalisation over all but the channels of (N, C, places) and its gradients, channel by
channel: what a channel has is read from memory once, and from the cache after that.

Everything is computed in float64, whatever the type of the arrays. The sums of a channel are kept
in ``_SUMS`` registers from sample to sample, and added up at the end in a fixed order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

from ... import host
from ..loops import Text, functions
from .few_rows import KINDS

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_SUMS = 4
_ROOT = "declare double @llvm.sqrt.f64(double)\n"


class _Channels:
    """Registers of float64, of which memory holds another type perhaps."""

    def __init__(self, text: Text, kind: str, lanes: int) -> None:
        self.text, self.lanes = text, lanes
        self.name, self.size = KINDS[kind]
        self.narrow, self.wide = f"<{lanes} x {self.name}>", f"<{lanes} x double>"
        self.mask = f"<{lanes} x i1>"
        self.bits = f"v{lanes}f{8 * self.size}"

    def head(self) -> str:
        narrow, mask = self.narrow, self.mask
        return (
            f"declare {narrow} @llvm.masked.load.{self.bits}.p0(ptr, i32, {mask}, {narrow})\n"
            f"declare void @llvm.masked.store.{self.bits}.p0({narrow}, ptr, i32, {mask})\n" + _ROOT
        )

    def of(self, how: str, *given: str) -> str:
        """An instruction on registers."""
        return self.text.let(f"{how} {self.wide} {', '.join(given)}")

    def number(self, how: str, *given: str) -> str:
        """An instruction on single numbers."""
        return self.text.let(f"{how} double {', '.join(given)}")

    def cast(self, value: str, how: str, wide: str, narrow: str) -> str:
        """Between the type of memory and float64."""
        if self.size == 8:
            return value
        kinds = (narrow, wide) if how == "fpext" else (wide, narrow)
        return self.text.let(f"{how} {kinds[0]} {value} to {kinds[1]}")

    def load(self, base: str, index: str, mask: str | None) -> str:
        place = self.text.at(base, (index, str(self.size)))
        if mask is None:
            value = self.text.let(f"load {self.narrow}, ptr {place}, align {self.size}")
        else:
            value = self.text.let(
                f"call {self.narrow} @llvm.masked.load.{self.bits}.p0(ptr {place}, "
                f"i32 {self.size}, {self.mask} {mask}, {self.narrow} zeroinitializer)"
            )
        return self.cast(value, "fpext", self.wide, self.narrow)

    def store(self, value: str, base: str, index: str, mask: str | None) -> None:
        value = self.cast(value, "fptrunc", self.wide, self.narrow)
        place = self.text.at(base, (index, str(self.size)))
        if mask is None:
            self.text.add(f"store {self.narrow} {value}, ptr {place}, align {self.size}")
            return
        self.text.add(
            f"call void @llvm.masked.store.{self.bits}.p0({self.narrow} {value}, ptr {place}, "
            f"i32 {self.size}, {self.mask} {mask})"
        )

    def one(self, base: str, index: str) -> str:
        place = self.text.at(base, (index, str(self.size)))
        value = self.text.let(f"load {self.name}, ptr {place}, align {self.size}")
        return self.cast(value, "fpext", "double", self.name)

    def put_one(self, value: str, base: str, index: str) -> None:
        value = self.cast(value, "fptrunc", "double", self.name)
        place = self.text.at(base, (index, str(self.size)))
        self.text.add(f"store {self.name} {value}, ptr {place}, align {self.size}")

    def spread(self, number: str) -> str:
        """A register of one number."""
        one = self.text.let(f"insertelement {self.wide} poison, double {number}, i64 0")
        return self.text.let(
            f"shufflevector {self.wide} {one}, {self.wide} poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )

    def within(self, count: str) -> str:
        """The first ``count`` of a register."""
        kind = f"<{self.lanes} x i64>"
        one = self.text.let(f"insertelement {kind} poison, i64 {count}, i64 0")
        every = self.text.let(
            f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer"
        )
        numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
        return self.text.let(f"icmp slt {kind} <{numbers}>, {every}")

    def masked(self, value: str, mask: str | None) -> str:
        """``value`` where the mask is, else zero."""
        if mask is None:
            return value
        zero = f"{self.wide} zeroinitializer"
        return self.text.let(f"select {self.mask} {mask}, {self.wide} {value}, {zero}")

    def walk(self, channel: str, sums: int, body: Callable[..., Sequence[str]]) -> list[str]:
        """``body(place, mask, sums) -> sums`` for all registers of a channel, sample by sample;
        what the sums add up to. ``place`` is counted from where arrays begin."""
        text, lanes = self.text, self.lanes
        wide = _SUMS * lanes
        whole = text.let(f"sub i64 %places, {text.let(f'srem i64 %places, {wide}')}")
        carried = [(self.wide, "zeroinitializer")] * (sums * _SUMS) or [("i1", "0")]
        with text.loop("0", "%n", 1, carried) as sample:
            row = text.let(f"mul i64 {sample.at}, %c")
            row = text.let(f"mul i64 {text.let(f'add i64 {row}, {channel}')}, %places")
            inside = [(kind, value) for (kind, _), value in zip(carried, sample.values)]
            with text.loop("0", whole, wide, inside) as turn:
                new: list[str] = []
                for k in range(_SUMS):
                    place = text.let(f"add i64 {row}, {turn.at}")
                    place = text.let(f"add i64 {place}, {k * lanes}")
                    new += body(place, None, turn.values[k * sums : (k + 1) * sums])
                turn.new = new or turn.values
            first = list(zip((kind for kind, _ in carried), turn.values))[: max(sums, 1)]
            with text.loop(whole, "%places", lanes, first) as rest:
                mask = self.within(text.let(f"sub i64 %places, {rest.at}"))
                place = text.let(f"add i64 {row}, {rest.at}")
                rest.new = list(body(place, mask, rest.values[:sums])) or rest.values
            sample.new = [*rest.values, *turn.values[max(sums, 1) :]]
        return [self.total(sample.values[k::sums]) for k in range(sums)]

    def total(self, values: list[str]) -> str:
        """What registers add up to."""
        while len(values) > 1:
            values = [self.of("fadd", a, b) for a, b in zip(values[::2], values[1::2])]
        value, lanes = values[0], self.lanes
        while lanes > 1:
            kind, half, parts = f"<{lanes} x double>", lanes // 2, []
            for first in (0, half):
                order = ", ".join(f"i32 {first + k}" for k in range(half))
                parts.append(self.text.let(
                    f"shufflevector {kind} {value}, {kind} poison, <{half} x i32> <{order}>"
                ))  # fmt: skip
            value = self.text.let(f"fadd <{half} x double> {parts[0]}, {parts[1]}")
            lanes = half
        return self.text.let(f"extractelement <1 x double> {value}, i64 0")

    def rstd(self, variance: str) -> str:
        root = self.number("fadd", variance, "%eps")
        return self.number(
            "fdiv", "1.0", self.text.let(f"call double @llvm.sqrt.f64(double {root})")
        )


_NUMBERS = ["i64 %from", "i64 %to", "i64 %n", "i64 %c", "i64 %places", "double %eps"]


def _forward(kind: str, lanes: int) -> str:
    text = Text()
    t = _Channels(text, kind, lanes)
    arrays = ["ptr %x", "ptr %out", "ptr %means", "ptr %variances", "ptr %weight", "ptr %bias"]
    with text.function("forward", *arrays, *_NUMBERS):
        count = text.let(f"sitofp i64 {text.let('mul i64 %n, %places')} to double")
        with text.loop("%from", "%to", 1) as channel:
            totals = t.walk(
                channel, 1, lambda at, mask, s: [t.of("fadd", s[0], t.load("%x", at, mask))]
            )
            mean = t.number("fdiv", totals[0], count)
            centre = t.spread(mean)

            def squares(at: str, mask: str | None, s: list[str]) -> list[str]:
                far = t.masked(t.of("fsub", t.load("%x", at, mask), centre), mask)
                return [t.of("fadd", s[0], t.of("fmul", far, far))]

            variance = t.number("fdiv", t.walk(channel, 1, squares)[0], count)
            t.put_one(mean, "%means", channel)
            t.put_one(variance, "%variances", channel)
            scale = t.spread(t.number("fmul", t.rstd(variance), t.one("%weight", channel)))
            shift = t.spread(t.one("%bias", channel))

            def write(at: str, mask: str | None, s: list[str]) -> list[str]:
                far = t.of("fsub", t.load("%x", at, mask), centre)
                value = t.of("fadd", t.of("fmul", far, scale), shift)
                t.store(value, "%out", at, mask)
                return s

            t.walk(channel, 0, write)
    return t.head() + str(text)


def _backward(kind: str, lanes: int) -> str:
    text = Text()
    t = _Channels(text, kind, lanes)
    arrays = ["ptr %g", "ptr %x", "ptr %means", "ptr %variances", "ptr %weight", "ptr %dx"]
    arrays += ["ptr %dweight", "ptr %dbias"]
    with text.function("backward", *arrays, *_NUMBERS):
        count = text.let(f"sitofp i64 {text.let('mul i64 %n, %places')} to double")
        whole = text.let("icmp ne ptr %dx, null")
        times = text.let(f"zext i1 {whole} to i64")
        with text.loop("%from", "%to", 1) as channel:
            centre = t.spread(t.one("%means", channel))

            def add(at: str, mask: str | None, s: list[str]) -> list[str]:
                g = t.load("%g", at, mask)
                far = t.masked(t.of("fsub", t.load("%x", at, mask), centre), mask)
                return [t.of("fadd", s[0], g), t.of("fadd", s[1], t.of("fmul", g, far))]

            of_g, of_both = t.walk(channel, 2, add)
            rstd = t.rstd(t.one("%variances", channel))
            normal = t.number("fmul", of_both, rstd)
            t.put_one(normal, "%dweight", channel)
            t.put_one(of_g, "%dbias", channel)
            slope = t.spread(t.number("fdiv", t.number("fmul", normal, rstd), count))
            mean = t.spread(t.number("fdiv", of_g, count))
            scale = t.spread(t.number("fmul", rstd, t.one("%weight", channel)))

            def write(at: str, mask: str | None, s: list[str]) -> list[str]:
                far = t.of("fsub", t.load("%x", at, mask), centre)
                value = t.of("fsub", t.of("fsub", t.load("%g", at, mask), mean),
                             t.of("fmul", far, slope))  # fmt: skip
                t.store(t.of("fmul", value, scale), "%dx", at, mask)
                return s

            with text.loop("0", times, 1):
                t.walk(channel, 0, write)
    return t.head() + str(text)


@cache
def code(kind: str) -> tuple[Callable, Callable] | None:
    """For "float32" or "float64" arrays (N, C, places), in order:

    ``forward(x, out, means, variances, weight, bias, from, to, n, c, places, eps)`` and
    ``backward(g, x, means, variances, weight, dx, dweight, dbias, from, to, n, c, places, eps)``
    for the channels ``from`` ... ``to``; what there is per channel is of the same type, and no
    ``dx`` is made where that is None.

    None where code cannot be made.
    """
    if kind not in KINDS:
        return None
    lanes = host.vector_bits(host.cpu().features) // 64
    numbers = [_NUMBER] * 5 + [ctypes.c_double]
    forward = functions(_forward, kind, lanes)("forward", [_POINTER] * 6 + numbers)
    backward = functions(_backward, kind, lanes)("backward", [_POINTER] * 8 + numbers)
    return None if forward is None or backward is None else (forward, backward)


__all__ = ["code"]
