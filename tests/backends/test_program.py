"""Kernels as generated code against the same kernels by numpy: layouts, types, masks, errors."""

import gc
import os
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.family import Family
from disttrain.backends.lang import expr as E
from disttrain.backends.lang.expr import cast, index, load, var, where
from disttrain.backends.lang.kernel import (
    Array,
    Kernel,
    Let,
    Loop,
    Put,
    Reduce,
    Scalar,
    Store,
    check,
    elementwise,
)
from disttrain.backends.program import Program
from disttrain.errors import DTypeError, ShapeError
from support.cases.random_kernels import Draw

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64", "uint8")


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)


def both(kernel, args, outs):
    """Run by generated code and by numpy; ``outs`` are positions of what is written."""
    results = []
    for native in (True, False):
        p = Program(kernel, native)
        if native and not p.native:
            pytest.skip(p.why_not)
        mine = [a.copy() if k in outs else a for k, a in enumerate(args)]
        p(*mine)
        results.append([mine[k] for k in outs])
    return results


def close(got, want, tolerance=1e-6):
    for a, b in zip(got, want):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance
        )


ADD = elementwise(
    "add3", lambda a, b: a + 2 * b, (Array("a", "float32"), Array("b", "float32")), "float32"
)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 1000])
def test_every_length_is_done_to_the_end_and_not_beyond(n):
    memory = np.full(n + 40, 7, np.float32)
    a = np.arange(n, dtype=np.float32)
    Program(ADD)(a, a, memory[20 : 20 + n])
    np.testing.assert_array_equal(memory[20 : 20 + n], 3 * a)
    assert (memory[:20] == 7).all() and (memory[20 + n :] == 7).all()


def layouts():
    """Pairs of arrays of shape (6, 5, 34) that numpy would call awkward, by name."""
    rng = np.random.default_rng(0)
    big = rng.standard_normal((12, 10, 70)).astype(np.float32)
    whole = rng.standard_normal((6, 5, 34)).astype(np.float32)
    return {
        "contiguous": whole,
        "transposed": rng.standard_normal((34, 5, 6)).astype(np.float32).T,
        "swapped": rng.standard_normal((5, 6, 34)).astype(np.float32).swapaxes(0, 1),
        "every other": big[::2, ::2, :68:2],
        "backwards": whole[::-1, :, ::-1],
        "row": whole[0, 0],
        "column": whole[:, :, :1],
        "plane": whole[:, :1, :],
        "scalar": np.array(2.5, np.float32),
        "window": big[3:9, 2:7, 9:43],
    }


@pytest.mark.parametrize("left", layouts())
@pytest.mark.parametrize("right", ["contiguous", "transposed", "row", "column", "scalar"])
def test_any_layout_and_broadcasting(left, right):
    a, b = layouts()[left], layouts()[right]
    shape = np.broadcast_shapes(a.shape, b.shape)
    for out in (np.zeros(shape, np.float32), np.zeros(shape[::-1], np.float32).T):
        Program(ADD)(a, b, out)
        np.testing.assert_allclose(out, a + 2 * b, rtol=1e-6)


def test_strided_output_leaves_the_gaps_alone():
    out = np.full((8, 10), -1.0, np.float32)
    a = np.ones((4, 5), np.float32)
    Program(ADD)(a, a, out[::2, ::2])
    assert (out[::2, ::2] == 3).all() and (out == -1).sum() == 60


def test_in_place_on_an_input():
    a = np.arange(50, dtype=np.float32)
    Program(ADD)(a, a, a)
    np.testing.assert_array_equal(a, 3 * np.arange(50))


@pytest.mark.parametrize("name", FLOATS + INTS)
def test_every_type_is_loaded_and_stored(name):
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(0, 30, (2, 77))).astype(dtype(name))
    kernel = elementwise("sum", lambda a, b: a + b, (Array("a", name), Array("b", name)), name)
    got, want = both(kernel, [a, b, np.empty_like(a)], [2])
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[0], a + b)


@pytest.mark.parametrize("source", FLOATS + INTS + ("bool",))
def test_conversions(source):
    x = np.array([0, 1, 2, 3, 100, 5, 0, 1] * 5).astype(dtype(source))
    for target in FLOATS + INTS + ("bool",):
        kernel = elementwise("convert", lambda x: x, (Array("x", source),), target)
        got, want = both(kernel, [x, np.empty(x.shape, dtype(target))], [1])
        np.testing.assert_array_equal(got[0], want[0])


