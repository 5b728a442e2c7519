"""Drawn programs of operations on rows and their gradients: compiled ones give eager's bits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends import threads
from disttrain.compile import capture
from disttrain.compile.passes import ORDER, fuse, fuse_rows, optimize, overwrite, region, take_sums
from disttrain.compile.passes.rows import region as rows
from support.cases.drawn_chains import bits, difference, fn_of, given
from support.cases.drawn_rows import EMPTY, draw

PARTS, EACH = 6, 40


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_rows_have_eagers_bits(part, monkeypatch):
    monkeypatch.setattr(region, "_RUNS", part % 3)
    for seed in range(part * EACH, (part + 1) * EACH):
        why = difference(*draw(seed), budget=1.0 if part < 3 else 0.0)
        assert why is None, f"seed {seed}\n{why}"


def test_rows_without_elements_have_eagers_bits(monkeypatch):
    monkeypatch.setattr(region, "_RUNS", 0)
    for seed in range(30):
        why = difference(*draw(seed, ("f4", "f8"), EMPTY))
        assert why is None, f"seed {seed}\n{why}"


def test_each_pass_may_be_left_out(monkeypatch):
    monkeypatch.setattr(region, "_RUNS", 0)
    for seed in range(60):
        source, kinds, grads = draw(1000 + seed, ("f4", "f4", "f8"))
        fn = fn_of(source)
        eager = kept(fn(*given(kinds, grads, seed)))
        for off in (take_sums, fuse_rows, fuse, overwrite):
            graph = capture(fn)(*given(kinds, grads, seed))[1]
            graph = optimize(graph, [p for p in ORDER if p is not off])
            for _ in range(3):
                found = kept(graph.run(*given(kinds, grads, seed)))
                assert found == eager, f"seed {seed} without {off.__name__}\n{source}\n{kinds}"


def kept(results):
    return bits(r for r in results if r is not None)


@pytest.mark.parametrize("count", [1, 3])
def test_bits_are_those_of_any_number_of_threads(count, monkeypatch):
    monkeypatch.setattr(region, "_RUNS", 0)
    monkeypatch.setattr(rows, "SPLIT_WORK", 1 << 10)
    before, sizes = threads.count(), [(4100, 65), (3, 1000, 129)]
    programs = [draw(2000 + seed, ("f4", "f8"), sizes) for seed in range(40)]
    programs = [each for each in programs if "linear" not in each[0]]  # (a BLAS has its own order)
    assert len(programs) > 10
    try:
        for seed, (source, kinds, grads) in enumerate(programs):
            fn = fn_of(source)
            threads.set_count(1)
            eager = bits(fn(*given(kinds, grads, seed)))
            threads.set_count(count)
            run = dt.compile(fn)
            for _ in range(3):
                assert bits(run(*given(kinds, grads, seed))) == eager, (
                    f"seed {seed}\n{source}\n{kinds}"
                )
    finally:
        threads.set_count(before)


def test_sizes_that_change(monkeypatch):
    monkeypatch.setattr(region, "_RUNS", 0)

    def fn(x, w, b, a):
        y = dt.nn.functional.layer_norm(x * 2 + b, (x.shape[-1],), w, b)
        z = dt.nn.functional.linear(dt.nn.functional.gelu(y) + x, a, b)
        p = (z * 0.5).softmax(-1) * x
        return [p, *dt.autograd.grad((p * y).sum(), (x, w, b, a))]

    run, rng = dt.compile(fn, dynamic=True), np.random.default_rng(0)
    for n in (3, 40, 7, 600, 33, 1100, 2, 40):
        for m in (8, 21):
            shapes = [(n, m), (m,), (m,), (m, m)]
            args = given([(s, "f4", False) for s in shapes], True, 2 * int(rng.integers(100)))
            assert bits(run(*args)) == bits(fn(*args)), (n, m)
