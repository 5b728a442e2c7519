"""Elementwise primitives of one, two and three tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..types import BOOL, FLOAT, INT64, Ref, Unmapped
from ..writer import RULES, Writer, rule

# Primitives that one operator is, for floating-point numbers.
_SAME = {
    "abs": "Abs", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin",
    "reciprocal": "Reciprocal", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf",
    "softplus": "Softplus",
}  # fmt: skip
_ROUNDED = {"floor": "Floor", "ceil": "Ceil", "round": "Round"}  # nothing to do for integers


def _same(kind: str) -> Any:
    return lambda w, a: w.node(kind, a)


def _rounded(kind: str) -> Any:
    return lambda w, a: w.node(kind, a) if a.dtype.kind in "fV" else a


for _name, _kind in _SAME.items():
    rule(_name)(_same(_kind))
for _name, _kind in _ROUNDED.items():
    rule(_name)(_rounded(_kind))


_CHECKS = ("check_index", "check_classes", "check_labels", "check_probabilities")


@rule("clone", "conj", "real", "to_copy", "held", *_CHECKS)
def identity(w: Writer, a: Ref, **how: Any) -> Ref:
    """The same values. (What is checked of an index here, a runtime checks itself.)"""
    return a


@rule("relu")
def _relu(w: Writer, a: Ref) -> Ref:
    if a.dtype.kind in "iu":
        return w.node("Max", a, w.constant(0, a.dtype))
    return w.node("Relu", a)


@rule("sign", "sgn")
def _sign(w: Writer, a: Ref) -> Ref:
    return a if a.dtype == BOOL else w.node("Sign", a)


def _scaled_log(base: float) -> Any:
    return lambda w, a: w.node("Div", w.node("Log", a), w.constant(math.log(base), a.dtype))


rule("log2")(_scaled_log(2.0))
rule("log10")(_scaled_log(10.0))


@rule("exp2")
def _exp2(w: Writer, a: Ref) -> Ref:
    return w.node("Pow", w.constant(2.0, a.dtype), a)


@rule("expm1")
def _expm1(w: Writer, a: Ref) -> Ref:
    return w.node("Sub", w.node("Exp", a), w.constant(1.0, a.dtype))


@rule("log1p")
def _log1p(w: Writer, a: Ref) -> Ref:
    return w.node("Log", w.node("Add", a, w.constant(1.0, a.dtype)))


@rule("rsqrt")
def _rsqrt(w: Writer, a: Ref) -> Ref:
    return w.node("Reciprocal", w.node("Sqrt", a))


@rule("square")
def _square(w: Writer, a: Ref) -> Ref:
    return w.node("Mul", a, a)


@rule("trunc")
def _trunc(w: Writer, a: Ref) -> Ref:
    if a.dtype.kind not in "fV":
        return a
    below = w.node("Less", a, w.constant(0.0, a.dtype), dtype=BOOL)
    return w.where(below, w.node("Ceil", a), w.node("Floor", a), a.dtype)


def _of_floats(w: Writer, a: Ref) -> Ref | None:
    """``a`` in a type that the tests for infinities and nan take; None for what has neither."""
    if a.dtype.kind not in "fV":
        return None
    return a if a.dtype.itemsize >= 4 else w.cast(a, FLOAT)


def _never(w: Writer, a: Ref, answer: bool) -> Ref:
    return w.node("Equal" if answer else "Less", a, a, dtype=BOOL)


@rule("isnan")
def _isnan(w: Writer, a: Ref) -> Ref:
    wide = _of_floats(w, a)
    return _never(w, w.cast(a, INT64), False) if wide is None else w.node("IsNaN", wide, dtype=BOOL)


@rule("isinf")
def _isinf(w: Writer, a: Ref) -> Ref:
    wide = _of_floats(w, a)
    return _never(w, w.cast(a, INT64), False) if wide is None else w.node("IsInf", wide, dtype=BOOL)


@rule("isfinite")
def _isfinite(w: Writer, a: Ref) -> Ref:
    wide = _of_floats(w, a)
    if wide is None:
        return _never(w, w.cast(a, INT64), True)
    odd = w.node(
        "Or", w.node("IsInf", wide, dtype=BOOL), w.node("IsNaN", wide, dtype=BOOL), dtype=BOOL
    )
    return w.node("Not", odd)


@rule("logical_not")
def _logical_not(w: Writer, a: Ref) -> Ref:
    return w.node("Not", w.bool_of(a))


@rule("bitwise_not")
def _bitwise_not(w: Writer, a: Ref) -> Ref:
    if a.dtype == BOOL:
        return w.node("Not", a)
    w.needs(18, "bitwise_not of integers")
    return w.node("BitwiseNot", a)


@rule("signbit")
def _signbit(w: Writer, a: Ref) -> Ref:
    if a.dtype.kind not in "fV":
        return w.node("Less", a, w.constant(0, a.dtype), dtype=BOOL)
    below = w.node("Less", a, w.constant(0.0, a.dtype), dtype=BOOL)
    under = w.node("Less", w.node("Reciprocal", a), w.constant(0.0, a.dtype), dtype=BOOL)
    return w.node("Or", below, under)


# --- two tensors -------------------------------------------------------------------------------
def pair(w: Writer, a: Any, b: Any) -> tuple[Ref, Ref, np.dtype]:
    """Both operands as tensors of one type."""
    kind = next(x.dtype for x in (a, b) if isinstance(x, Ref))
    if isinstance(a, Ref) and isinstance(b, Ref) and a.dtype != b.dtype:
        kind = np.result_type(a.dtype, b.dtype)
        return w.cast(a, kind), w.cast(b, kind), kind
    for x in (a, b):
        if isinstance(x, float) and kind.kind in "iub":
            kind = FLOAT if not float(x).is_integer() else kind
            a, b = (w.cast(y, kind) if isinstance(y, Ref) else y for y in (a, b))
        elif isinstance(x, int) and not isinstance(x, bool) and kind == BOOL:
            kind = INT64
            a, b = (w.cast(y, kind) if isinstance(y, Ref) else y for y in (a, b))
    return w.operand(a, kind), w.operand(b, kind), kind


def _arithmetic(kind: str, of_bools: str | None) -> Any:
    def run(w: Writer, a: Any, b: Any) -> Ref:
        x, y, have = pair(w, a, b)
        if have == BOOL:
            if of_bools is None:
                raise Unmapped(f"{kind} of booleans")
            return w.node(of_bools, x, y)
        return w.node(kind, x, y)

    return run


for _name, _kind, _of_bools in (
    ("add", "Add", "Or"), ("sub", "Sub", "Xor"), ("mul", "Mul", "And"), ("div", "Div", None),
    ("maximum", "Max", "Or"), ("minimum", "Min", "And"), ("clip_below", "Max", "Or"),
    ("clip_above", "Min", "And"),
):  # fmt: skip
    rule(_name)(_arithmetic(_kind, _of_bools))


@rule("pow")
def _pow(w: Writer, a: Any, b: Any) -> Ref:
    if isinstance(a, Ref) and not isinstance(b, Ref):
        if b == 2:
            return w.node("Mul", a, a)
        if b == 0.5:
            return w.node("Sqrt", a)
        if b == 1:
            return a
        if b == -1 and a.dtype.kind == "f":
            return w.node("Reciprocal", a)
    x, y, _ = pair(w, a, b)
    return w.node("Pow", x, y)


def _compared(kind: str, negated: bool = False) -> Any:
    def run(w: Writer, a: Any, b: Any) -> Ref:
        x, y, have = pair(w, a, b)
        if have == BOOL and kind != "Equal":
            x, y = w.cast(x, INT64), w.cast(y, INT64)
        found = w.node(kind, x, y, dtype=BOOL)
        return w.node("Not", found) if negated else found

    return run


for _name, _kind in (("eq", "Equal"), ("lt", "Less"), ("le", "LessOrEqual"), ("gt", "Greater"),
                     ("ge", "GreaterOrEqual")):  # fmt: skip
    rule(_name)(_compared(_kind))
rule("ne")(_compared("Equal", True))


def _logical(kind: str) -> Any:
    def run(w: Writer, a: Any, b: Any) -> Ref:
        x, y = (w.bool_of(v) if isinstance(v, Ref) else w.constant(bool(v), BOOL) for v in (a, b))
        return w.node(kind, x, y)

    return run


def _bitwise(kind: str) -> Any:
    def run(w: Writer, a: Any, b: Any) -> Ref:
        x, y, have = pair(w, a, b)
        if have == BOOL:
            return w.node(kind, x, y)
        w.needs(18, f"bitwise_{kind.lower()} of integers")
        return w.node(f"Bitwise{kind}", x, y)

    return run


for _name in ("And", "Or", "Xor"):
    rule(f"logical_{_name.lower()}")(_logical(_name))
    rule(f"bitwise_{_name.lower()}")(_bitwise(_name))


@rule("left_shift")
def _left_shift(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    return w.node("Mul", x, w.node("Pow", w.constant(2, kind), y))


@rule("right_shift")
def _right_shift(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    return _floor_divide(w, x, w.node("Pow", w.constant(2, kind), y))


@rule("fmod")
def _fmod(w: Writer, a: Any, b: Any) -> Ref:
    x, y, _ = pair(w, a, b)
    return w.node("Mod", x, y, fmod=1)


@rule("remainder")
def _remainder(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    if kind.kind in "iu":
        return w.node("Mod", x, y)
    rest, zero = w.node("Mod", x, y, fmod=1), w.constant(0, kind)
    sides = [w.node("Less", v, zero, dtype=BOOL) for v in (rest, y)]
    some = w.node("Not", w.node("Equal", rest, zero, dtype=BOOL))
    turned = w.node("And", some, w.node("Xor", *sides))
    return w.where(turned, w.node("Add", rest, y), rest, kind)


@rule("floor_divide")
def _floor_divide(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    quotient = w.node("Div", w.node("Sub", x, _remainder(w, x, y)), y)
    return quotient if kind.kind in "iu" else w.node("Round", quotient)


@rule("truncate_divide")
def _truncate_divide(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    return w.node("Div", x, y) if kind.kind in "iu" else _trunc(w, w.node("Div", x, y))


@rule("atan2")
def _atan2(w: Writer, a: Any, b: Any) -> Ref:
    y, x, kind = pair(w, a, b)
    zero, half = w.constant(0, kind), w.constant(math.pi / 2, kind)
    angle = w.node("Atan", w.node("Div", y, x))
    below, left = (w.node("Less", v, zero, dtype=BOOL) for v in (y, x))
    turn = w.where(below, -math.pi, math.pi, kind)
    beside = w.where(left, w.node("Add", angle, turn), angle, kind)
    upright = w.node("Mul", w.node("Sign", y), half)
    return w.where(w.node("Equal", x, zero, dtype=BOOL), upright, beside, kind)


@rule("logaddexp")
def _logaddexp(w: Writer, a: Any, b: Any) -> Ref:
    x, y, _ = pair(w, a, b)
    apart = w.node("Neg", w.node("Abs", w.node("Sub", x, y)))
    return w.node("Add", w.node("Max", x, y), w.node("Softplus", apart))


@rule("xlogy")
def _xlogy(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    none = w.node("Equal", x, w.constant(0, kind), dtype=BOOL)
    return w.where(none, 0.0, w.node("Mul", x, w.node("Log", y)), kind)


@rule("xlog1py")
def _xlog1py(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    return _xlogy(w, x, w.node("Add", y, w.constant(1, kind)))


@rule("copysign")
def _copysign(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    size = w.node("Abs", x)
    return w.where(_signbit(w, y), w.node("Neg", size), size, kind)


@rule("hypot")
def _hypot(w: Writer, a: Any, b: Any) -> Ref:
    x, y, _ = pair(w, a, b)
    return w.node("Sqrt", w.node("Add", w.node("Mul", x, x), w.node("Mul", y, y)))


@rule("heaviside")
def _heaviside(w: Writer, a: Any, b: Any) -> Ref:
    x, y, kind = pair(w, a, b)
    zero = w.constant(0, kind)
    above = w.cast(w.node("Greater", x, zero, dtype=BOOL), kind)
    return w.where(w.node("Equal", x, zero, dtype=BOOL), y, above, kind)


@rule("stepwise", "stepwise_backward")
def _stepwise(w: Writer, a: Ref, b: Any) -> Ref:
    return w.expand(a, w.outs[0].shape)


@rule("relu_backward")
def _relu_backward(w: Writer, a: Ref, b: Ref) -> Ref:
    none = w.node("LessOrEqual", b, w.constant(0, b.dtype), dtype=BOOL)
    return w.where(none, 0, a, a.dtype)


# --- three, and types --------------------------------------------------------------------------
@rule("where")
def _where(w: Writer, condition: Ref, a: Any, b: Any) -> Ref:
    return w.where(w.bool_of(condition), *pair_of(w, a, b), w.outs[0].dtype)


def pair_of(w: Writer, a: Any, b: Any) -> tuple[Ref, Ref]:
    """Two values in the type of the result."""
    kind = w.outs[0].dtype
    x, y = (w.cast(v, kind) if isinstance(v, Ref) else w.operand(v, kind) for v in (a, b))
    return x, y


@rule("clip")
def _clip(w: Writer, a: Ref, low: Any = None, high: Any = None) -> Ref:
    limits = [None if n is None else w.operand(n, a.dtype) for n in (low, high)]
    return a if limits == [None, None] else w.node("Clip", a, *limits)


@rule("cast")
def _cast(w: Writer, a: Ref, dtype: Any) -> Ref:
    return w.cast(a, dtype)


@rule("masked_scale")
def _masked_scale(w: Writer, a: Ref, mask: Ref, scale: float) -> Ref:
    kept = w.node("Mul", a, w.operand(scale, a.dtype)) if scale != 1 else a
    return w.where(w.bool_of(mask), kept, 0, a.dtype)


# --- special functions -------------------------------------------------------------------------
@rule("erfc")
def _erfc(w: Writer, a: Ref) -> Ref:
    return w.node("Sub", w.constant(1, a.dtype), w.node("Erf", a))


@rule("entr")
def _entr(w: Writer, a: Ref) -> Ref:
    zero = w.constant(0, a.dtype)
    inside = w.node("Neg", _xlogy(w, a, a))
    return w.where(w.node("Less", a, zero, dtype=BOOL), -math.inf, inside, a.dtype)


# --- from scalar expressions -------------------------------------------------------------------
_EXPRESSIONS = {
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf",
    "sqrt": "Sqrt", "sigmoid": "Sigmoid", "sin": "Sin", "cos": "Cos", "floor": "Floor",
    "ceil": "Ceil", "not": "Not", "isnan": "IsNaN", "add": "Add", "sub": "Sub", "mul": "Mul",
    "div": "Div", "pow": "Pow", "max": "Max", "min": "Min", "lt": "Less", "le": "LessOrEqual",
    "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal", "and": "And", "or": "Or",
}  # fmt: skip
_TOLD = frozenset("lt le gt ge eq ne and or not isnan".split())


def of_expression(w: Writer, e: Any, given: dict[str, Ref], kind: np.dtype) -> Ref:
    """The nodes of a scalar expression (``backends.lang.expr``); ``given``: its variables."""
    if e.op == "var":
        return given[e.attr]
    if e.op == "const":
        return w.operand(e.attr, kind)
    args = [of_expression(w, a, given, kind) for a in e.args]
    if e.op == "where":
        return w.where(args[0], args[1], args[2], kind)
    if e.op == "fma":
        return w.node("Add", w.node("Mul", args[0], args[1]), args[2])
    if e.op in ("log1p", "expm1", "rsqrt", "ne"):
        return RULES[e.op](w, *args)
    if e.op not in _EXPRESSIONS:
        raise Unmapped(f"the expression {e.op}")
    return w.node(_EXPRESSIONS[e.op], *args, dtype=BOOL if e.op in _TOLD else kind)