def test_bfloat16_rounds_to_even_and_keeps_nan():
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, np.nan, np.inf, -np.inf, 3.39e38], np.float32)
    kernel = elementwise("narrow", lambda x: x, (Array("x", "float32"),), "bfloat16")
    out = np.empty(x.shape, ml_dtypes.bfloat16)
    Program(kernel)(x, out)
    np.testing.assert_array_equal(
        out.view(np.uint16)[[0, 1, 3, 4, 5]], x.astype(out.dtype).view(np.uint16)[[0, 1, 3, 4, 5]]
    )
    assert np.isnan(out[2])


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: where(a > b, a, b) + where(E.eq(a, a), 1.0, 0.0),
        lambda a, b: E.max(a, b) * E.min(a, 0.5),
        lambda a, b: where((a < 0) & (b < 0), a, where((a >= 1) | ~(b > 0), b, 3.0)),
        lambda a, b: E.floor(a * 10) + E.ceil(b * 10) - abs(a),
        lambda a, b: cast(cast(a * 100, "int32"), "float32") + cast(a > 0, "float32"),
        lambda a, b: where(E.isnan(a / (b - b)), 1.0, 2.0),
        lambda a, b: E.fma(a, b, 1.0) + a / b,
        lambda a, b: cast(a, "float64") * b + index(),
    ],
)
def test_expressions_agree_with_numpy(fn):
    a, b = np.random.default_rng(2).standard_normal((2, 3, 53)).astype(np.float32)
    kernel = elementwise("f", fn, (Array("a", "float32"), Array("b", "float32")), "float32")
    a, b = a[0], b[0]
    close(*both(kernel, [a, b, np.empty_like(a)], [2]))


def test_integer_expressions_agree_with_numpy():
    a = np.arange(-20, 20)
    fn = lambda a: where(E.ne(a, 3), abs(a) * 3 - 1, E.min(a, 0)) + cast(a / 7, "int64")
    kernel = elementwise("f", fn, (Array("a", "int64"),), "int64")
    got, want = both(kernel, [a, np.empty_like(a)], [1])
    np.testing.assert_array_equal(got[0], want[0])


def test_nan_goes_through_max_and_relu():
    x = np.array([np.nan, 1.0, -1.0, -0.0], np.float32)
    out = np.empty_like(x)
    Program(elementwise("relu", lambda x: E.max(x, 0.0), (Array("x", "float32"),), "float32"))(
        x, out
    )
    np.testing.assert_array_equal(out, [np.nan, 1, 0, 0])


PUTS = (("out", "full"), ("all", "one"))
STATISTICS = Kernel(
    "statistics",
    (
        Array("x", "float32"),
        Array("t", "int64", "row"),
        Array("w", "float32", "col"),
        Scalar("k"),
        Array("high", "float32", "row", writes=True),
        Array("low", "float32", "row", writes=True),
        Array("pick", "float32", "row", writes=True),
        Array("out", "float32", writes=True),
        Array("cols", "float32", "col", writes=True),
        Array("all", "float64", "one", writes=True),
    ),
    (
        Loop((Reduce("a", "max", var("x")), Reduce("b", "min", var("x") * var("w")))),
        Let("span", var("a") - var("b") + var("k")),
        Loop((Store("out", var("x") / var("span")), Store("cols", var("x") * var("w"), add=True))),
        Loop((Reduce("s", "sum", var("out")),)),
        Put("high", var("a")),
        Put("low", var("b")),
        Put("pick", load("x", var("t"))),
        Put("all", var("s"), add=True),
    ),
)


@pytest.mark.parametrize("shape", [(1, 1), (4, 7), (3, 16), (2, 3, 65), (5, 130)])
@pytest.mark.parametrize("flip", [False, True])
def test_row_kernels_agree_with_numpy(shape, flip):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape[::-1] if flip else shape).astype(np.float32)
    x = x.T if flip else x
    rows, cols = x.shape[:-1], x.shape[-1]
    t = rng.integers(0, cols + 1, rows)
    w = rng.standard_normal(cols).astype(np.float32)
    row = [np.zeros(rows, np.float32) for _ in range(3)]
    args = [
        x,
        t,
        w,
        2.0,
        *row,
        np.zeros(x.shape, np.float32),
        np.zeros(cols, np.float32),
        np.zeros(1),
    ]
    close(*both(STATISTICS, args, range(4, 10)), tolerance=1e-5)


