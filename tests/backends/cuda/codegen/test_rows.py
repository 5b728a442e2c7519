"""Row kernels: what a team keeps in registers, what is summed over rows, who writes, who waits."""

from __future__ import annotations

import pytest

from disttrain.backends.cuda.codegen.forms import Form
from disttrain.backends.cuda.codegen.rows import Rows, kept_arrays, summed_arrays
from disttrain.backends.lang.expr import const, index, load, var
from disttrain.backends.lang.kernel import Array, Kernel, Let, Loop, Put, Reduce, Store

X, Y = Array("x", "float32"), Array("y", "float32", writes=True)
SUM = Loop((Reduce("s", "sum", var("x")),))


def kernel(*steps, params=(X, Y), flat=False):
    return Kernel("k", params, steps, flat)


def text(k, **form):
    rows = Rows(k, Form("rows", **form))
    fields = rows.write()
    return "\n".join(rows.lines), [f.name for f in fields]


def test_what_a_later_loop_reads_again_is_kept():
    write = Loop((Store("y", var("x") * 2),))
    assert kept_arrays(kernel(write)) == []
    assert kept_arrays(kernel(SUM, write)) == ["x"]
    assert kept_arrays(kernel(write, Loop((Store("y", var("y") + 1),)))) == ["y"]
    assert kept_arrays(kernel(write, Loop((Store("y", const(1.0), add=True),)))) == ["y"]
    assert kept_arrays(kernel(write, Loop((Store("y", const(1.0)),)))) == []  # only overwritten
    assert kept_arrays(kernel(SUM, Loop((Store("y", load("x", index())),)))) == []


def test_nothing_is_kept_without_registers_for_it():
    k = kernel(SUM, Loop((Store("y", var("x") - var("s")),)))
    assert Rows(k, Form("rows")).kept == []
    kept, _ = text(k, vector=4, items=3)
    again, _ = text(k, vector=4)
    assert "float h0[3][4];" in kept and "h0" not in again


def test_sums_over_rows_are_those_added_to_columns_and_ones():
    col, one, row = (Array(s, "float32", s, True) for s in ("col", "one", "row"))
    steps = (
        Loop((Store("col", var("x"), add=True), Store("y", var("x"), add=True))),
        Put("row", const(1.0), add=True),
        Put("one", const(1.0), add=True),
    )
    k = kernel(*steps, params=(X, Y, col, one, row))
    assert summed_arrays(k) == ["col", "one"]
    assert text(k)[1][-2:] == ["m2", "m3"]  # where the teams' sums go, after all else
    flat = kernel(Put("one", const(1.0), add=True), params=(X, Y, one), flat=True)
    assert summed_arrays(flat) == []
    plain = kernel(Put("one", const(1.0)), params=(X, Y, one))
    assert summed_arrays(plain) == []


def test_a_warp_folds_by_shuffles_and_a_block_through_shared_memory():
    k = kernel(SUM, Loop((Store("y", var("s")),)))
    warp, _ = text(k, team=32, teams=8)
    assert "dt_warp<dt_fold_sum, float>" in warp
    assert "__shared__" not in warp and "turn" not in warp
    block, _ = text(k, team=128)
    assert "__shared__ float shared_s[2][4];" in block and "turn ^= 1;" in block
    assert "__syncthreads" in block


@pytest.mark.parametrize("team, wait", [(32, "__syncwarp();"), (64, "__syncthreads();")])
def test_a_team_waits_before_it_loads_what_its_threads_have_written(team, wait):
    write = Loop((Store("y", var("x")),))
    loads = Loop((Store("y", load("y", index() + 1)),))
    assert text(kernel(write, loads), team=team)[0].count(wait) == 1
    assert wait not in text(kernel(write, Loop((Store("y", var("y")),))), team=team)[0]


def test_one_thread_writes_a_row_s_value_and_the_last_row_that_of_all():
    row, one = Array("r", "float32", "row", True), Array("o", "float32", "one", True)
    got, _ = text(kernel(SUM, Put("r", var("s")), params=(X, Y, row)))
    assert "if (t == 0) *p2 = dt_to_float32(" in got
    got, _ = text(kernel(SUM, Put("o", var("s")), params=(X, Y, one)))
    assert "if (t == 0 && r == rows - 1) *p2" in got


def test_a_load_looks_whether_it_is_inside():
    got, _ = text(kernel(Loop((Store("y", load("x", index() - 1)),))))
    assert "< (dt_u64)cols" in got  # one comparison: what is below 0 is far above as unsigned


def test_strided_arrays_get_their_strides_as_members():
    k = kernel(SUM, Let("m", var("s")), Loop((Store("y", var("m")),)))
    _, dense = text(k)
    _, strided = text(k, dims=2)
    assert dense == ["p0", "p1", "rows", "cols"]
    assert {"c0", "c1"} <= set(strided) and len(strided) > len(dense) + 2


def test_a_value_put_is_read_back_as_it_was_rounded():
    row = Array("r", "float16", "row", True)
    k = kernel(SUM, Put("r", var("s")), Loop((Store("y", var("r")),)), params=(X, Y, row))
    got, _ = text(k)
    assert "dt_from_float16(dt_to_float16(" in got
