"""Products with a matrix whose elements lie where two tables say."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.llvm.kernels.implicit_product import product, tile


def _at(a):
    return a.__array_interface__["data"][0]


def _tables(rng, kind, m, k):
    x = rng.normal(size=5000).astype(kind)
    rows, terms = (rng.integers(0, 2500, n) * x.itemsize for n in (m, k))
    return x, rows, terms, x[(rows[:, None] + terms) // x.itemsize].astype("f8")


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("wide", [1, 2])
@pytest.mark.parametrize("k", [0, 1, 7, 512, 513, 1500])
def test_rows_are_added_to_what_is_there(kind, wide, k):
    run, (rows_of, lanes) = product(kind, wide, False), tile(kind)
    rng = np.random.default_rng(k)
    x, rows, terms, a = _tables(rng, kind, 3 * rows_of, k)
    b = rng.normal(size=(k, wide * lanes)).astype(kind)
    y = rng.normal(size=(len(rows), wide * lanes)).astype(kind)
    wanted = y + np.einsum("ik,kj", a, b)
    if run is not None:
        run(_at(y), _at(x), _at(rows), len(rows), _at(terms), k, _at(b))
        assert np.allclose(y, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("wide", [1, 2])
@pytest.mark.parametrize("more", [0, 1, 5])
@pytest.mark.parametrize("k", [3, 600])
def test_columns_are_stored_apart_and_no_place_beyond_them(kind, wide, more, k):
    run, (rows_of, lanes) = product(kind, wide, True), tile(kind)
    rng = np.random.default_rng(k)
    x, rows, terms, a = _tables(rng, kind, rows_of + more, k)
    columns = wide * lanes - more
    b = rng.normal(size=(k, wide * lanes)).astype(kind)
    first = rng.normal(size=wide * lanes).astype(kind)
    y = np.full((2, columns + 1, len(rows) + 1), 7, kind)
    if run is None:
        return
    run(_at(y), _at(x), _at(rows), len(rows), _at(terms), k, _at(b), _at(first), y.strides[1],
        columns, 2, 0, y.strides[0])  # fmt: skip
    wanted = (first + np.einsum("ik,kj", a, b)).T[:columns]
    for part in y:
        assert np.allclose(part[:-1, :-1], wanted, rtol=1e-4, atol=1e-4)
        assert (part[-1] == 7).all()
        assert (part[:, -1] == 7).all()