@pytest.mark.parametrize("op, fold", [("max", np.max), ("min", np.min), ("maxnum", np.nanmax)])
def test_reductions_treat_nan_as_they_say(op, fold):
    x = np.random.default_rng(4).standard_normal((30, 75)).astype(np.float32)
    x[np.arange(30), np.arange(30) * 2] = np.nan
    params = (Array("x", "float32"), Array("out", "float32", "row", writes=True))
    kernel = Kernel("fold", params, (Loop((Reduce("r", op, var("x")),)), Put("out", var("r"))))
    out = np.empty(30, np.float32)
    want = fold(x, axis=-1)
    x[3], want[3] = np.nan, -np.inf if op == "maxnum" else np.nan
    for native in (True, False):
        Program(kernel, native)(x, out)
        np.testing.assert_array_equal(out, want)


def test_flat_reduction_of_strided_memory():
    kernel = Kernel(
        "total",
        (Array("x", "int32"), Array("out", "int64", "one", writes=True)),
        (Loop((Reduce("s", "sum", cast(var("x"), "int64")),)), Put("out", var("s"))),
        flat=True,
    )
    x = np.arange(600, dtype=np.int32).reshape(20, 30)[::3, 1::2]
    out = np.zeros(1, np.int64)
    Program(kernel)(x, out)
    assert out[0] == x.sum()


def test_a_flat_kernel_puts_once_however_its_arrays_lie():
    params = (Array("x", "float32"), *(Array(n, "float32", s, writes=True) for n, s in PUTS))
    steps = (Loop((Store("out", var("x") + 1),)), Put("all", E.const(3.0), add=True))
    kernel = Kernel("once", params, steps, flat=True)
    x = np.ones((3, 4, 10), np.float32)[..., ::2]
    args = [x, np.zeros((3, 4, 5), np.float32), np.ones(1, np.float32)]
    (out, total), _ = both(kernel, args, [1, 2])
    assert (out == 2).all() and total == 4


def test_every_row_adds_to_a_sum_and_half_types_are_summed_in_float32():
    params = (
        Array("x", "float16"),
        Array("out", "float16", writes=True),
        Array("all", "float64", "one", writes=True),
    )
    third = E.const(0.3333333)
    steps = (Loop((Store("out", var("x") * third, add=True),)), Put("all", third, add=True))
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    args = [x, np.ones((3, 4), np.float16), np.zeros(1)]
    got, want = both(Kernel("thirds", params, steps), args, [1, 2])
    np.testing.assert_array_equal(got[0], want[0])
    assert abs(got[1] - 1) < 1e-6 and abs(want[1] - 1) < 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_random_kernels_agree_with_numpy(seed):
    draw = Draw(seed)
    shape = [(3, 7), (2, 3, 40), (2, 700)][seed % 3]
    args = draw.arguments(shape)
    if draw.flat:
        args = [
            np.array(np.broadcast_to(a, shape)).reshape(-1) if _full(p) else a
            for p, a in zip(draw.kernel.params, args)
        ]
    outs = [k for k, p in enumerate(draw.kernel.params) if isinstance(p, Array) and p.writes]
    with np.errstate(all="ignore"):
        got, want = both(draw.kernel, args, outs)
    close(got, want, tolerance=4e-3)


def _full(p):
    return isinstance(p, Array) and p.space == "full"


def test_empty_arrays_change_nothing():
    Program(ADD)(*[np.empty((0, 4), np.float32)] * 2, np.empty((0, 4), np.float32))
    total = np.zeros(1)
    params = (Array("x", "float32"), Array("out", "float64", "one", writes=True))
    steps = (Loop((Reduce("s", "sum", var("x")),)), Put("out", cast(var("s"), "float64"), add=True))
    Program(Kernel("t", params, steps, flat=True))(np.empty(0, np.float32), total)
    assert total[0] == 0


def test_fast_declines_what_it_cannot_do_and_slow_says_what_is_wrong():
    p, a = Program(ADD), np.ones(4, np.float32)
    if not p.native:
        pytest.skip(p.why_not)
    frozen = np.ones(4, np.float32)
    frozen.flags.writeable = False
    wrong = [
        (a, a),
        (a, a, np.ones(4)),
        (a, a, np.ones(5, np.float32)),
        (a, a, frozen),
        (a, a, [1, 2, 3, 4]),
        (a, a, None),
        (a[::2], a[::2], np.ones(4, np.float32)),
        (a, a, np.ones(4, ">f4")),
    ]
    for args in wrong:
        assert p.fast(*args) is None
    with pytest.raises(DTypeError, match="out is float64; an array of float32 is needed"):
        p(*wrong[1])
    with pytest.raises(ShapeError):
        p(*wrong[2])
    with pytest.raises(ShapeError, match="read-only"):
        p(*wrong[3])
    with pytest.raises(DTypeError, match="out is list"):
        p(*wrong[4])


