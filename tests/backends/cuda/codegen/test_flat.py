"""Flat kernels: loops that leave partial results, what stands between them, sums over teams."""

from __future__ import annotations

from disttrain.backends.cuda.codegen.flat import Finish, Flat, fold_rows
from disttrain.backends.cuda.codegen.forms import MOST, THREADS, Form
from disttrain.backends.lang.expr import var
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

X = Array("x", "float32")
MEAN = Kernel(
    "centre",
    (X, Scalar("n"), Array("mean", "float32", "one", True), Array("y", "float32", writes=True)),
    (
        Loop((Reduce("s", "sum", var("x")), Reduce("top", "max", var("x")))),
        Let("m", var("s") / var("n")),
        Put("mean", var("m")),
        Loop((Store("y", var("x") - var("m") + var("top")),)),
    ),
    flat=True,
)


def written(cls, kernel, form):
    body = cls(kernel, form)
    fields = body.write()
    return "\n".join(body.lines), {f.name: f for f in fields}


def test_a_loop_that_folds_leaves_a_part_per_block_for_each_fold():
    text, fields = written(Flat, MEAN, Form("flat", 4))
    assert "part" in fields and "vals" not in fields
    assert "(a.part + ((dt_u64)0 * gridDim.x + blockIdx.x) * 8) = b_s;" in text
    assert "(a.part + ((dt_u64)1 * gridDim.x + blockIdx.x) * 8) = b_top;" in text
    assert f"shared_s[1][{THREADS // 32}]" in text


def test_a_later_loop_takes_its_row_values_from_their_slots():
    text, fields = written(Flat, MEAN, Form("flat", 4, step=3))
    assert "vals" in fields and "part" not in fields
    assert "*(const float*)(a.vals + 2 * 8)" in text  # m: after s and top
    assert "*(const float*)(a.vals + 1 * 8)" in text
    assert "a.vals + 0 * 8" not in text  # s is not read again


def test_what_stands_between_loops_folds_the_parts_and_keeps_row_values():
    text, fields = written(Finish, MEAN, Form("finish", step=1))
    assert {"vals", "part", "parts"} <= set(fields)
    assert "(a.part + ((dt_u64)1 * a.parts + i) * 8)" in text
    for slot in range(3):
        assert f"*(float*)(a.vals + {slot} * 8) = " in text
    assert "if (threadIdx.x == 0) *p1 = " in text and "w2" not in text and "h2" not in text


def test_the_end_of_a_kernel_reads_earlier_values_from_their_slots():
    steps = (*MEAN.steps, Loop((Reduce("t", "sum", var("y")),)), Put("mean", var("t") + var("m")))
    kernel = Kernel("k", MEAN.params, steps, flat=True)
    text, _ = written(Finish, kernel, Form("finish", step=5))
    assert "*(const float*)(a.vals + 2 * 8)" in text and "shared_t" in text
    assert "shared_s" not in text and "*(float*)(a.vals + 2 * 8)" not in text


def test_many_sets_are_told_apart_by_their_first_blocks():
    text, fields = written(Flat, elementwise("f", lambda x: x, (X,), "float32"), Form("many", 4))
    assert (fields["p0"].count, fields["n"].count, fields["start"].count) == (MOST, MOST, MOST + 1)
    assert fields["count"].count == 0
    assert "a.start[middle] <= blockIdx.x" in text and "gridDim.x" not in text
    assert "blockIdx.x - a.start[low]" in text


def test_aligned_arrays_are_read_in_vectors_and_strided_ones_element_by_element():
    plain = elementwise("f", lambda x: x, (X,), "float32")
    text, fields = written(Flat, plain, Form("flat", 4))
    assert "const bool whole = ((a.p0 | a.p1) & 15) == 0;" in text and "dt_fetch<4>" in text
    assert set(fields) == {"p0", "p1", "n"}
    text, fields = written(Flat, plain, Form("flat", 1, dims=2, wide=True))
    assert "whole" not in text and {"size", "t0", "t1"} <= set(fields)
    assert "const dt_u64 n = (dt_u64)a.n;" in text


def test_sums_of_teams_join_the_array_in_its_own_type():
    kernel = Kernel(
        "k",
        (X, Array("w", "float16", "col", True)),
        (Loop((Store("w", var("x"), add=True),)),),
    )
    lines, fields = fold_rows(kernel, Form("fold", array="w"))
    assert [f.name for f in fields] == ["p0", "part", "cols", "parts", "stride"]
    text = "\n".join(lines)
    assert "float sum = 0;" in text and "((const float*)a.part)" in text  # folded in float32
    assert "*to = dt_to_float16(dt_add(dt_from_float16(*to), sum));" in text
    assert "unsigned short* const to = (unsigned short*)(a.p0 + c * a.stride);" in text
    assert text.count("{") == text.count("}")
