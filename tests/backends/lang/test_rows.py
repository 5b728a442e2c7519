"""Kernels one after the other in one pass over rows: bits, what is kept for a row, and where."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused import softmax
from disttrain.backends.fused.elementwise import gelu, gelu_erf
from disttrain.backends.fused.normalization import norms
from disttrain.backends.lang.expr import exp, var
from disttrain.backends.lang.kernel import Array, Kernel, Loop, Reduce, Scalar, Store, copies_of
from disttrain.backends.lang.rows import Rows, number_of, reads, renamed, writes
from disttrain.backends.program import Program


def x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def softmax_of(before, after=None):
    """The kernel of softmax of an expression of x, and of what is made of its result."""
    rows = Rows({"y": "y0"})
    rows.take(Array("x0", "float32"))
    rows.define("scaled", before, "float32")
    rows.run(softmax.kernel("softmax", "float32"), {"x": "scaled"}, {"out": "p"}, {})
    rows.define("y", var("p") if after is None else after, "float32")
    return rows.kernel("chain")


@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (3, 130), (4, 64)], ids=str)
@pytest.mark.parametrize("long", [False, True])
def test_what_is_before_and_after_a_kernel_leaves_its_bits(shape, long):
    a, out = x(*shape), np.empty(shape, "f4")
    before = gelu_erf(var("x0")) if long else var("x0") * 0.5
    Program(softmax_of(before, var("p") * 3.0 + 1.0))(a, out)
    want = softmax.softmax(gelu(a) if long else a * np.float32(0.5)) * np.float32(3) + np.float32(1)
    assert out.tobytes() == want.tobytes()


def test_loops_keep_their_number_of_copies():
    loops = [s for s in softmax_of(gelu_erf(var("x0"))).steps if isinstance(s, Loop)]
    own = [s for s in softmax.kernel("softmax", "float32").steps if isinstance(s, Loop)]
    sums = [
        [copies_of(s) for s in each if any(isinstance(b, Reduce) for b in s.body)]
        for each in (loops, own)
    ]
    assert sums[0] == sums[1]


def test_what_takes_long_is_kept_where_the_result_goes_later():
    kernel = softmax_of(gelu_erf(var("x0")))
    assert [a.name for a in kernel.arrays] == ["x0", "y0"]
    assert sum("erf" in repr(s) for s in kernel.steps) == 1


def test_numbers_of_a_row_have_a_line_where_there_is_no_room():
    rows = Rows({"scaled": "y0", "y": "y1"})
    rows.take(Array("x0", "float32"))
    rows.define("scaled", exp(var("x0")), "float32")
    rows.run(softmax.kernel("softmax", "float32"), {"x": "scaled"}, {"out": "p"}, {})
    rows.run(softmax.kernel("log_softmax", "float32"), {"x": "p"}, {"out": "q"}, {})
    rows.define("y", var("q") * 2.0, "float32")
    kernel = rows.kernel("chain")
    a, y0, y1 = x(5, 37), np.empty((5, 37), "f4"), np.empty((5, 37), "f4")
    lines = [np.empty(37, "f4") for p in kernel.arrays if p.name.startswith("line")]
    Program(kernel)(a, y0, y1, *lines)
    want = softmax.log_softmax(softmax.softmax(y0)) * np.float32(2)
    assert y1.tobytes() == want.tobytes()


@pytest.mark.parametrize("n", [5, 600])
def test_sums_over_rows_and_numbers_of_rows(n):
    columns, rows = 6, Rows({"y": "y0", "mean": "y1"})
    for name, space in (("x0", "full"), ("x1", "col"), ("x2", "col"), ("x3", "full")):
        rows.take(Array(name, "float32", space))
    forward = norms.kernel("layer_norm", "float32", True, True)
    made = {"out": "y", "means": "mean", "rstds": "rstd"}
    rows.run(forward, {"x": "x0", "weight": "x1", "bias": "x2"}, made, {})
    sums = {"dweight": Array("s0", "float32", "col", True, 512)}
    given = {"g": "x3", "x": "x0", "mean": "mean", "rstd": "rstd", "weight": "x1"}
    rows.run(
        norms.kernel("layer_norm_backward", "float32", True, False), given, {"out": "dx"}, sums
    )
    kernel = rows.kernel("chain")
    assert [s.name for s in kernel.scalars] == [
        number_of(1, "eps"), number_of(1, "share"), number_of(2, "share")
    ]  # fmt: skip
    a, w, b, g = x(n, columns), x(columns), x(columns), x(n, columns) * np.float32(2)
    values = {"x0": a, "x1": w, "x2": b, "x3": g, "r1_eps": 1e-5}
    values |= {"r1_share": 1 / columns, "r2_share": 1 / columns}
    outs = {"y0": np.empty_like(a), "y1": np.empty(n, "f4")}
    outs["s0"] = np.zeros((-(-n // 512), columns), "f4")
    Program(kernel).fast(*[(values | outs)[p.name] for p in kernel.params])
    y, mean, rstd = norms.layer_norm(a, w, b, 1e-5)
    _, dw, _ = norms.layer_norm_backward(g, a, mean, rstd, w)
    assert outs["y0"].tobytes() == y.tobytes() and outs["y1"].tobytes() == mean.tobytes()
    assert norms.joined(outs["s0"]).tobytes() == dw.tobytes()


def test_steps_tell_what_they_read_and_write():
    step = Loop((Store("y", var("a") + var("b")), Reduce("t", "sum", var("c"))))
    assert reads(step) == {"a", "b", "c"} and writes(step) == {"y"}
    other = renamed(step, "a", "z")
    assert reads(other) == {"z", "b", "c"} and writes(renamed(step, "y", "z")) == {"z"}


def test_arrays_that_begin_anew():
    params = (
        Array("x", "float32"), Array("m", "float32", cyclic=True), Scalar("s"),
        Array("y", "float32", writes=True),
    )  # fmt: skip
    kernel = Kernel("turns", params, (Loop((Store("y", var("x") * var("m") + var("s")),)),))
    a, m, out = x(2, 3, 5, 7), x(5, 7), np.empty((2, 3, 5, 7), "f4")
    program = Program(kernel)
    want = a * m + np.float32(1)
    if program.native:
        assert program.fast(a, m, 1.0, out) is not None
        assert out.tobytes() == want.tobytes()
        assert program.fast(a, x(4, 7), 1.0, out) is None  # no whole turns
    out[...] = 0
    program.slow(a, m, 1.0, out)
    assert out.tobytes() == want.tobytes()
    assert "cyclic" in str(kernel)
