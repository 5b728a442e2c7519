"""Parts of a large run: together they compute every element once, with the bits of one part."""

import threading

import numpy as np
import pytest

from disttrain.backends import blas, threads
from disttrain.backends.lang.expr import exp, var
from disttrain.backends.lang.kernel import Array, Kernel, Loop, Put, Reduce, Store, elementwise
from disttrain.backends.llvm import native, partition
from disttrain.backends.llvm.wrap import DESC_ARRAY, DESC_HEAD
from disttrain.backends.program import Program

ADD = elementwise(
    "sum2", var("x") + var("y"), (Array("x", "float32"), Array("y", "float32")), "float32"
)
SOFT = Kernel(
    "shares",
    (
        Array("x", "float32"),
        Array("s", "float32", "row", True),
        Array("out", "float32", "full", True),
    ),
    (
        Loop((Reduce("total", "sum", exp(var("x"))),)),
        Put("s", var("total")),
        Loop((Store("out", exp(var("x")) / var("total")),)),
    ),
)
COLUMNS = Kernel(
    "column_sums",
    (Array("x", "float32"), Array("out", "float32", "col", True)),
    (Loop((Store("out", var("x"), add=True),)),),
)
WHOLE = Kernel(
    "whole_sum",
    (Array("x", "float32"), Array("out", "float32", "one", True)),
    (Loop((Reduce("total", "sum", var("x")),)), Put("out", var("total"))),
    flat=True,
)
N = 1 << 18


@pytest.fixture
def several(monkeypatch):
    """Let large work take some threads, whatever numpy's BLAS does."""
    given = {"count": 1}
    monkeypatch.setattr(partition, "SPLIT_WORK", N)
    monkeypatch.setattr(native, "SPLIT_WORK", N)
    monkeypatch.setattr(blas, "num_threads", lambda: given["count"])
    monkeypatch.setattr(blas, "set_num_threads", lambda n: given.update(count=n) or True)
    yield threads.set_count
    monkeypatch.undo()
    threads.set_count(threads.count())


def described(rows, cols, strides):
    """Of two arrays at 1000 and 2000 over these rows and columns."""
    desc = np.zeros(DESC_HEAD + 2 * DESC_ARRAY, np.int64)
    desc[:4] = rows[0] * rows[1] * cols, 2, cols, rows[0]
    desc[4:6] = rows
    for k, (start, step) in enumerate(((1000, 4), (2000, 8))):
        at = DESC_HEAD + k * DESC_ARRAY
        desc[at : at + 4] = start, step, *strides[k]
    return desc


def values(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def results(kernel, several, *args):
    """By one thread, then by more: (thread counts, arrays written)."""
    program, found = Program(kernel), {}
    if not program.native:
        pytest.skip(program.why_not)
    for count in (1, 2, 3, 7):
        several(count)
        mine = [a.copy("K") if p.writes else a for p, a in zip(kernel.arrays, args)]
        program(*mine)
        found[count] = [a.tobytes() for p, a in zip(kernel.arrays, mine) if p.writes]
    return found


@pytest.mark.parametrize("n", [N - 1, N, N + 1, 3 * N + 1023, 5 * N])
def test_elements_of_a_flat_kernel(several, n):
    x, y = values(2, n)
    found = results(ADD, several, x, y, np.zeros(n, np.float32))
    assert set(map(tuple, found.values())) == {((x + y).tobytes(),)}


@pytest.mark.parametrize("shape", [(3, 200, 1000), (1000, 3, 200), (5, 131072), (700, 801)])
def test_arrays_whose_memory_is_not_one_row(several, shape):
    x = values(*shape[::-1]).T
    y = values(*shape[:-1], 2 * shape[-1])[..., ::2]
    out = np.zeros((*shape[:-1], shape[-1] + 3), np.float32)[..., :-3]
    found = results(ADD, several, x, y, out)
    assert set(map(tuple, found.values())) == {((x + y).tobytes(),)}


@pytest.mark.parametrize("shape", [(1, 2 * N), (2, N), (5000, 301), (N, 2)])
def test_rows_with_sums_of_their_own(several, shape):
    x = values(*shape)
    found = results(SOFT, several, x, np.zeros(shape[0], np.float32), np.zeros_like(x))
    assert len(set(map(tuple, found.values()))) == 1


def test_what_all_rows_add_to_is_not_shared_out(several):
    x = values(2000, 400)
    found = results(COLUMNS, several, x, np.zeros(400, np.float32))
    assert len(set(map(tuple, found.values()))) == 1
    found = results(WHOLE, several, x.reshape(-1), np.zeros((), np.float32))
    assert len(set(map(tuple, found.values()))) == 1


def test_the_longest_row_axis_is_cut(several):
    several(4)
    desc = described((3, 90001), 2, [(720008, 8), (1440016, 16)])
    found = partition.parts(SOFT, desc, partition.work(SOFT))
    assert [int(p[5]) for p in found] == [22500, 22500, 22500, 22501]
    assert [int(p[4]) for p in found] == [3] * 4
    assert [int(p[DESC_HEAD]) - 1000 for p in found] == [0, 22500 * 8, 45000 * 8, 67500 * 8]
    at = DESC_HEAD + DESC_ARRAY
    assert [int(p[at]) - 2000 for p in found] == [0, 22500 * 16, 45000 * 16, 67500 * 16]
    assert sum(int(p[0]) for p in found) == desc[0]
    assert all(p[0] == p[4] * p[5] * p[2] and p[3] == p[4] for p in found)
    assert (desc == described((3, 90001), 2, [(720008, 8), (1440016, 16)])).all()


def test_small_work_and_one_thread_stay_whole(several):
    small, large = (described((1, 1), n, [(0, 0), (0, 0)]) for n in (N - 1, 4 * N))
    several(1)
    assert [p is large for p in partition.parts(ADD, large, partition.work(ADD))] == [True]
    several(4)
    assert [p is small for p in partition.parts(ADD, small, partition.work(ADD))] == [True]
    assert [p is large for p in partition.parts(SOFT, large, partition.work(SOFT))] == [True]
    assert [int(p[2]) for p in partition.parts(ADD, large, partition.work(ADD))] == [N] * 4


def test_costly_elements_are_shared_out_sooner(several):
    several(2)
    value = var("x")
    for _ in range(4):
        value = exp(value)
    costly = elementwise("exp4", value, (Array("x", "float32"),), "float32")
    desc = described((1, 1), N // 2, [(0, 0), (0, 0)])
    assert len(partition.parts(costly, desc, partition.work(costly))) == 2
    assert len(partition.parts(ADD, desc, partition.work(ADD))) == 1


def test_threads_run_at_the_same_time(several, monkeypatch):
    seen = set()
    monkeypatch.setattr(threads, "spread", lambda jobs: seen.add(len(jobs)) or [j() for j in jobs])
    several(3)
    program = Program(ADD)
    x, y = values(2, 3 * N)
    out = np.zeros_like(x)
    program(x, y, out)
    assert (seen == {3}) is program.native
    assert out.tobytes() == (x + y).tobytes()


def test_several_threads_call_one_program(several):
    several(2)
    program = Program(ADD)
    x, y = values(2, 2 * N)
    outs = [np.zeros_like(x) for _ in range(4)]
    callers = [threading.Thread(target=program, args=(x, y, out)) for out in outs]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert {out.tobytes() for out in outs} == {(x + y).tobytes()}
