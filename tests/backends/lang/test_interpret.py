"""What the kernel language means, by numpy: held against loops in plain Python."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.lang import expr as E
from disttrain.backends.lang.expr import BINARY, TERNARY, UNARY, cast, index, load, var
from disttrain.backends.lang.interpret import FUNCTIONS, erf, interpret, run, storage
from disttrain.backends.lang.kernel import (
    Array,
    Kernel,
    Let,
    Loop,
    Put,
    Reduce,
    Scalar,
    Store,
    elementwise,
)


def test_every_function_of_the_language_has_a_meaning():
    assert set(FUNCTIONS) == set(UNARY) | set(BINARY) | set(TERNARY) - {"where"}


def test_types_are_found_by_name_also_those_numpy_lacks():
    assert storage("float16") == np.float16
    assert storage("bfloat16") == np.dtype(ml_dtypes.bfloat16)


def test_erf_is_that_of_the_library_in_the_type_given():
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    assert erf(x).dtype == np.float32
    np.testing.assert_array_equal(erf(x), [np.float32(math.erf(v)) for v in x])


def test_a_row_kernel_is_softmax():
    x = Array("x", "float32"), Array("y", "float32", writes=True)
    kernel = Kernel(
        "softmax",
        x,
        (
            Loop((Reduce("top", "max", var("x")),)),
            Loop((Reduce("total", "sum", E.exp(var("x") - var("top"))),)),
            Loop((Store("y", E.exp(var("x") - var("top")) / var("total")),)),
        ),
    )
    a = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    out = np.empty_like(a)
    run(kernel, (a, out))
    for row, got in zip(a.astype(float), out):
        want = [math.exp(v) / sum(math.exp(w) for w in row) for v in row]
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_values_of_a_loop_are_computed_before_any_is_written():
    kernel = Kernel(
        "swap",
        (Array("a", "int64", writes=True), Array("b", "int64", writes=True)),
        (Loop((Store("a", var("b")), Store("b", var("a")))),),
    )
    a, b = np.array([[1, 2]]), np.array([[3, 4]])
    run(kernel, (a, b))
    assert a.tolist() == [[3, 4]] and b.tolist() == [[1, 2]]


def test_a_row_value_stays_as_it_was_when_its_array_is_written():
    kernel = Kernel(
        "step",
        (Array("x", "float64", writes=True), Array("r", "float64", "row", True)),
        (Let("old", var("r")), Put("r", var("r") + 1), Loop((Store("x", var("old")),))),
    )
    x, r = np.zeros((2, 2)), np.array([3.0, 5.0])
    run(kernel, (x, r))
    assert r.tolist() == [4, 6] and x.tolist() == [[3, 3], [5, 5]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maxnum_passes_over_nan_and_max_keeps_it(dtype):
    full, row = Array("x", dtype), (Array("m", dtype, "row", True), Array("n", dtype, "row", True))
    steps = (
        Loop((Reduce("a", "max", var("x")), Reduce("b", "maxnum", var("x")))),
        Put("m", var("a")),
        Put("n", var("b")),
    )
    x = np.array([[1, np.nan, 3], [np.nan] * 3, [-2, -5, -3]], dtype)
    m, n = np.zeros(3, dtype), np.zeros(3, dtype)
    run(Kernel("tops", (full, *row), steps), (x, m, n))
    np.testing.assert_array_equal(m, [np.nan, np.nan, -2])
    np.testing.assert_array_equal(n, [3, -np.inf, -2])


def test_what_is_added_to_a_column_or_one_sums_over_the_rows():
    params = (
        Array("x", "float32"),
        Array("col", "float32", "col", True),
        Array("one", "float32", "one", True),
    )
    steps = (
        Loop((Store("col", var("x"), add=True), Reduce("s", "sum", var("x")))),
        Put("one", var("s"), add=True),
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    col, one = np.full(3, 10, np.float32), np.array([100], np.float32)
    run(Kernel("sums", params, steps), (x, col, one))
    assert col.tolist() == [13, 15, 17] and one.tolist() == [115]


def test_a_flat_kernel_sees_one_row_and_takes_scalars_and_arrays_without_dimensions():
    kernel = elementwise(
        "scaled", lambda x, k: x * k, (Array("x", "float64"), Scalar("k", "float64")), "float64"
    )
    out = np.empty((2, 2))
    run(kernel, (np.array([[1.0, 2], [3, 4]]), 0.5, out))
    assert out.tolist() == [[0.5, 1], [1.5, 2]]
    zero = np.array(0.0)
    run(kernel, (np.array(3.0), 2.0, zero))
    assert zero == 6


def test_no_elements_are_no_work():
    kernel = Kernel(
        "top",
        (Array("x", "float32"), Array("m", "float32", "row", True)),
        (Loop((Reduce("a", "max", var("x")),)), Put("m", var("a"))),
    )
    m = np.array([7, 7], np.float32)
    run(kernel, (np.empty((2, 0), np.float32), m))
    assert m.tolist() == [7, 7]


def test_a_load_from_outside_is_nan_or_zero():
    for dtype, outside in (("float32", np.nan), ("int32", 0)):
        x = np.array([[1, 2, 3], [4, 5, 6]], dtype)
        got = interpret(load("x", index() - 1), {"x": x})
        np.testing.assert_array_equal(got, [[outside, 1, 2], [outside, 4, 5]])
        got = interpret(load("x", index() + 1), {"x": x})
        np.testing.assert_array_equal(got, [[2, 3, outside], [5, 6, outside]])


@pytest.mark.parametrize("dtype, value, want", [("int8", 200, -56), ("uint8", 300, 44)])
def test_narrow_integers_are_computed_in_32_bits_and_wrap_when_stored(dtype, value, want):
    x = np.array([value // 2], np.int64)
    narrow = x.astype(dtype)
    double = interpret(var("x") * 2, {"x": narrow})
    assert double.dtype == np.int32
    out = np.empty(1, dtype)
    run(elementwise("twice", lambda x: x * 2, (Array("x", dtype),), dtype), (narrow, out))
    assert double.item() == int(narrow[0]) * 2 and out.item() == np.int64(double.item()).astype(
        dtype
    )
    assert interpret(cast(var("v"), dtype), {"v": np.array([value])}).item() == want


def test_a_sum_of_booleans_counts_and_rounding_leaves_integers_alone():
    assert interpret(var("a") + var("b"), {"a": np.array([True]), "b": np.array([True])}) == 2
    big = np.array([2**60 + 1])
    for f in (E.floor, E.ceil):
        assert interpret(f(var("x")), {"x": big}).item() == 2**60 + 1


def test_a_row_value_is_known_to_later_steps():
    kernel = Kernel(
        "centred",
        (Array("x", "float64", writes=True), Array("mean", "float64", "row", True)),
        (
            Loop((Reduce("s", "sum", var("x")),)),
            Let("m", var("s") / 4),
            Put("mean", var("m")),
            Loop((Store("x", var("x") - var("mean")),)),
        ),
    )
    x, mean = np.array([[1.0, 2, 3, 6], [0, 0, 0, 8]]), np.empty(2)
    run(kernel, (x, mean))
    assert mean.tolist() == [3, 2]
    assert x.tolist() == [[-2, -1, 0, 3], [-2, -2, -2, 6]]