def test_calls_keep_reference_counts():
    p, a, out = Program(ADD), np.ones(4, np.float32), np.ones(4, np.float32)
    before = sys.getrefcount(out), sys.getrefcount(a)
    for _ in range(100):
        p(a, a, out)
        p.fast(a, a, None)
    gc.collect()
    assert (sys.getrefcount(out), sys.getrefcount(a)) == before


def test_large_runs_let_other_threads_run():
    p = Program(ADD)
    a, out = np.ones(1 << 20, np.float32), np.empty(1 << 20, np.float32)
    outs = [np.empty_like(out) for _ in range(4)]
    threads = [threading.Thread(target=lambda o=o: [p(a, a, o) for _ in range(5)]) for o in outs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((o == 3).all() for o in outs)


def test_threads_may_ask_for_a_kernel_at_the_same_moment():
    family = Family(lambda name: elementwise("twice", lambda x: x * 2, (Array("x", name),), name))
    outs = [np.empty(30, np.float32) for _ in range(4)]
    x = np.ones(30, np.float32)
    threads = [
        threading.Thread(target=lambda o=o: [family[x.dtype](x, o) for _ in range(20)])
        for o in outs
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((o == 2).all() for o in outs)


def test_kernels_work_after_fork():
    p, a, out = Program(ADD), np.ones(40, np.float32), np.empty(40, np.float32)
    p(a, a, out)
    pid = os.fork()
    if pid == 0:
        mine = np.zeros(40, np.float32)
        p(a, a, mine)
        later = Program(elementwise("later", lambda a: a * 5, (Array("a", "float32"),), "float32"))
        later(a, out)
        os._exit(0 if (mine == 3).all() and (out == 5).all() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_kernels_print_and_are_checked():
    text = str(STATISTICS)
    assert "s = sum out" in text and "all[] += s" in text and "pick[] = load(t, 'x')" in text
    with pytest.raises(AssertionError, match="used before"):
        check(elementwise("bad", var("nothing"), (Array("a", "float32"),), "float32"))


def test_values_of_a_loop_are_computed_before_any_is_written():
    swap = Kernel(
        "swap",
        (Array("a", "float32", writes=True), Array("b", "float32", writes=True)),
        (Loop((Store("a", var("b")), Store("b", var("a")))),),
    )
    a, b = np.float32([[1, 2]]), np.float32([[3, 4]])
    for got in both(swap, (a, b), (0, 1)):
        assert [g.tolist() for g in got] == [[[3, 4]], [[1, 2]]]


def test_a_row_value_stays_as_it_was_when_its_array_is_written():
    step = Kernel(
        "step",
        (Array("x", "float32", writes=True), Array("r", "float32", "row", True)),
        (Let("old", var("r")), Put("r", var("r") + 1), Loop((Store("x", var("old")),))),
    )
    x, r = np.zeros((2, 2), np.float32), np.float32([3, 5])
    for got in both(step, (x, r), (0, 1)):
        assert [g.tolist() for g in got] == [[[3, 3], [5, 5]], [4, 6]]


@pytest.mark.parametrize("native", [True, False])
def test_one_call_for_each_of_many_steps(native):
    add = elementwise(
        "sum2", var("x") + var("y"), (Array("x", "float32"), Array("y", "float32")), "float32"
    )
    program = Program(add, native)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 4, 6)).astype("f4"), rng.normal(size=(5, 4, 12)).astype("f4")
    alike, turned = y[..., :6], rng.normal(size=(5, 6, 4)).astype("f4").swapaxes(1, 2)
    one = rng.normal(size=(4, 6)).astype("f4")
    for others in (alike, turned, alike[:1]):
        out = np.zeros(others.shape, "f4")
        for first in (others[0], one):
            run = program.steps((x[0], first, out[0]), (x[1 : len(out)], others[1:], out[1:]))
            for k in reversed(range(len(out))):
                run(k)
            assert (out[0] == x[0] + first).all()
            assert (out[1:] == x[1 : len(out)] + others[1:]).all()
    empty = np.zeros((3, 0), "f4")
    program.steps((empty[0], empty[0], empty[0]), (empty[1:], empty[1:], empty[1:]))(0)
