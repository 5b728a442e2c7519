"""Expressions as statements of C: constants to the bit, one variable for each node, no more."""

from __future__ import annotations

import math
import re
import struct

import pytest

from disttrain.backends.cuda.codegen.values import Values, convert, literal
from disttrain.backends.lang import expr as E
from disttrain.backends.lang.expr import cast, index, var, where
from disttrain.backends.lang.kernel import Array, Kernel, Types


class Plain(Values):
    """Leaves are their names; ``x`` and positions move, all else is the same for a row."""

    def __init__(self, **named):
        super().__init__(Types(Kernel("k", tuple(Array(n, d) for n, d in named.items()), ())))

    def leaf(self, node):
        return "j" if node.op == "index" else node.attr

    def moves(self, expr):
        return any(n.op == "index" or n.attr == "x" for n in E.walk(expr))


def stated(expr, kind="", **named):
    """The statements that compute ``expr``, and its value."""
    values = Plain(**named)
    name = values.value(expr, kind)
    return values.lines, name


def read(text, kind):
    """The number that a literal of C stands for."""
    word = re.fullmatch(r"__(?:uint_as_float|longlong_as_double)\((0x\w+?)(?:u|ll)\)", text)
    if word:
        bits = struct.pack("I" if kind == "float32" else "Q", int(word[1], 16))
        return struct.unpack("f" if kind == "float32" else "d", bits)[0]
    return float.fromhex(text.rstrip("f") if kind == "float32" else text)


NUMBERS = (0.0, -0.0, 1.0, 0.1, -1e-45, 3.4e38, 5e-324, 1e300, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_a_float_constant_is_the_same_to_the_bit(value):
    assert struct.pack("d", read(literal(value, "float64"), "float64")) == struct.pack("d", value)
    try:
        short = struct.pack("f", value)
    except OverflowError:  # beyond float32
        short = struct.pack("f", math.copysign(math.inf, value))
    assert struct.pack("f", read(literal(value, "float32"), "float32")) == short


@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_an_integer_constant_wraps_as_its_type_does(value):
    long = re.fullmatch(r"\(\(dt_i64\)(\d+)ull\)", literal(value, "int64"))
    assert int(long[1]) == value % 2**64
    short = re.fullmatch(r"\(\(int\)(\d+)u\)", literal(value, "int32"))
    assert int(short[1]) == value % 2**32


def test_constants_of_truth():
    assert [literal(v, "bool") for v in (0, 2.5, True, False)] == ["false", "true", "true", "false"]
    assert literal(2.9, "int32") == "((int)2u)"


def test_conversions():
    assert convert("v1", "float32", "float32") == "v1"
    assert convert("v1", "float64", "bool") == "(v1 != 0)"
    assert convert("v1", "bool", "int64") == "(dt_i64)v1"


def test_a_node_that_is_used_twice_is_computed_once():
    e = E.exp(var("x"))
    lines, (name, kind) = stated(e / (e + 1), x="float32")
    assert lines == [
        "const float v1 = x;",
        "const float v2 = dt_exp(v1);",
        "const float v3 = v2 + 0x1.0000000000000p+0f;",
        "const float v4 = v2 / v3;",
    ]
    assert (name, kind) == ("v4", "float32")


@pytest.mark.parametrize(
    "expr, line",
    [
        (var("i") + var("i"), "const int v2 = dt_add(v1, v1);"),
        (-var("i"), "const int v2 = dt_sub((int)0, v1);"),
        (E.floor(var("i")), "const int v2 = v1;"),
        (var("i") / var("i"), "const float v2 = (float)v1 / (float)v1;"),
        (-var("x"), "const float v2 = -(v1);"),
        (~var("b"), "const bool v2 = !v1;"),
        (var("b") & var("b"), "const bool v2 = v1 && v1;"),
        (E.eq(var("b"), var("b")), "const bool v2 = v1 == v1;"),
        (var("b") < var("b"), "const bool v2 = (int)v1 < (int)v1;"),
        (E.isnan(var("i")), "const bool v2 = (float)v1 != (float)v1;"),
        (cast(var("x"), "float16"), "const float v2 = dt_from_float16(dt_to_float16(v1));"),
        (cast(var("x"), "int32"), "const int v2 = (int)v1;"),
        (E.max(var("x"), 0), "const float v2 = dt_max(v1, 0x0.0p+0f);"),
        (
            where(var("b"), 1, 2.0),
            "const float v2 = v1 ? 0x1.0000000000000p+0f : 0x1.0000000000000p+1f;",
        ),
    ],
    ids=repr,
)
def test_one_statement_a_node(expr, line):
    lines, _ = stated(expr, x="float32", i="int32", b="bool")
    assert lines[-1] == line


def test_a_value_is_given_in_the_type_that_is_asked_for():
    assert stated(var("i"), "float64", i="int32")[1] == ("(double)v1", "float64")
    assert stated(E.const(3), "float32", i="int32") == ([], ("0x1.8000000000000p+1f", "float32"))


def test_what_is_the_same_for_a_row_is_computed_before_its_loop():
    values = Plain(x="float32", r="float32", s="float32")
    expr = var("x") * E.exp(var("r")) + E.exp(var("s")) * index()
    values.hoist([expr], written={"s"})
    assert values.lines == ["const float v1 = r;", "const float v2 = dt_exp(v1);"]
    values.cols = {}
    values.value(expr)
    assert sum("dt_exp(v1)" in line for line in values.lines) == 1
    assert set(values.row) == {var("r"), E.exp(var("r"))}


def test_what_a_write_changes_is_read_anew():
    values = Plain(r="float32", s="float32")
    values.value(var("r") + var("s"))
    values.forget("r")
    assert set(values.row) == {var("s")}
    values.lines.clear()
    values.value(var("r") + var("s"))
    assert values.lines == ["const float v4 = r;", "const float v5 = v4 + v2;"]
