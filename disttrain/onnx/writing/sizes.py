"""Sizes that depend on the model's input, as nodes: a text such as ``2*batch + 1`` is read, and
becomes reads of shapes and arithmetic of integers.

Texts are Python's arithmetic (of ``disttrain.symbolic``): they are parsed, and never run. What
Python's ``//`` and ``%`` give for negative numbers is what the nodes give.
"""

from __future__ import annotations

import ast
from typing import Any

from .types import FLOAT, INT64, Ref, Unmapped, element_type

_WHOLE = {"floor": "Floor", "ceil": "Ceil", "round": "Round"}


def node_of(text: str) -> ast.expr:
    """The expression of a text."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise Unmapped(f"the size {text!r}, which is no arithmetic") from None


class Arithmetic:
    """Writes expressions by ``w``; ``sources`` says where symbols are read; ``known``: what is
    written already, by texts."""

    def __init__(self, w: Any, sources: dict[str, tuple[Ref, int]], known: dict[str, Ref]) -> None:
        self.w, self.sources, self.known = w, sources, known

    def of(self, e: ast.expr) -> Ref:
        """The value of an expression: an int64 (or a float32) of no dimension."""
        text = ast.unparse(e)
        if text not in self.known:
            self.known[text] = self._made(e, text)
        return self.known[text]

    def _made(self, e: ast.expr, text: str) -> Ref:
        if text in self.sources:
            return self._read(*self.sources[text])
        if isinstance(e, ast.Constant) and type(e.value) in (int, float):
            return self.w.constant(e.value, INT64 if type(e.value) is int else FLOAT)
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, (ast.USub, ast.UAdd)):
            a = self.of(e.operand)
            return self.w.node("Neg", a) if isinstance(e.op, ast.USub) else a
        if isinstance(e, ast.BinOp):
            return self._binary(e, self.of(e.left), self.of(e.right))
        if isinstance(e, ast.Call):
            return self._call(ast.unparse(e.func).removeprefix("math."), e.args)
        raise Unmapped(f"the size {text!r}, which no shape of an input has")

    def _read(self, source: Ref, dim: int) -> Ref:
        w = self.w
        found = w.node("Shape", source, dtype=INT64, start=dim, end=dim + 1)
        return w.squeeze(found, (0,))

    def _float(self, a: Ref) -> Ref:
        return self.w.cast(a, FLOAT)

    def _binary(self, e: ast.BinOp, a: Ref, b: Ref) -> Ref:
        w, op = self.w, type(e.op)
        if op is ast.Div or FLOAT in (a.dtype, b.dtype):
            a, b = self._float(a), self._float(b)
        plain = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
        if op in plain:
            return w.node(plain[op], a, b)
        if op in (ast.FloorDiv, ast.Mod) and a.dtype == INT64:
            rest = w.node("Mod", a, b)
            return rest if op is ast.Mod else w.node("Div", w.node("Sub", a, rest), b)
        if op is ast.FloorDiv:
            return w.node("Floor", w.node("Div", a, b))
        if op in (ast.LShift, ast.RShift):
            power = w.node("Pow", w.constant(2, INT64), b)
            return w.node("Mul" if op is ast.LShift else "Div", a, power)
        raise Unmapped(f"the size {ast.unparse(e)!r}, whose operator ONNX lacks for integers")

    def _call(self, name: str, args: list[ast.expr]) -> Ref:
        w, given = self.w, [self.of(a) for a in args]
        if name in ("max", "min") and given:
            if any(a.dtype == FLOAT for a in given):
                given = [self._float(a) for a in given]
            return w.node(name.capitalize(), *given)
        if name in ("floor", "ceil", "round", "trunc", "int", "float", "abs") and len(given) == 1:
            return self._whole(name, given[0])
        raise Unmapped(f"the size {name}(...), which no operator of ONNX computes")

    def _whole(self, name: str, a: Ref) -> Ref:
        if name == "abs":
            return self.w.node("Abs", a)
        if name == "float":
            return self._float(a)
        if a.dtype == INT64:
            return a
        if name in _WHOLE:
            a = self.w.node(_WHOLE[name], a)
        return self.w.node("Cast", a, dtype=INT64, to=element_type(INT64))
