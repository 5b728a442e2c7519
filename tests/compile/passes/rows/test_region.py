"""A region of rows runs as one kernel where its arrays lie in rows, and one by one elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends import threads
from disttrain.compile import capture
from disttrain.compile.passes.rows import region as rows
from disttrain.compile.passes.rows.fusion import fuse_rows
from disttrain.nn.functional import gelu, layer_norm


def chain(x, w, b):
    return gelu(layer_norm(x * 2, (x.shape[-1],), w, b)) + x


def region_of(fn, *args):
    (ins,) = fuse_rows(capture(fn)(*args)[1]).instructions
    ins.prim.region.left = 0
    return ins.prim


def arrays(n, columns):
    return dt.randn(n, columns), dt.randn(columns), dt.randn(columns)


def alone(monkeypatch):
    """Only the kernel may run."""

    def refuse(self, arrays):
        raise AssertionError("one by one")

    monkeypatch.setattr(rows.RowRegion, "one_by_one", refuse)


@pytest.mark.parametrize("n", [1, 3, 70])
def test_the_kernel_gives_the_bits_of_the_operations(n, monkeypatch):
    args = arrays(n, 9)
    prim, want = region_of(chain, *args), chain(*args).numpy().tobytes()
    alone(monkeypatch)
    assert prim.forward(*[a.numpy() for a in args]).tobytes() == want


def test_arrays_that_do_not_lie_in_rows_run_one_by_one():
    args = arrays(6, 9)
    prim = region_of(chain, *args)
    given = [np.asfortranarray(args[0].numpy()), *(a.numpy() for a in args[1:])]
    want = chain(dt.from_numpy(given[0]), *args[1:]).numpy()
    for _ in range(3):
        found = prim.forward(*given)
        assert found.strides == want.strides and np.array_equal(found, want)


def test_results_go_over_operands_that_are_not_read_any_more():
    x, w, b = arrays(6, 9)

    def fn(x, y, w, b):
        return layer_norm(x + y, (9,), w, b)

    args = (x, dt.randn(6, 9), w, b)
    prim, want = region_of(fn, *args), fn(*args).numpy().tobytes()
    given = [a.numpy().copy() for a in args]
    prim.write_into([0, 1])
    found = prim.forward(*given)
    assert found.tobytes() == want and (found is given[0] or found is given[1])


def test_operands_that_are_read_later_are_not_written_over(monkeypatch):
    args = arrays(6, 9)
    prim, want = region_of(chain, *args), chain(*args).numpy().tobytes()
    prim.write_into([0])
    assert prim.forward(*[a.numpy().copy() for a in args]).tobytes() == want


def test_threads_share_the_rows(monkeypatch):
    monkeypatch.setattr(rows, "SPLIT_WORK", 1)

    def fn(x, w, b):
        y = (x * 2).softmax(-1)
        return y * w, (y * b).sum(0)

    args = arrays(330, 9)
    prim, want = region_of(fn, *args), [r.numpy().tobytes() for r in fn(*args)]
    before = threads.count()
    try:
        threads.set_count(3)
        alone(monkeypatch)
        found = [r.tobytes() for r in prim.forward(*[a.numpy() for a in args])]
    finally:
        threads.set_count(before)
    assert found == want
    assert prim.region.plan.cut
