"""Softmax and activations that are primitives, with what their derivatives are made of."""

from __future__ import annotations

import math
from typing import Any

from ....backends.lang import expr
from ....ops.declare import REGISTRY
from ..types import Ref
from ..writer import Writer, rule
from .elementwise import of_expression


@rule("softmax")
def _softmax(w: Writer, a: Ref, dim: int) -> Ref:
    return w.node("Softmax", a, axis=dim)


@rule("log_softmax")
def _log_softmax(w: Writer, a: Ref, dim: int) -> Ref:
    return w.node("LogSoftmax", a, axis=dim)


@rule("softmax_backward")
def _softmax_backward(w: Writer, g: Ref, y: Ref, dim: int) -> Ref:
    total = w.reduce("ReduceSum", w.node("Mul", g, y), (dim,), True)
    return w.node("Mul", y, w.node("Sub", g, total))


@rule("log_softmax_backward")
def _log_softmax_backward(w: Writer, g: Ref, y: Ref, dim: int) -> Ref:
    total = w.reduce("ReduceSum", g, (dim,), True)
    return w.node("Sub", g, w.node("Mul", w.node("Exp", y), total))


def _half(w: Writer, a: Ref, inside: Ref) -> Ref:
    """a (1 + inside) / 2."""
    one, half = w.constant(1, a.dtype), w.constant(0.5, a.dtype)
    return w.node("Mul", w.node("Mul", a, half), w.node("Add", inside, one))


@rule("gelu")
def _gelu(w: Writer, a: Ref) -> Ref:
    if w.opset >= 20:
        return w.node("Gelu", a)
    return _half(w, a, w.node("Erf", w.node("Mul", a, w.constant(math.sqrt(0.5), a.dtype))))


@rule("gelu_tanh")
def _gelu_tanh(w: Writer, a: Ref) -> Ref:
    if w.opset >= 20:
        return w.node("Gelu", a, approximate="tanh")
    cubic = w.node("Mul", w.node("Mul", w.node("Mul", a, a), a), w.constant(0.044715, a.dtype))
    slope = w.constant(math.sqrt(2 / math.pi), a.dtype)
    return _half(w, a, w.node("Tanh", w.node("Mul", w.node("Add", a, cubic), slope)))


@rule("silu")
def _silu(w: Writer, a: Ref) -> Ref:
    return w.node("Mul", a, w.node("Sigmoid", a))


def _expressed(name: str) -> Any:
    """The rule of an elementwise primitive by its scalar expression."""
    prim = REGISTRY[name]

    def run(w: Writer, *args: Any) -> Ref:
        kind = w.outs[0].dtype
        given = {n: w.operand(a, kind) for n, a in zip(prim.args, args, strict=True)}
        assert prim.expr is not None
        return of_expression(w, prim.expr(*map(expr.var, prim.args)), given, kind)

    return run


for _name in ("gelu_backward", "gelu_tanh_backward", "silu_backward"):
    rule(_name)(_expressed(_name))
