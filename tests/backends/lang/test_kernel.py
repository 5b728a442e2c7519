"""Kernels as data: which have a meaning, how they print, which types their expressions get."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.backends.lang import expr as E
from disttrain.backends.lang.expr import cast, const, index, load, var, where
from disttrain.backends.lang.kernel import (
    COMPUTE,
    ITEMSIZE,
    Array,
    Kernel,
    Let,
    Loop,
    Put,
    Reduce,
    Scalar,
    Store,
    Types,
    check,
    elementwise,
    floating,
    functions,
    join,
    resolve,
    rows_apart,
    sees_row,
    wide_type,
)

X, OUT = Array("x", "float32"), Array("out", "float32", writes=True)


def kernel(*steps, params=(X, OUT), flat=False):
    return Kernel("k", params, steps, flat)


def types(**named):
    """Types of expressions over variables of those storage types."""
    return Types(Kernel("t", tuple(Array(n, d) for n, d in named.items()), ()))


def test_sizes_are_numpy_s():
    assert ITEMSIZE.keys() == COMPUTE.keys()
    for name, size in ITEMSIZE.items():
        assert size == (2 if name == "bfloat16" else np.dtype(name).itemsize), name


def test_a_kernel_prints_what_it_does():
    k = kernel(
        Loop((Reduce("s", "sum", var("x")),)),
        Let("m", var("s") / 2),
        Put("r", var("m"), add=True),
        Loop((Store("out", var("x") - var("m")),)),
        params=(X, Scalar("lr", "float64"), Array("r", "float32", "row", True), OUT),
    )
    assert str(k).splitlines() == [
        "kernel k",
        "  x: float32 full",
        "  lr: float64",
        "  r: float32 row out",
        "  out: float32 full out",
        "  loop",
        "    s = sum x",
        "  m = div(s, 2)",
        "  r[] += m",
        "  loop",
        "    out[] = sub(x, m)",
    ]
    check(k)
    assert [a.name for a in k.arrays] == ["x", "r", "out"]
    assert [s.name for s in k.scalars] == ["lr"]


STORE = Loop((Store("out", var("x")),))
BAD = {
    "two parameters of one name": kernel(STORE, params=(X, X, OUT)),
    "no such type: float8": kernel(STORE, params=(Array("x", "float8"), OUT)),
    "is no name": kernel(STORE, params=(X, OUT, Scalar("a b"))),
    "no full array": kernel(params=(Array("x", "float32", "row", True),)),
    "writes nothing": kernel(params=(X,)),
    "flat": kernel(STORE, params=(X, OUT, Array("c", "float32", "col")), flat=True),
    "y is used before it is computed": kernel(Loop((Store("out", var("y")),))),
    "s is used before": kernel(Loop((Reduce("s", "sum", var("x")), Store("out", var("s"))))),
    "no reduction mean": kernel(Loop((Reduce("s", "mean", var("x")),))),
    "add takes 2": kernel(Loop((Store("out", E.Expr("add", (var("x"),))),))),
    "exp takes 1": kernel(Loop((Store("out", E.Expr("exp", (var("x"), var("x")))),))),
}


@pytest.mark.parametrize("why", BAD)
def test_a_kernel_without_meaning_is_refused(why):
    with pytest.raises(AssertionError, match=why):
        check(BAD[why])


@pytest.mark.parametrize(
    "step, space, writes",
    [(STORE, "full", False), (STORE, "row", True), (Put("out", var("x")), "col", True)],
)
def test_writes_go_where_they_may(step, space, writes):
    with pytest.raises(AssertionError):
        check(kernel(step, params=(X, OUT_AS(space, writes), Array("o", "float32", writes=True))))


def OUT_AS(space, writes):  # noqa: N802
    return Array("out", "float32", space, writes)


def test_a_row_value_is_known_after_its_loop_and_not_inside():
    s = Reduce("s", "sum", var("x"))
    check(kernel(Loop((s,)), Loop((Store("out", var("s")),))))
    check(kernel(Loop((s,)), Let("m", var("s")), Loop((Store("out", var("m")),))))


def test_types_meet_as_numpy_s_weak_numbers_do():
    """Definite types as numpy promotes them, except that integers meet floats in float32."""
    known = ("bool", "int32", "int64", "float32", "float64")
    for a, b in itertools.product(known, known):
        want = np.promote_types(a, b).name
        if "float" in want and "float64" not in (a, b):
            want = "float32"
        assert join(a, b) == join(b, a) == want, (a, b)
        assert join(a, a) == a
    for kind in known[3:]:
        assert join("weak_float", kind) == join("weak_int", kind) == kind
    assert join("weak_int", "int32") == "int32" and join("weak_int", "int64") == "int64"
    assert join("weak_float", "int64") == join("bool", "weak_float") == "float32"
    assert join("bool", "weak_int") == "int64"
    assert join("weak_int", "weak_float") == "weak_float"


def test_weak_types_are_made_definite_and_functions_are_computed_in_floats():
    assert [resolve(k) for k in ("weak_int", "weak_float", "bool")] == ["int64", "float32", "bool"]
    assert [floating(k) for k in ("bool", "int64", "float64", "weak_float")] == [
        "float32", "float32", "float64", "weak_float",
    ]  # fmt: skip
    assert wide_type("float64") == "float64"
    assert {wide_type(d) for d in COMPUTE if d != "float64"} == {"float32"}


def test_types_of_expressions():
    t = types(h="float16", i="int8", l="int64", b="bool", d="float64")
    assert t[var("h")] == "float32" and t[var("i")] == "int32"
    assert t[var("h") + 1] == "float32" and t[var("l") * 2.5] == "float32"
    assert t[var("d") + var("h")] == "float64"
    assert t[var("b") + var("b")] == "int32" and t[-var("b")] == "int32"
    assert t[var("l") < var("d")] == "bool" and t[E.isnan(var("d"))] == "bool"
    assert t[E.exp(var("l"))] == "float32" and t[var("i") / var("i")] == "float32"
    assert t[index()] == "int64" and t[load("d", index())] == "float64"
    assert t[cast(var("d"), "bfloat16")] == "float32"
    assert t[where(var("d") > 0, var("i"), 2)] == "int32"
    assert t[const(True)] == "bool" and t[const(1)] == "weak_int" and t[const(1.0)] == "weak_float"


def test_operands_are_computed_where_they_meet():
    t = types(i="int32", d="float64", f="float32")
    assert t.operands(var("i") < var("d")) == "float64"
    assert t.operands(where(var("d") > 0, var("f"), var("i"))) == "float32"  # not the condition
    assert t.operands(where(var("d"), var("f"), var("f"))) == "float32"
    assert t.operands(var("i") / var("i")) == "float32"  # an integer quotient is a float
    assert t.operands(const(1) + const(2)) == "int64"


def test_the_type_of_a_deep_expression_needs_no_deep_stack():
    e = var("f")
    for _ in range(5000):
        e = e + 1
    assert types(f="float32")[e] == "float32"


def test_what_sees_a_row_and_what_keeps_rows_apart():
    assert not sees_row(kernel(STORE)) and rows_apart(kernel(STORE))
    assert sees_row(kernel(Loop((Reduce("s", "sum", var("x")),)), STORE))
    assert sees_row(kernel(Loop((Store("out", var("x") + index()),))))
    assert sees_row(kernel(Loop((Store("out", load("x", const(0))),))))
    for space in ("col", "one"):
        assert not rows_apart(kernel(STORE, params=(X, OUT, Array("w", "float32", space, True))))
    assert rows_apart(kernel(STORE, params=(X, OUT, Array("w", "float32", "col"))))


def test_the_price_counts_each_function_once():
    e = E.exp(var("x"))
    assert functions(kernel(Loop((Store("out", e / (1 + e) + E.tanh(var("x"))),)))) == 2
    assert functions(kernel(Let("m", E.exp(const(1.0))), STORE)) == 0  # once a row, not an element


def test_elementwise_takes_a_function_or_an_expression():
    by_function = elementwise("f", lambda a, b: a * b, (X, Scalar("k")), "float64")
    assert by_function == elementwise("f", var("x") * var("k"), (X, Scalar("k")), "float64")
    assert by_function.flat and by_function.params[-1] == Array("out", "float64", "full", True)
    check(by_function)
