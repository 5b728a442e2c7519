"""Scalar expressions as statements of C: one ``const`` variable per distinct node."""

from __future__ import annotations

import math
import struct as bits

from ...lang.expr import Expr, walk
from ...lang.kernel import COMPUTE, FLOATS, Types, floating, resolve
from .forms import C_TYPES

_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_PLAIN = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def literal(value: float, kind: str) -> str:
    """A constant of a computing type."""
    if kind == "bool":
        return "true" if value else "false"
    if kind not in FLOATS:
        number = int(value)
        if kind == "int64":
            return f"((dt_i64){number & (2**64 - 1)}ull)"
        return f"((int){number & (2**32 - 1)}u)"
    if kind == "float32":
        try:
            value = bits.unpack("f", bits.pack("f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    if math.isfinite(value):
        return f"{float(value).hex()}{'f' if kind == 'float32' else ''}"
    if kind == "float32":
        word = bits.unpack("I", bits.pack("f", value))[0]
        return f"__uint_as_float({word:#x}u)"
    return f"__longlong_as_double({bits.unpack('Q', bits.pack('d', value))[0]:#x}ll)"


def convert(x: str, a: str, b: str) -> str:
    """``x`` of computing type ``a`` as ``b``."""
    if a == b:
        return x
    return f"({x} != 0)" if b == "bool" else f"({C_TYPES[b]}){x}"


class Values:
    """Appends statements to ``lines``. ``row`` holds what is the same for a whole row, ``cols``
    what belongs to the element at hand (None outside of a loop over elements)."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.lines: list[str] = []
        self.row: dict[Expr, str] = {}
        self.cols: dict[Expr, str] | None = None
        self.count = 0

    def leaf(self, node: Expr) -> str:
        """An element, a position or a ``load`` as an expression of C, of its computing type."""
        raise NotImplementedError

    def moves(self, expr: Expr) -> bool:
        """Whether ``expr`` differs from element to element."""
        raise NotImplementedError

    def fresh(self, kind: str, value: str) -> str:
        """A new variable."""
        self.count += 1
        self.lines.append(f"const {C_TYPES[kind]} v{self.count} = {value};")
        return f"v{self.count}"

    def value(self, expr: Expr, kind: str = "") -> tuple[str, str]:
        """The name of ``expr``'s value and its type (``kind`` where one is asked for)."""
        for node in walk(expr):
            self.node(node)
        own = resolve(self.types[expr])
        kind = kind or own
        if expr.op == "const":
            return literal(expr.attr, kind), kind
        return convert(self.known(expr), own, kind), kind

    def known(self, node: Expr) -> str:
        return self.row[node] if node in self.row else (self.cols or {})[node]

    def node(self, node: Expr) -> None:
        """See that ``node``, whose arguments are known, has a variable."""
        if node.op == "const" or node in self.row or (self.cols and node in self.cols):
            return
        own = resolve(self.types[node])
        if node.op in ("var", "index", "load"):
            name = self.fresh(own, self.leaf(node))
        else:
            name = self.fresh(own, self._computed(node))
        if self.cols is None:
            self.row[node] = name
        else:
            self.cols[node] = name

    def hoist(self, exprs: list[Expr], written: set[str]) -> None:
        """Before a loop: compute what is the same for all its elements, once."""
        for expr in exprs:
            for node in walk(expr):
                reads = {n.attr for n in walk(node) if n.op in ("var", "load")}
                if node.op != "const" and not self.moves(node) and not reads & written:
                    self.node(node)

    def forget(self, array: str) -> None:
        """Drop what was computed from what ``array`` held before it was written."""
        for expr in [x for x in self.row if any(n.attr == array for n in walk(x))]:
            del self.row[expr]

    def _arg(self, a: Expr, kind: str) -> str:
        if a.op == "const":
            return literal(a.attr, kind)
        return convert(self.known(a), resolve(self.types[a]), kind)

    def _computed(self, node: Expr) -> str:
        op, kind = node.op, self.types.operands(node)
        if op == "cast":
            return self._cast(node.args[0], node.attr)
        if op == "where":
            chosen = [self._arg(a, kind) for a in node.args[1:]]
            return f"{self._arg(node.args[0], 'bool')} ? {chosen[0]} : {chosen[1]}"
        if op in ("and", "or", "not"):
            kind = "bool"
        elif op == "isnan":
            kind = floating(kind)
        elif kind == "bool" and op not in ("eq", "ne"):
            kind = "int32"
        return _function(op, [self._arg(a, kind) for a in node.args], kind)

    def _cast(self, a: Expr, dtype: str) -> str:
        kind = COMPUTE[dtype]
        x = self._arg(a, kind)
        return x if dtype == kind else f"dt_from_{dtype}(dt_to_{dtype}({x}))"


def _function(op: str, args: list[str], kind: str) -> str:
    real, x = kind in FLOATS, args[0]
    if op in ("and", "or"):
        return f"{x} {'&&' if op == 'and' else '||'} {args[1]}"
    if op == "not":
        return f"!{x}"
    if op == "isnan":
        return f"{x} != {x}"
    if op in _COMPARE:
        return f"{x} {_COMPARE[op]} {args[1]}"
    if op in _PLAIN:
        return f"{x} {_PLAIN[op]} {args[1]}" if real else f"dt_{op}({x}, {args[1]})"
    if op == "neg":
        return f"-({x})" if real else f"dt_sub(({C_TYPES[kind]})0, {x})"
    if op in ("floor", "ceil") and not real:
        return x
    return f"dt_{op}({', '.join(args)})"
