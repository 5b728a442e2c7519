"""Code that rounds rows of float32 to 8-bit integers, on a grid from their own range: how
``ops/primitives/quantization.py`` computes it, with the same bits."""

from __future__ import annotations

from typing import Any

from ..emit import constant
from ..loops import Text

PARAMS = (
    "ptr %out, ptr %x, ptr %sx, ptr %zx, i64 %groups, i64 %each, i64 %k, i64 %width, i64 %low, "
    "i64 %high, i64 %symmetric"
)
_LEAST = constant(2.0**-127, "float32")  # of which the inverse is finite
_NOTHING = constant(0.0, "float32")
_TENTH, _FINE = constant(0.1, "float32"), constant(1e-5, "float32")


def head(way: Any) -> str:
    """What the code calls."""
    lanes, lines = way.lanes, []
    for kind, name in (("float", "f32"), (f"<{lanes} x float>", f"v{lanes}f32"), ("double", "f64")):
        lines.append(f"declare {kind} @llvm.rint.{name}({kind})")
        for both in ("minnum", "maxnum"):
            lines.append(f"declare {kind} @llvm.{both}.{name}({kind}, {kind})")
    for both in ("fmin", "fmax"):
        lines.append(f"declare float @llvm.vector.reduce.{both}.v{lanes}f32(<{lanes} x float>)")
    kind = f"float, <{lanes} x float>"
    lines.append(f"declare float @llvm.vector.reduce.fadd.v{lanes}f32({kind})")
    return "\n".join(lines) + "\n"


class _Values:
    """Instructions on numbers of one type."""

    def __init__(self, text: Text, kind: str, name: str) -> None:
        self.text, self.kind, self.name = text, kind, name

    def op(self, name: str, a: str, b: str) -> str:
        return self.text.let(f"{name} {self.kind} {a}, {b}")

    def call(self, name: str, *args: str) -> str:
        given = ", ".join(f"{self.kind} {a}" for a in args)
        return self.text.let(f"call {self.kind} @llvm.{name}.{self.name}({given})")

    def clamped(self, a: str, low: str, high: str) -> str:
        return self.call("minnum", self.call("maxnum", a, low), high)

    def choose(self, which: str, a: str, b: str) -> str:
        return self.text.let(f"select i1 {which}, {self.kind} {a}, {self.kind} {b}")


def levels(text: Text, way: Any) -> None:
    """The function ``levels``."""
    with text.function("levels", PARAMS):
        count = text.let("mul i64 %each, %k")
        with text.loop("0", "%groups", 1) as group:
            start = text.at("%x", (text.let(f"mul i64 {group}, {count}"), "4"))
            grid = _Grid(text, *_range(text, way.lanes, start, count))
            first = text.let(f"mul i64 {group}, %each")
            with text.loop("0", "%each", 1) as number:
                row = text.let(f"add i64 {first}, {number}")
                text.add(f"store float {grid.scale}, ptr {text.at('%sx', (row, '4'))}")
                text.add(f"store i32 {grid.whole}, ptr {text.at('%zx', (row, '4'))}")
                grid.row(way, row)


def _range(text: Text, lanes: int, start: str, count: str) -> list[str]:
    """The least and the greatest of so many numbers and 0; and 0, or nan where one is infinite."""
    kind = f"<{lanes} x float>"
    many, one = _Values(text, kind, f"v{lanes}f32"), _Values(text, "float", "f32")
    rest = text.let(f"srem i64 {count}, {lanes}")
    whole = text.let(f"sub i64 {count}, {rest}")

    def more(values: _Values, old: list[str], found: str, zero: str) -> list[str]:
        ends = [values.call(n, v, found) for n, v in zip(("minnum", "maxnum"), old)]
        return [*ends, values.op("fadd", old[2], values.op("fmul", found, zero))]

    with text.loop("0", whole, lanes, [(kind, "zeroinitializer")] * 3) as turn:
        found = text.let(f"load {kind}, ptr {text.at(start, (turn.at, '4'))}, align 4")
        turn.new = more(many, turn.values, found, "zeroinitializer")
    ends = [
        text.let(f"call float @llvm.vector.reduce.{n}.v{lanes}f32({given}{kind} {v})")
        for n, given, v in zip(
            ("fmin", "fmax", "fadd"), ("", "", f"float {_NOTHING}, "), turn.values
        )
    ]
    with text.loop(whole, count, 1, [("float", end) for end in ends]) as turn:
        found = text.let(f"load float, ptr {text.at(start, (turn.at, '4'))}")
        turn.new = more(one, turn.values, found, _NOTHING)
    return turn.values


