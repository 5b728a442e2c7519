"""LLVM instructions for scalar expressions, on vectors of a fixed number of lanes.

The number of lanes belongs to the kernel, not to the processor: LLVM splits wide vectors into the
registers there are. So a sum is added up in the same order on every machine.

This file knows types, conversions and functions; it knows no loop and no array (``llvm.py``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..lang.expr import Expr
from ..lang.kernel import COMPUTE, FLOATS, Types, floating
from . import vecmath

LL = {"bool": "i1", "int32": "i32", "int64": "i64", "float32": "float", "float64": "double"}
STORED = {
    **LL,
    "bool": "i8",
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "bfloat16": "i16",
    "float16": "half",
}

# Functions of the C library, called where vecmath has no instructions for them. The generated code
# finds their addresses in its table, in this order (vector forms first, then scalar ones).
EXTERNAL: tuple[str, ...] = ("exp", "log", "tanh", "erf", "sin", "cos", "pow", "log1p", "expm1")
EXTERNAL += tuple(f"{name}f" for name in ("sin", "cos", "pow", "log1p", "expm1"))
_FCMP = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_ICMP = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}

Operand = str | int | float


@dataclass(frozen=True, slots=True)
class Target:
    """What the text of the code depends on.

    ``vector_bits``: of the widest registers (512 means AVX-512F), which is also the width of the
    functions of libmvec that are called; ``vector_functions``: the names of ``EXTERNAL`` that
    libmvec has (the others are called once per lane).
    """

    vector_bits: int = 128
    vector_functions: tuple[str, ...] = ()


def constant(value: float, kind: str) -> str:
    """A constant of a computing type in LLVM's notation."""
    if kind == "float32":
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else -float("inf")
    if kind in FLOATS:
        return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
    return str(int(value))


