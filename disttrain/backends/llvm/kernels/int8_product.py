"""Code for products of matrices of 8-bit integers, y = x wᵀ, exact in 32 bits: x (m, k) without
sign, w (n, k) with sign, both with their rows together.

    dot512, dot256      the processor adds up four products at once (VNNI)
    pairs512, pairs256  numbers widened to 16 bits, of which it adds up pairs (AVX-512BW, AVX2)

Nothing saturates in any of them, so all give the same numbers. And y = x wᵀ of a few rows of
float32 with a w of 8 bits, which is widened on its way (``widened``).

Rows are taken in blocks of bytes. What is left of a row is the block that ends with it, whose x is
zero but for those bytes: so x comes with rows of whole blocks, and w may not have fewer than one
(``padded``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ... import host
from ..loops import Text, functions
from .levels import PARAMS as _LEVELS
from .levels import head as levels_head
from .levels import levels

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_CHUNK = 64  # rows of x that meet a row of w while that is near
ROWS = 4  # of a tile, or one
FEW = 16  # rows up to which ``widened`` is made


@dataclass(frozen=True)
class Way:
    """What processors have: bytes of a block, sums of a register, and the multiplication."""

    block: int
    lanes: int
    intrinsic: str
    needs: tuple[str, ...]
    dot: bool


WAYS = {
    "dot512": Way(64, 16, "llvm.x86.avx512.vpdpbusd.512", ("avx512f", "avx512_vnni"), True),
    "dot256": Way(32, 8, "llvm.x86.avx512.vpdpbusd.256", ("avx2", "avx_vnni"), True),
    "pairs512": Way(32, 16, "llvm.x86.avx512.pmaddw.d.512", ("avx512f", "avx512bw"), False),
    "pairs256": Way(16, 8, "llvm.x86.avx2.pmadd.wd", ("avx2",), False),
}


@cache
def way() -> str | None:
    """The best that this processor has."""
    features = host.cpu().features
    return next((name for name, way in WAYS.items() if features.issuperset(way.needs)), None)


def padded(way: str, k: int) -> int:
    """Bytes of a row of x."""
    block = WAYS[way].block
    return -(-k // block) * block


class _Product:
    """Tiles of rows of x and rows of w. ``scaled``: the results become float32."""

    def __init__(self, way: Way, scaled: bool) -> None:
        self.way, self.scaled, self.text = way, scaled, Text()
        self.sums = f"<{way.lanes} x i32>"
        self.bytes, self.words = f"<{way.block} x i8>", f"<{way.block} x i16>"

    def write(self) -> str:
        """The whole module."""
        text, way = self.text, self.way
        params = ["ptr %y", "ptr %x", "ptr %w", "i64 %m", "i64 %n", "i64 %k", "i64 %ys", "i64 %xs"]
        params += ["i64 %ws"]
        if self.scaled:
            params += ["ptr %sx", "ptr %zx", "ptr %sw", "ptr %total", "ptr %b"]
        with text.function("product", *params):
            rest = text.let(f"srem i64 %k, {way.block}")
            self.whole = text.let(f"sub i64 %k, {rest}")
            self.last = text.let(f"sub i64 %k, {way.block}")
            with text.loop("0", "%m", _CHUNK) as begin:
                end = text.let(f"add i64 {begin}, {_CHUNK}")
                end = text.let(f"call i64 @llvm.smin.i64(i64 {end}, i64 %m)")
                self.columns(begin, end)
        if self.scaled:
            levels(text, way)
            _both(text)
        return self.head() + str(text)

    def head(self) -> str:
        operand = self.words if not self.way.dot else self.sums
        taken = f"{operand}, {operand}" if not self.way.dot else ", ".join([self.sums] * 3)
        return (
            f"declare {self.sums} @{self.way.intrinsic}({taken})\n"
            "declare i64 @llvm.smin.i64(i64, i64)\n"
        ) + (levels_head(self.way) if self.scaled else "")

    def columns(self, begin: str, end: str) -> None:
        """All results of some rows."""
        text, wide = self.text, 4
        whole = text.let(f"and i64 %n, -{wide}")
        many = text.let(f"sub i64 {end}, {begin}")
        most = text.let(f"srem i64 {many}, {ROWS}")
        most = text.let(f"sub i64 {end}, {most}")
        for first, last, step in (("0", whole, wide), (whole, "%n", 1)):
            with text.loop(first, last, step) as column:
                with text.loop(begin, most, ROWS) as row:
                    self.tile(row, ROWS, column, step)
                with text.loop(most, end, 1) as row:
                    self.tile(row, 1, column, step)

    def tile(self, row: str, rows: int, column: str, columns: int) -> None:
        """``rows`` by ``columns`` results."""
        text = self.text
        xs = [text.at("%x", (row, "%xs"), (str(r), "%xs")) for r in range(rows)]
        ws = [text.at("%w", (column, "%ws"), (str(c), "%ws")) for c in range(columns)]
        sums = [(self.sums, "zeroinitializer")] * (rows * columns)
        with text.loop("0", self.whole, self.way.block, sums) as turn:
            turn.new = self.terms(turn.at, turn.at, xs, ws, turn.values)
        sums = [(self.sums, value) for value in turn.values]
        with text.loop(self.whole, "%k", self.way.block, sums) as turn:
            turn.new = self.terms(turn.at, self.last, xs, ws, turn.values)
        for r in range(rows):
            self.put(turn.values[r * columns : (r + 1) * columns], row, r, column)

    def terms(
        self, at: str, there: str, xs: list[str], ws: list[str], sums: list[str]
    ) -> list[str]:
        """``sums`` and the products of a block, at ``at`` in x and ``there`` in w."""
        right = [self.load(w, there, "sext") for w in ws]
        made = []
        for r, x in enumerate(xs):
            left = self.load(x, at, "zext")
            for c, other in enumerate(right):
                made.append(self.add(sums[r * len(ws) + c], left, other))
        return made

    def load(self, base: str, at: str, extend: str) -> str:
        text = self.text
        found = text.let(f"load {self.bytes}, ptr {text.at(base, (at, '1'))}, align 1")
        if self.way.dot:
            return text.let(f"bitcast {self.bytes} {found} to {self.sums}")
        return text.let(f"{extend} {self.bytes} {found} to {self.words}")

    def add(self, total: str, left: str, right: str) -> str:
        text, name = self.text, self.way.intrinsic
        if self.way.dot:
            given = ", ".join(f"{self.sums} {v}" for v in (total, left, right))
            return text.let(f"call {self.sums} @{name}({given})")
        given = f"{self.words} {left}, {self.words} {right}"
        pairs = text.let(f"call {self.sums} @{name}({given})")
        return text.let(f"add {self.sums} {total}, {pairs}")

    def put(self, sums: list[str], row: str, number: int, column: str) -> None:
        """What registers add up to, into y."""
        text, count = self.text, len(sums)
        value = added_up(text, sums, self.way.lanes, "i32", "add")
        y = text.at("%y", (row, "%ys"), (str(number), "%ys"), (column, "4"))
        if self.scaled:
            value = self.scale(value, count, row, number, column)
        kind = f"<{count} x {'float' if self.scaled else 'i32'}>"
        text.add(f"store {kind} {value}, ptr {y}, align 4")

    def scale(self, value: str, count: int, row: str, number: int, column: str) -> str:
        """(value - zx total) (sx sw) + b."""
        text, ints, reals = self.text, f"<{count} x i32>", f"<{count} x float>"

        def of_row(name: str, kind: str, real: str) -> str:
            place = text.at(name, (row, "4"), (str(number), "4"))
            return spread(text, text.let(f"load {real}, ptr {place}"), real, kind, count)

        def of_column(name: str, kind: str) -> str:
            return text.let(f"load {kind}, ptr {text.at(name, (column, '4'))}, align 4")

        total = of_column("%total", ints)
        shift = text.let(f"mul {ints} {total}, {of_row('%zx', ints, 'i32')}")
        value = text.let(f"sub {ints} {value}, {shift}")
        value = text.let(f"sitofp {ints} {value} to {reals}")
        factor = text.let(
            f"fmul {reals} {of_row('%sx', reals, 'float')}, {of_column('%sw', reals)}"
        )
        value = text.let(f"fmul {reals} {value}, {factor}")
        return text.let(f"fadd {reals} {value}, {of_column('%b', reals)}")


def spread(text: Text, number: str, one: str, kind: str, count: int) -> str:
    """A register of one number."""
    first = text.let(f"insertelement {kind} poison, {one} {number}, i32 0")
    return text.let(f"shufflevector {kind} {first}, {kind} poison, <{count} x i32> zeroinitializer")


def added_up(text: Text, sums: list[str], lanes: int, one: str, add: str) -> str:
    """A register with what each of ``sums`` (a power of 2 of them) adds up to."""

    def both(a: str, b: str, kind: str, orders: list[list[int]]) -> str:
        parts = []
        for order in orders:
            places = ", ".join(f"i32 {k}" for k in order)
            mask = f"<{len(order)} x i32> <{places}>"
            parts.append(text.let(f"shufflevector {kind} {a}, {kind} {b}, {mask}"))
        return text.let(f"{add} <{len(orders[0])} x {one}> {parts[0]}, {parts[1]}")

    while lanes > len(sums):
        kind, lanes = f"<{lanes} x {one}>", lanes // 2
        halves = [list(range(lanes)), list(range(lanes, 2 * lanes))]
        sums = [both(s, "poison", kind, halves) for s in sums]
    part, kind = lanes, f"<{lanes} x {one}>"
    while len(sums) > 1:
        orders = [
            [at + k for at in range(first, 2 * lanes, part) for k in range(part // 2)]
            for first in (0, part // 2)
        ]
        sums = [both(a, b, kind, orders) for a, b in zip(sums[::2], sums[1::2])]
        part //= 2
    return sums[0]


def _both(text: Text) -> None:
    """``dynamic``: levels, and their products."""
    own = _LEVELS.replace("%out", "%l")
    rest = "ptr %y, ptr %w, i64 %m, i64 %n, i64 %kw, i64 %ys, i64 %ws, ptr %sw, ptr %total, ptr %b"
    with text.function("dynamic", own, rest):
        text.add(f"call void @levels({own})")
        text.add(
            "call void @product(ptr %y, ptr %l, ptr %w, i64 %m, i64 %n, i64 %kw, i64 %ys, "
            "i64 %width, i64 %ws, ptr %sx, ptr %zx, ptr %sw, ptr %total, ptr %b)"
        )


def _text(way: str, scaled: bool) -> str:
    return _Product(WAYS[way], scaled).write()


@cache
def product(way: str, scaled: bool) -> Callable | None:
    """``product(y, x, w, m, n, k, bytes between rows of y, x, w)``: y int32. ``scaled``: y float32,
    (x - zx) wᵀ · sx sw + b, where then come sx and zx (a number a row), sw, the sums of rows of w,
    and b. None where code cannot be made."""
    kinds = [_POINTER] * 3 + [_NUMBER] * 6 + [_POINTER] * (5 if scaled else 0)
    return functions(_text, way, scaled)("product", kinds)


@cache
def dynamic(way: str) -> tuple[Callable, Callable] | None:
    """``levels(out, x, sx, zx, groups, rows of each, k, bytes of a row of out, low, high, whether
    around 0)``: x (rows, k) of float32, rounded to the grid of its group, whose scale and zero
    point become those of each of its rows. Levels have no sign: where ``low`` is negative, 128 is
    added to them and to zero points. ``dynamic``: with y, w, m, n, numbers of a row of w, bytes
    between rows of both, sw, sums and b, the products, too. None where code cannot be made."""
    find = functions(_text, way, True)
    kinds = [_POINTER] * 4 + [_NUMBER] * 7
    first = find("levels", kinds)
    both = find("dynamic", kinds + [_POINTER] * 2 + [_NUMBER] * 5 + [_POINTER] * 3)
    return None if first is None or both is None else (first, both)


# --- float32 with integers -----------------------------------------------------------------------
def _widened(lanes: int, rows: int) -> str:
    """Rows of w are taken in order, four of them at a time; y is multiplied by their scales."""
    text, kind, ints = Text(), f"<{lanes} x float>", f"<{lanes} x i8>"
    params = ["ptr %y", "ptr %x", "ptr %w", "ptr %sw", "i64 %n", "i64 %k", "i64 %ys", "i64 %xs"]

    def terms(at: str, there: str, xs: list[str], ws: list[str], sums: list[str]) -> list[str]:
        made: list[str] = []
        left: list[str] = []
        for x in xs:
            left.append(text.let(f"load {kind}, ptr {text.at(x, (at, '4'))}, align 4"))
        for w in ws:
            found = text.let(f"load {ints}, ptr {text.at(w, (there, '1'))}, align 1")
            real = text.let(f"sitofp {ints} {found} to {kind}")
            for value in left:
                total = sums[len(made)]
                given = f"{kind} {value}, {kind} {real}, {kind} {total}"
                made.append(text.let(f"call {kind} @llvm.fma.v{lanes}f32({given})"))
        return made

    def tile(row: str, wide: int) -> None:
        xs = [text.at("%x", (str(r), "%xs")) for r in range(rows)]
        ws = [text.at("%w", (row, "%ws"), (str(c), "%ws")) for c in range(wide)]
        sums = [(kind, "zeroinitializer")] * (wide * rows)
        with text.loop("0", whole, lanes, sums) as turn:
            turn.new = terms(turn.at, turn.at, xs, ws, turn.values)
        sums = [(kind, value) for value in turn.values]
        with text.loop(whole, "%k", lanes, sums) as turn:
            turn.new = terms(turn.at, last, xs, ws, turn.values)
        result = f"<{wide} x float>"
        scale = text.let(f"load {result}, ptr {text.at('%sw', (row, '4'))}, align 4")
        for r in range(rows):
            total = added_up(text, turn.values[r::rows], lanes, "float", "fadd")
            total = text.let(f"fmul {result} {total}, {scale}")
            place = text.at("%y", (str(r), "%ys"), (row, "4"))
            text.add(f"store {result} {total}, ptr {place}, align 4")

    with text.function("product", *params, "i64 %ws"):
        rest = text.let(f"srem i64 %k, {lanes}")
        whole = text.let(f"sub i64 %k, {rest}")
        last = text.let(f"sub i64 %k, {lanes}")
        most = text.let("and i64 %n, -4")
        with text.loop("0", most, 4) as row:
            tile(row, 4)
        with text.loop(most, "%n", 1) as row:
            tile(row, 1)
    return f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})\n" + str(text)


@cache
def lanes() -> int:
    """Numbers of a register of float32."""
    return host.vector_bits(host.cpu().features) // 32


@cache
def widened(lanes: int, rows: int) -> Callable | None:
    """``product(y, x, w, sw, n, k, bytes between rows of y, x, w)``: y (rows, n) = x wᵀ · sw, for
    at most ``ROWS`` rows of float32. None where code cannot be made."""
    if "fma" not in host.cpu().features:
        return None
    kinds = [_POINTER] * 4 + [_NUMBER] * 5
    return functions(_widened, lanes, rows)("product", kinds)


def blocks(x: np.ndarray, width: int, block: int) -> np.ndarray:
    """x (m, k) in rows of ``width``, whole blocks: what a last block has beside is zero, and stands
    in front of what is left of the row."""
    m, k = x.shape
    if k == width:
        return np.ascontiguousarray(x)
    whole = k // block * block
    out = np.zeros((m, width), x.dtype)
    out[:, :whole] = x[:, :whole]
    out[:, width - (k - whole) :] = x[:, whole:]
    return out


__all__ = [
    "FEW", "ROWS", "WAYS", "Way", "blocks", "dynamic", "lanes", "padded", "product", "way",
    "widened",
]  # fmt: skip