class _Grid:
    """The grid for numbers from ``least`` to ``most``. ``odd``: 0, or nan for a scale of nan."""

    def __init__(self, text: Text, least: str, most: str, odd: str) -> None:
        self.text = text
        self.around = text.let("icmp ne i64 %symmetric, 0")
        self.one = _Values(text, "float", "f32")
        self.wide = _Values(text, "double", "f64")
        self.ends = [text.let(f"sitofp i64 {e} to double") for e in ("%low", "%high")]
        self.low, self.high = (text.let(f"fptrunc double {e} to float") for e in self.ends)
        self.scale = self.one.op("fadd", self._scale(least, most), odd)
        zero = self._zero(least, most)
        self.inverse = self.one.op("fdiv", constant(1.0, "float32"), self.scale)
        self.zero = text.let(f"fptrunc double {zero} to float")
        signed = text.let("icmp slt i64 %low, 0")
        turn = constant(128.0, "float32"), constant(0.0, "float32")
        self.turn = self.one.choose(signed, *turn)
        moved = self.one.op("fadd", self.zero, self.turn)
        self.whole = text.let(f"fptosi float {moved} to i32")

    def _scale(self, least: str, most: str) -> str:
        text, one, wide = self.text, self.one, self.wide
        a, b = (text.let(f"fpext float {v} to double") for v in (least, most))
        steps = wide.op("fsub", self.ends[1], self.ends[0])
        scale = wide.op("fdiv", wide.op("fsub", b, a), steps)
        scale = text.let(f"fptrunc double {scale} to float")
        small = text.let(f"fcmp olt float {scale}, {_LEAST}")
        scale = one.choose(small, _TENTH, scale)
        reach = one.call("maxnum", text.let(f"fneg float {least}"), most)
        around = one.call("maxnum", one.op("fdiv", reach, self.high), _FINE)
        return one.choose(self.around, around, scale)

    def _zero(self, least: str, most: str) -> str:
        text, wide, (low, high) = self.text, self.wide, self.ends
        a, b, step = (text.let(f"fpext float {v} to double") for v in (least, most, self.scale))
        below = wide.op("fdiv", text.let(f"fneg double {a}"), step)
        above = wide.op("fdiv", b, step)
        far = text.let(f"fneg double {low}"), high
        far_low = wide.call("maxnum", low, far[0])
        less = text.let(
            f"fcmp olt double {wide.op('fadd', far_low, below)}, {wide.op('fadd', high, above)}"
        )
        zero = wide.choose(less, wide.op("fadd", low, below), wide.op("fsub", high, above))
        zero = wide.clamped(wide.call("rint", zero), low, high)
        return wide.choose(self.around, constant(0.0, "float64"), zero)

    def row(self, way: Any, row: str) -> None:
        """One row of levels: whole blocks, and what is left at the end of the last one."""
        text, block, lanes = self.text, way.block, way.lanes
        out = text.at("%out", (row, "%width"))
        x = text.at("%x", (text.let(f"mul i64 {row}, %k"), "4"))
        rest = text.let(f"srem i64 %k, {block}")
        whole = text.let(f"sub i64 %k, {rest}")
        with text.loop("0", whole, lanes) as at:
            self._some(lanes, text.at(x, (at, "4")), text.at(out, (at, "1")))
        far = text.let("sub i64 %width, %k")
        with text.loop(whole, "%k", 1) as at:
            place = text.at(out, (text.let(f"add i64 {far}, {at}"), "1"))
            self._some(1, text.at(x, (at, "4")), place)

    def _some(self, lanes: int, x: str, out: str) -> None:
        text = self.text
        if lanes == 1:
            kind, name, whole, byte = "float", "f32", "i32", "i8"
        else:
            kind, name = f"<{lanes} x float>", f"v{lanes}f32"
            whole, byte = f"<{lanes} x i32>", f"<{lanes} x i8>"
        values = _Values(text, kind, name)

        def spread(number: str) -> str:
            if lanes == 1:
                return number
            first = text.let(f"insertelement {kind} poison, float {number}, i32 0")
            return text.let(
                f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
            )

        value = text.let(f"load {kind}, ptr {x}, align 4")
        value = values.call("rint", values.op("fmul", value, spread(self.inverse)))
        value = values.op("fadd", value, spread(self.zero))
        value = values.clamped(value, spread(self.low), spread(self.high))
        value = values.op("fadd", value, spread(self.turn))
        found = text.let(f"fptosi {kind} {value} to {whole}")
        found = text.let(f"trunc {whole} {found} to {byte}")
        text.add(f"store {byte} {found}, ptr {out}, align 1")


__all__ = ["PARAMS", "head", "levels"]
