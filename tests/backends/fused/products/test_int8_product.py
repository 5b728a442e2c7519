"""Products with 8-bit integers are numpy's, with any instructions and without machine code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.backends import host, threads
from disttrain.backends.fused.products import int8_product as products
from disttrain.backends.llvm.kernels import int8_product as code

WAYS = [n for n, way in code.WAYS.items() if host.cpu().features.issuperset(way.needs)]
SIZES = list(itertools.product((1, 2, 9), (1, 3, 33), (1, 7, 31, 64, 65, 130)))


def drawn(m, n, k, kind):
    rng = np.random.default_rng((m, n, k))
    info = np.iinfo(kind)
    x = rng.integers(info.min, info.max + 1, (m, k)).astype(kind)
    return x, rng.integers(-128, 128, (n, k)).astype(np.int8), rng


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("way", [*WAYS, None])
def test_integers(way, kind, monkeypatch):
    monkeypatch.setattr(products, "_way", lambda scaled: way)
    for m, n, k in SIZES:
        x, w, _ = drawn(m, n, k, kind)
        wanted = x.astype(np.int64) @ w.T.astype(np.int64)
        assert np.array_equal(products.integers(x, w), wanted)
        turned = np.asfortranarray(np.repeat(w, 2, 1))[:, ::2]
        assert np.array_equal(products.integers(np.asfortranarray(x), turned), wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_scaled_results_have_the_same_bits_in_every_way(kind, monkeypatch):
    for m, n, k in SIZES:
        x, w, rng = drawn(m, n, k, kind)
        zero, scale = rng.integers(-9, 200, m).astype(np.int32), rng.uniform(0.1, 1, m).astype("f4")
        scales, b = rng.uniform(0.1, 1, n).astype("f4"), rng.normal(size=n).astype("f4")
        found = []
        for way in (*WAYS, None):
            monkeypatch.setattr(products, "_way", lambda scaled, way=way: way)
            args = x, zero, scale, w, scales, products.row_sums(w)
            found.append((products.scaled(*args, b), products.scaled(*args, None)))
        for y, plain in found[1:]:
            assert np.array_equal(y, found[0][0]) and np.array_equal(plain, found[0][1])
        shifted = x.astype("f8") - zero[:, None]
        true = shifted @ w.T.astype("f8") * (scale[:, None] * scales) + b
        np.testing.assert_allclose(found[0][0], true, 1e-5, 1e-3)


def test_long_sums_go_around():
    x, w = np.full((1, 70_000), 255, np.uint8), np.full((1, 70_000), -128, np.int8)
    wanted = np.array([[-255 * 128 * 70_000]]).astype(np.int64).astype(np.int32)
    assert np.array_equal(products.integers(x, w), wanted)
    assert np.array_equal(products.wrapped(np.array([[-255.0 * 128 * 70_000]]), 70_000), wanted)


def test_threads_change_nothing(monkeypatch):
    x, w, rng = drawn(40, 300, 130, np.uint8)
    few = products.integers(x, w)
    monkeypatch.setattr(products, "_SPREAD", 1)
    monkeypatch.setattr(products, "_WIDE_SPREAD", 1)
    monkeypatch.setattr(threads, "count", lambda: 3)
    assert np.array_equal(products.integers(x, w), few)
    assert np.array_equal(products.integers(x[:5], w), few[:5])
    x = rng.normal(size=(3, 130)).astype("f4")
    many = products.widened(x, w, np.ones(300, "f4"))
    np.testing.assert_allclose(many, x @ w.T.astype("f4"), 1e-4, 1e-2)


def test_rows_do_not_depend_on_others():
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(16, 100)).astype("f4"), rng.integers(-128, 128, (50, 100)).astype("i1")
    scales = np.ones(50, "f4")
    whole = products.widened(x, w, scales)
    if code.widened(code.lanes(), 1) is not None:
        for k in (0, 7, 15):
            assert np.array_equal(products.widened(x[k : k + 1], w, scales)[0], whole[k])


def test_grids_have_zero_and_both_ends():
    scale, zero = products.affine(np.array([-1.0, 0.5, 0.0]), np.array([3.0, 2.0, 0.0]), 0, 255)
    np.testing.assert_allclose(scale, [4 / 255, 2 / 255, 0.1], 1e-6)
    assert zero.tolist() == [64, 0, 0] and zero.dtype == np.int32


@pytest.mark.parametrize("grid", [(0, 255, False), (0, 127, False), (-127, 127, True)])
def test_rounding_as_it_comes_has_the_same_bits_in_every_way(grid, monkeypatch):
    rng = np.random.default_rng(5)
    for number, (m, n, k) in enumerate(SIZES):
        x = (rng.normal(rng.normal(), 1, (m, k)) * 10 ** rng.uniform(-4, 4)).astype("f4")
        if number % 9 < 3:
            x[number % m, number % k] = (0, np.nan, np.inf)[number % 9]
        _, w, _ = drawn(m, n, k, np.uint8)
        scales, b = rng.uniform(0.1, 1, n).astype("f4"), rng.normal(size=n).astype("f4")
        for groups in {1, m}:
            found = []
            for way in (*WAYS, None):
                monkeypatch.setattr(products, "_way", lambda scaled, way=way: way)
                given = x, groups, products.Grid(*grid), w, scales, products.row_sums(w), b
                found.append(products.dynamic(*given))
            assert all(np.array_equal(y, found[0], equal_nan=True) for y in found[1:])
            assert np.isfinite(found[0]).all() == np.isfinite(x).all()
