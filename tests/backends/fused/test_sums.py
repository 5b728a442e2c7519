"""Sums of rows by generated code: as exact as numpy's, and the same on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends import threads
from disttrain.backends.fused import sums
from disttrain.backends.llvm import partition
from disttrain.core.types.wide import add_up, total


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize(
    "shape", [(40, 64), (3, 1000), (2, 8192), (1, 20_011), (7, 4096), (3, 9001)]
)
def test_rows(kind, shape):
    a = np.random.default_rng(1).normal(size=shape).astype(kind) + 1
    found = sums.of_rows(a, shape[1])
    assert found is not None
    assert found.dtype == a.dtype
    wanted = a.astype("f8").sum(1)
    assert np.allclose(found, wanted, rtol=2e-6 if kind == "f4" else 1e-13)


def test_what_is_left_to_numpy():
    a = np.ones((64, 64), "f4")
    for odd in (a.T, a.astype("f2"), a.astype("i4"), a.astype(">f4")):
        assert sums.of_rows(odd, 64) is None
    assert sums.of_rows(a, 32) is None
    assert sums.of_rows(np.ones((0, 64), "f4"), 64) is None


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("width", [64, 1000, 2047, 4096, 4097, 8192, 100_001])
def test_the_bits_of_a_sum_do_not_depend_on_how_many_there_are(kind, width):
    a = np.random.default_rng(4).normal(size=(5, width)).astype(kind)
    every = add_up(a, (1,), False)
    assert np.allclose(every, a.astype("f8").sum(1), rtol=1e-4, atol=1e-3)
    for row, one in zip(a, every, strict=True):
        assert np.asarray(total(row.copy(), (0,), False)).tobytes() == one.tobytes()
        assert np.asarray(add_up(row.copy(), (0,), False)).tobytes() == one.tobytes()


def test_nor_those_of_several_axes():
    a = np.random.default_rng(5).normal(size=(9, 40, 3, 80)).astype("f4")
    every = total(a, (1, 3), False)
    for each, one in zip(a, every, strict=True):
        assert total(each.copy(), (0, 2), False).tobytes() == one.tobytes()


@pytest.mark.parametrize("dims", [(2, 3), (3,), (0, 2, 3), (0, 3), (1, 2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_any_dimensions_that_end_with_the_last(dims, keepdim):
    a = np.random.default_rng(2).normal(size=(5, 4, 9, 70)).astype("f4")
    found = np.asarray(add_up(a, dims, keepdim))
    wanted = a.astype("f8").sum(dims, keepdims=keepdim)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_what_is_not_finite_and_bits_on_threads(monkeypatch):
    a = np.random.default_rng(3).normal(size=(90, 3000)).astype("f4")
    a[3, 7], a[4, 1], a[5, :2] = np.nan, np.inf, (np.inf, -np.inf)
    before = sums.of_rows(a, 3000)
    assert np.isnan(before[[3, 5]]).all()
    assert before[4] == np.inf
    monkeypatch.setattr(partition, "SPLIT_WORK", 1)
    monkeypatch.setattr(threads, "count", lambda: 3)
    assert np.array_equal(before, sums.of_rows(a, 3000), equal_nan=True)


@pytest.mark.parametrize("width", [63, 64, 1000, 2048, 5000])
def test_calls_compiled_and_mapped_ones_have_the_same_bits(width):
    a = dt.from_numpy(np.random.default_rng(6).normal(size=(3, width)).astype("f4"))
    for run in (dt.sum, dt.mean, lambda t: dt.sum(t, -1), lambda t: t.sum()):
        found = [run(row.clone()).numpy().tobytes() for row in a]
        compiled = dt.compile(run)
        assert [compiled(row.clone()).numpy().tobytes() for row in a] == found
        assert [one.numpy().tobytes() for one in dt.func.vmap(run)(a)] == found
