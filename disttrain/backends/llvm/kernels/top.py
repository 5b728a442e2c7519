"""Code that finds the places of the few largest or smallest numbers of rows.

A row is read once. Numbers are compared as integers in the same order, of which nan is the largest;
whole registers of them with the last of those that have been found, which are kept in order. The
few that come before it are put in their places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ... import host
from ..loops import Text, functions

_KINDS = {"float32": ("float", 32), "float64": ("double", 64), "int32": ("", 32), "int64": ("", 64)}
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
MOST = 128  # places of a row
_WIDE = 4  # registers at a time

_INSERT = """define internal void @insert(
    ptr %keys, ptr %places, i64 %m, {kind} %key, i64 %place) {{
entry:
  br label %head
head:
  %j = phi i64 [%m, %entry], [%j1, %shift]
  %j1 = sub i64 %j, 1
  %here = getelementptr {kind}, ptr %keys, i64 %j
  %to = getelementptr i64, ptr %places, i64 %j
  %more = icmp sgt i64 %j, 0
  br i1 %more, label %look, label %done
look:
  %before = getelementptr {kind}, ptr %keys, i64 %j1
  %other = load {kind}, ptr %before
  %less = icmp slt {kind} %other, %key
  br i1 %less, label %shift, label %done
shift:
  store {kind} %other, ptr %here
  %from = getelementptr i64, ptr %places, i64 %j1
  %moved = load i64, ptr %from
  store i64 %moved, ptr %to
  br label %head
done:
  store {kind} %key, ptr %here
  store i64 %place, ptr %to
  ret void
}}
"""


class _Writer:
    def __init__(self, kind: str, lanes: int, largest: bool) -> None:
        self.text, self.lanes, self.largest = Text(), lanes, largest
        self.real, self.bits = _KINDS[kind]
        self.whole, self.size = f"i{self.bits}", self.bits // 8

    def key(self, place: str, count: int, mask: str | None = None) -> str:
        """The numbers at ``place`` as integers in order; with ``mask``, some of them."""
        let = self.text.let
        wide = (lambda kind: kind) if count == 1 else (lambda kind: f"<{count} x {kind}>")
        whole, real = wide(self.whole), wide(self.real or self.whole)
        if mask is None:
            value = let(f"load {real}, ptr {place}, align {self.size}")
        else:
            suffix = f"v{count}{'f' if self.real else 'i'}{self.bits}"
            value = let(
                f"call {real} @llvm.masked.load.{suffix}.p0(ptr {place}, i32 {self.size}, "
                f"<{count} x i1> {mask}, {real} zeroinitializer)"
            )
        if self.real:
            value = self.ordered(value, whole, real, count)
        return value if self.largest else let(f"xor {whole} {value}, {self.same(count, '-1')}")

    def same(self, count: int, number: str) -> str:
        return number if count == 1 else f"splat ({self.whole} {number})"

    def ordered(self, value: str, whole: str, real: str, count: int) -> str:
        """Floats as integers; -0.0 is 0.0."""
        let, most = self.text.let, self.same(count, str((1 << self.bits - 1) - 1))
        zero = "0.0" if count == 1 else "zeroinitializer"
        odd = let(f"fcmp uno {real} {value}, {value}")
        bits = let(f"bitcast {real} {let(f'fadd {real} {value}, {zero}')} to {whole}")
        sign = let(f"ashr {whole} {bits}, {self.same(count, str(self.bits - 1))}")
        turned = let(f"xor {whole} {bits}, {let(f'and {whole} {sign}, {most}')}")
        kind = "i1" if count == 1 else f"<{count} x i1>"
        return let(f"select {kind} {odd}, {whole} {most}, {whole} {turned}")

    def scan(self, row: str, at: str, wide: int, last: str, left: str | None) -> None:
        """Take what comes before the last of those found from some registers."""
        text, n = self.text, self.lanes
        limit = text.let(f"load {self.whole}, ptr {last}, align {self.size}")
        one = text.let(f"insertelement <{n} x {self.whole}> poison, {self.whole} {limit}, i64 0")
        limits = text.let(
            f"shufflevector <{n} x {self.whole}> {one}, <{n} x {self.whole}> poison, "
            f"<{n} x i32> zeroinitializer"
        )
        place = text.at(row, (at, str(self.size)))
        mask = None if left is None else self.within(left)
        keys, hits = [], "0"
        for k in range(wide):
            here = text.at(place, (str(k * n), str(self.size)))
            keys.append(self.key(here, n, mask))
            better = text.let(f"icmp sgt <{n} x {self.whole}> {keys[-1]}, {limits}")
            if mask is not None:
                better = text.let(f"and <{n} x i1> {better}, {mask}")
            some = text.let(f"bitcast <{n} x i1> {better} to i{n}")
            some = text.let(f"zext i{n} {some} to i64")
            hits = text.let(f"or i64 {hits}, {text.let(f'shl i64 {some}, {k * n}')}")
        self.take(at, keys, hits, last)

    def within(self, left: str) -> str:
        n = self.lanes
        one = self.text.let(f"insertelement <{n} x i64> poison, i64 {left}, i64 0")
        all_of = self.text.let(
            f"shufflevector <{n} x i64> {one}, <{n} x i64> poison, <{n} x i32> zeroinitializer"
        )
        numbers = ", ".join(f"i64 {k}" for k in range(n))
        return self.text.let(f"icmp slt <{n} x i64> <{numbers}>, {all_of}")

    def take(self, at: str, keys: list[str], hits: str, last: str) -> None:
        """Put those that ``hits`` has a bit for among the ones found, where they still are better
        than the last one."""
        text, name, n = self.text, self.text.fresh("take"), self.lanes
        some = text.let(f"icmp ne i64 {hits}, 0")
        text.add(f"br i1 {some}, label %{name}.do, label %{name}.end")
        text.start(f"{name}.do")
        for k, key in enumerate(keys):
            place = text.at("%stash", (str(k * n), str(self.size)))
            text.add(f"store <{n} x {self.whole}> {key}, ptr {place}, align {self.size}")
        text.add(f"br label %{name}.head")
        text.start(f"{name}.head")
        text.add(f"%{name}.b = phi i64 [{hits}, %{name}.do], [%{name}.c, %{name}.next]")
        bit = text.let(f"call i64 @llvm.cttz.i64(i64 %{name}.b, i1 true)")
        one = text.let(
            f"load {self.whole}, ptr {text.at('%stash', (bit, str(self.size)))}, align {self.size}"
        )
        limit = text.let(f"load {self.whole}, ptr {last}, align {self.size}")
        better = text.let(f"icmp sgt {self.whole} {one}, {limit}")
        text.add(f"br i1 {better}, label %{name}.put, label %{name}.next")
        text.start(f"{name}.put")
        place = text.let(f"add i64 {at}, {bit}")
        self.insert("%places", text.let("sub i64 %k, 1"), one, place)
        text.add(f"br label %{name}.next")
        text.start(f"{name}.next")
        text.add(f"%{name}.less = sub i64 %{name}.b, 1")
        text.add(f"%{name}.c = and i64 %{name}.b, %{name}.less")
        again = text.let(f"icmp ne i64 %{name}.c, 0")
        text.add(f"br i1 {again}, label %{name}.head, label %{name}.end")
        text.start(f"{name}.end")

    def insert(self, places: str, m: str, key: str, place: str) -> None:
        self.text.add(
            f"call void @insert(ptr %keys, ptr {places}, i64 {m}, {self.whole} {key}, i64 {place})"
        )


def _text(kind: str, lanes: int, largest: bool) -> str:
    writer = _Writer(kind, lanes, largest)
    text, step = writer.text, _WIDE * lanes
    with text.function("row", "ptr %places", "ptr %x", "i64 %n", "i64 %k", "ptr %keys",
                       "ptr %stash"):  # fmt: skip
        with text.loop("0", "%k", 1) as at:
            key = writer.key(text.at("%x", (at, str(writer.size))), 1)
            writer.insert("%places", at, key, at)
        last = text.at("%keys", (text.let("sub i64 %k, 1"), str(writer.size)))
        whole = text.let(f"sdiv i64 {text.let('sub i64 %n, %k')}, {step}")
        end = text.let(f"add i64 %k, {text.let(f'mul i64 {whole}, {step}')}")
        with text.loop("%k", end, step) as at:
            writer.scan("%x", at, _WIDE, last, None)
        with text.loop(end, "%n", lanes) as at:
            writer.scan("%x", at, 1, last, text.let(f"sub i64 %n, {at}"))
    with text.function("top", "ptr %places", "ptr %x", "i64 %n", "i64 %k", "i64 %rows"):
        text.add(f"%keys = alloca [{MOST * writer.size} x i8], align 64")
        text.add(f"%stash = alloca [{step * writer.size} x i8], align 64")
        with text.loop("0", "%rows", 1) as row:
            places = text.at("%places", (row, text.let("mul i64 %k, 8")))
            line = text.at("%x", (row, text.let(f"mul i64 %n, {writer.size}")))
            text.add(f"call void @row(ptr {places}, ptr {line}, i64 %n, i64 %k, ptr %keys, "
                     "ptr %stash)")  # fmt: skip
    real = writer.real or writer.whole
    suffix = f"v{lanes}{'f' if writer.real else 'i'}{writer.bits}"
    vector = f"<{lanes} x {real}>"
    return "\n".join([
        f"declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})",
        "declare i64 @llvm.cttz.i64(i64, i1)", _INSERT.format(kind=writer.whole), str(text),
    ])  # fmt: skip


@cache
def code(kind: str, largest: bool) -> Callable | None:
    """``top(places, x, n, k, rows)``: for rows of ``n`` numbers the places of the ``k`` best, at
    most ``MOST`` and at least one, the best first and the first of equal ones; as int64. None where
    code cannot be made."""
    lanes = host.vector_bits(host.cpu().features) // _KINDS[kind][1]
    kinds = [_POINTER, _POINTER, *(_NUMBER,) * 3]
    return functions(_text, kind, lanes, largest)("top", kinds)


__all__ = ["MOST", "code"]