class Emitter:
    """Appends instructions to ``lines``; each helper returns the name of its result."""

    def __init__(self, lanes: int, target: Target) -> None:
        self.lanes, self.target = lanes, target
        self.lines: list[str] = []
        self.count = 0
        self.declarations: set[str] = set()
        self.v, self.vi, self.b = (self.vec(k) for k in ("float32", "int32", "bool"))

    def vec(self, kind: str) -> str:
        """The vector type of a computing or stored type's name."""
        return f"<{self.lanes} x {LL[kind]}>"

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def splat(self, value: float, kind: str) -> str:
        return f"splat ({LL[kind]} {constant(value, kind)})"

    def f(self, value: float) -> str:
        return self.splat(value, "float32")

    def i(self, value: int) -> str:
        return self.splat(value, "int32")

    def cmp(self, how: str, a: str, b: str, kind: str = "float32") -> str:
        return self.op(f"{'fcmp' if kind in FLOATS else 'icmp'} {how} {self.vec(kind)} {a}, {b}")

    def select(self, condition: str, a: str, b: str, kind: str) -> str:
        t = self.vec(kind)
        return self.op(f"select {self.b} {condition}, {t} {a}, {t} {b}")

    def call(self, name: str, *args: str, kind: str = "float32") -> str:
        """An LLVM intrinsic on vectors, such as sqrt, fabs, fma."""
        t = self.vec(kind)
        full = f"@llvm.{name}.v{self.lanes}f{'32' if kind == 'float32' else '64'}"
        self.declarations.add(f"declare {t} {full}({', '.join([t] * len(args))})")
        return self.op(f"call {t} {full}({', '.join(f'{t} {a}' for a in args)})")

    def fma(self, a: str, b: str, c: str, kind: str = "float32") -> str:
        return self.call("fma", a, b, c, kind=kind)

    def copysign(self, size: str, sign: str) -> str:
        return self.call("copysign", size, sign)

    def scale(self, x: str, n: str) -> str:
        """``x * 2**n`` by the instruction that AVX-512 has for it; empty without one."""
        if self.target.vector_bits != 512 or self.lanes != 16:
            return ""
        name, t = "@llvm.x86.avx512.mask.scalef.ps.512", self.v
        self.declarations.add(f"declare {t} {name}({t}, {t}, {t}, i16, i32)")
        rounding = 4  # that of the processor's current mode
        inside = f"{t} {x}, {t} {n}, {t} zeroinitializer, i16 -1, i32 {rounding}"
        return self.op(f"call {t} {name}({inside})")

    def as_int(self, x: str) -> str:
        return self.op(f"bitcast {self.v} {x} to {self.vi}")

    def as_float(self, x: str) -> str:
        return self.op(f"bitcast {self.vi} {x} to {self.v}")

    def broadcast(self, scalar: str, kind: str) -> str:
        """A vector whose lanes all hold ``scalar`` (of a stored or computing LLVM type)."""
        t = f"<{self.lanes} x {kind}>"
        one = self.op(f"insertelement {t} poison, {kind} {scalar}, i64 0")
        return self.op(f"shufflevector {t} {one}, {t} poison, <{self.lanes} x i32> zeroinitializer")

    # -- conversions -------------------------------------------------------------------------

    def convert(self, x: str, a: str, b: str) -> str:
        """``x`` of computing type ``a`` as ``b``."""
        if a == b:
            return x
        ta, tb = self.vec(a), self.vec(b)
        if b == "bool":
            how = f"fcmp une {ta}" if a in FLOATS else f"icmp ne {ta}"
            return self.op(f"{how} {x}, zeroinitializer")
        if a in FLOATS and b in FLOATS:
            how = "fpext" if b == "float64" else "fptrunc"
        elif b in FLOATS:
            how = "uitofp" if a == "bool" else "sitofp"
        elif a in FLOATS:
            how = "fptosi"
        else:
            how = "zext" if a == "bool" else "sext" if b == "int64" else "trunc"
        return self.op(f"{how} {ta} {x} to {tb}")

    def widen(self, x: str, dtype: str) -> str:
        """A vector just loaded from an array of ``dtype``, in the type it is computed in."""
        stored = f"<{self.lanes} x {STORED[dtype]}>"
        if dtype == "bool":
            return self.op(f"icmp ne {stored} {x}, zeroinitializer")
        if dtype == "bfloat16":
            bits = self.op(f"zext {stored} {x} to {self.vi}")
            return self.as_float(self.op(f"shl {self.vi} {bits}, {self.i(16)}"))
        if dtype == "float16":
            return self.op(f"fpext {stored} {x} to {self.v}")
        if dtype in ("int8", "int16", "uint8"):
            return self.op(f"{'zext' if dtype == 'uint8' else 'sext'} {stored} {x} to {self.vi}")
        return x

    def narrow(self, x: str, dtype: str) -> str:
        """The inverse of ``widen``, rounding to nearest even."""
        stored = f"<{self.lanes} x {STORED[dtype]}>"
        if dtype == "bool":
            return self.op(f"zext {self.b} {x} to {stored}")
        if dtype == "bfloat16":
            return self._to_bfloat16(x, stored)
        if dtype == "float16":
            return self.op(f"fptrunc {self.v} {x} to {stored}")
        if dtype in ("int8", "int16", "uint8"):
            return self.op(f"trunc {self.vi} {x} to {stored}")
        return x

    def _to_bfloat16(self, x: str, stored: str) -> str:
        bits, t = self.as_int(x), self.vi
        high = self.op(f"lshr {t} {bits}, {self.i(16)}")
        odd = self.op(f"and {t} {high}, {self.i(1)}")
        bias = self.op(f"add {t} {odd}, {self.i(0x7FFF)}")
        rounded = self.op(f"lshr {t} {self.op(f'add {t} {bits}, {bias}')}, {self.i(16)}")
        quiet = self.op(f"or {t} {high}, {self.i(0x40)}")
        nan = self.op(f"fcmp uno {self.v} {x}, {x}")
        return self.op(f"trunc {t} {self.select(nan, quiet, rounded, 'int32')} to {stored}")

    # -- expressions -------------------------------------------------------------------------

    def node(self, node: Expr, args: list[Operand], kinds: list[str], types: Types) -> str:
        """The value of ``node`` given its arguments: names of vectors, or constants as numbers."""
        op, kind = node.op, types.operands(node)
        if op == "cast":
            return self._cast(args[0], kinds[0], node.attr)
        if op == "where":
            a, b = (self._as(args[k], kinds[k], kind) for k in (1, 2))
            return self.select(self._as(args[0], kinds[0], "bool"), a, b, kind)
        if op in ("and", "or", "not"):
            kind = "bool"
        elif op == "isnan":
            kind = floating(kind)
        elif kind == "bool":
            kind = "int32"
        vectors = [self._as(a, k, kind) for a, k in zip(args, kinds)]
        return self._function(op, vectors, kind)

    def _as(self, x: Operand, a: str, b: str) -> str:
        return self.convert(x, a, b) if isinstance(x, str) else self.splat(x, b)

    def _cast(self, x: Operand, a: str, dtype: str) -> str:
        value = self._as(x, a, COMPUTE[dtype])
        return value if dtype in LL else self.widen(self.narrow(value, dtype), dtype)

    def _function(self, op: str, args: list[str], kind: str) -> str:
        t, real = self.vec(kind), kind in FLOATS
        if op in ("add", "sub", "mul"):
            return self.op(f"{'f' if real else ''}{op} {t} {args[0]}, {args[1]}")
        if op == "div":
            return self.op(f"fdiv {t} {args[0]}, {args[1]}")
        if op in ("and", "or"):
            return self.op(f"{op} {t} {args[0]}, {args[1]}")
        if op == "not":
            return self.op(f"xor {t} {args[0]}, splat (i1 true)")
        if op in _FCMP:
            return self.cmp((_FCMP if real else _ICMP)[op], args[0], args[1], kind)
        if op in ("max", "min"):
            return self.extreme(op, args[0], args[1], kind)
        if not real:
            return self._integer(op, args, kind)
        if op in ("exp", "sigmoid", "tanh", "erf", "log") and kind == "float32":
            return vecmath.FUNCTIONS[op](self, args[0])
        return self._real(op, args, kind)

    def _integer(self, op: str, args: list[str], kind: str) -> str:
        t, x = self.vec(kind), args[0]
        if op == "neg":
            return self.op(f"sub {t} zeroinitializer, {x}")
        if op == "abs":
            minus = self.op(f"sub {t} zeroinitializer, {x}")
            return self.extreme("max", x, minus, kind)
        if op == "fma":
            return self.op(f"add {t} {self.op(f'mul {t} {x}, {args[1]}')}, {args[2]}")
        assert op in ("floor", "ceil"), op
        return x

    def _real(self, op: str, args: list[str], kind: str) -> str:
        t, x = self.vec(kind), args[0]
        one = self.splat(1.0, kind)
        if op == "neg":
            return self.op(f"fneg {t} {x}")
        if op == "isnan":
            return self.op(f"fcmp uno {t} {x}, {x}")
        if op in ("abs", "sqrt", "floor", "ceil", "fma"):
            return self.call("fabs" if op == "abs" else op, *args, kind=kind)
        if op == "rsqrt":
            return self.op(f"fdiv {t} {one}, {self.call('sqrt', x, kind=kind)}")
        if op == "sigmoid":
            grown = self.external("exp", [self.op(f"fneg {t} {x}")], kind)
            return self.op(f"fdiv {t} {one}, {self.op(f'fadd {t} {grown}, {one}')}")
        return self.external(op, args, kind)

    def extreme(self, op: str, a: str, b: str, kind: str) -> str:
        """The larger or smaller; nan if either is nan. ``maxnum``: ``a`` unless ``b`` is larger."""
        if op == "maxnum":
            how = "ogt" if kind in FLOATS else "sgt"
            return self.select(self.cmp(how, b, a, kind), b, a, kind)
        names = _FCMP if kind in FLOATS else _ICMP
        first = self.cmp(names["gt" if op == "max" else "lt"], a, b, kind)
        if kind in FLOATS:
            first = self.op(f"or {self.b} {first}, {self.cmp('uno', a, a, kind)}")
        return self.select(first, a, b, kind)

    # -- functions of the C library ------------------------------------------------------------

    def external(self, op: str, args: list[str], kind: str) -> str:
        name = op + ("f" if kind == "float32" else "")
        if name in self.target.vector_functions:
            return self._vector_calls(name, args, kind)
        return self._scalar_calls(name, args, kind)

    def _pointer(self, name: str, vector: bool) -> str:
        from_start = EXTERNAL.index(name) + (0 if vector else len(EXTERNAL))
        slot = self.op(f"getelementptr i64, ptr %functions, i64 {from_start}")
        return self.op(f"load ptr, ptr {slot}")

    def _vector_calls(self, name: str, args: list[str], kind: str) -> str:
        """Call on pieces as wide as libmvec's functions and put the results together."""
        pointer, t = self._pointer(name, True), self.vec(kind)
        width = min(self.target.vector_bits // (32 if kind == "float32" else 64), self.lanes)
        piece = f"<{width} x {LL[kind]}>"
        results = []
        for start in range(0, self.lanes, width):
            pick = ", ".join(f"i32 {start + k}" for k in range(width))
            pick = f"<{width} x i32> <{pick}>"
            parts = [self.op(f"shufflevector {t} {a}, {t} poison, {pick}") for a in args]
            inside = ", ".join(f"{piece} {p}" for p in parts)
            results.append(self.op(f"call {piece} {pointer}({inside})"))
        while len(results) > 1:
            every = ", ".join(f"i32 {k}" for k in range(2 * width))
            results = [
                self.op(
                    f"shufflevector <{width} x {LL[kind]}> {a}, <{width} x {LL[kind]}> {b}, "
                    f"<{2 * width} x i32> <{every}>"
                )
                for a, b in zip(results[::2], results[1::2])
            ]
            width *= 2
        return results[0]

    def _scalar_calls(self, name: str, args: list[str], kind: str) -> str:
        pointer, t, s = self._pointer(name, False), self.vec(kind), LL[kind]
        out = "poison"
        for k in range(self.lanes):
            lane = [self.op(f"extractelement {t} {a}, i64 {k}") for a in args]
            value = self.op(f"call {s} {pointer}({', '.join(f'{s} {x}' for x in lane)})")
            out = self.op(f"insertelement {t} {out}, {s} {value}, i64 {k}")
        return out
