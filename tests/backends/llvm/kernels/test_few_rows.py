"""Code for products of a few rows, tile by tile."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.llvm.kernels import few_rows


def _at(a):
    return a.__array_interface__["data"][0]


@pytest.fixture(params=["as wide as can be", "narrow"])
def registers(request, monkeypatch):
    """Registers of this processor, and those of older ones."""
    if request.param == "narrow":
        monkeypatch.setattr(few_rows, "shape", lambda kind: (8 if "32" in kind else 4, 6, 12))
    few_rows.product.cache_clear()
    yield
    few_rows.product.cache_clear()


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("way", ["across", "along"])
@pytest.mark.parametrize("k", [1, 15, 64, 300, 1025])
def test_tiles_of_any_size_and_no_place_beyond_them(kind, way, k):
    rng = np.random.default_rng(k)
    for rows in range(1, few_rows.most(kind, way) + 1):
        run = few_rows.product(kind, way, rows)
        if run is None:
            return
        for n in (1, 3, 16, 50, 133):
            x = rng.normal(size=(rows, k + 3)).astype(kind)
            w = rng.normal(size=(k, n + 2) if way == "across" else (n, k + 2)).astype(kind)
            y = np.full((rows + 1, n + 1), 7, kind)
            steps = (y.strides[0], x.strides[0], w.strides[0])
            run(_at(y), _at(x), _at(w), n, k, *steps)
            wanted = x[:, :k].astype("f8") @ (w[:, :n] if way == "across" else w[:, :k].T)
            close = 3e-5 if kind == "float32" else 1e-12
            assert np.allclose(y[:-1, :-1], wanted, close, close * np.abs(wanted).max())
            assert (y[-1] == 7).all()
            assert (y[:, -1] == 7).all()


@pytest.mark.parametrize("way", ["across", "along"])
def test_a_row_has_the_same_bits_in_any_tile(way):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(8, 700)).astype("f4"), rng.normal(size=(700, 700)).astype("f4")
    found = []
    for rows in range(1, few_rows.most("float32", way) + 1):
        run, y = few_rows.product("float32", way, rows), np.zeros((rows, 700), "f4")
        if run is None:
            return
        run(_at(y), _at(x), _at(w), 700, 700, y.strides[0], x.strides[0], w.strides[0])
        found.append(y[0].tobytes())
    assert len(set(found)) == 1
