"""Products with sparse matrices by machine code are those of numpy; places are looked at."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.products.sparse_product import product, sampled


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("seed", range(20))
def test_drawn_matrices(kind, seed):
    rng = np.random.default_rng(seed)
    n, m, d, count = (int(k) for k in rng.integers(1, [60, 50, 90, 900]))
    rows, cols = rng.integers(0, n, 2 * count)[::2], rng.integers(0, m, count)
    values, b = rng.normal(size=count).astype(kind), rng.normal(size=(m, d)).astype(kind)
    b = np.asfortranarray(b) if rng.random() < 0.3 else b
    a = rng.normal(size=(n, 2 * d)).astype(kind)[:, ::2]
    near = {"rtol": 1e-4 if kind == "f4" else 1e-11, "atol": 1e-3 if kind == "f4" else 1e-10}
    wanted = np.zeros((n, d))
    np.add.at(wanted, rows, values[:, None].astype("f8") * b[cols])
    out = product(values, b, rows, cols, n)
    assert out.dtype == kind
    np.testing.assert_allclose(out, wanted, **near)
    np.testing.assert_allclose(
        sampled(a, b, rows, cols), (a[rows].astype("f8") * b[cols]).sum(1), **near
    )


@pytest.mark.parametrize("kind", ["f2", "c16", "i8"])
def test_other_types_go_by_numpy(kind):
    rng = np.random.default_rng(0)
    values, b = (rng.integers(-3, 4, s).astype(kind) for s in ((500,), (20, 10)))
    rows, cols = rng.integers(0, 9, 500), rng.integers(0, 20, 500)
    wanted = np.zeros((9, 10), kind)
    np.add.at(wanted, rows, values[:, None] * b[cols])
    assert np.array_equal(product(values, b, rows, cols, 9), wanted)
    assert sampled(b, b, cols, cols).dtype == kind


@pytest.mark.parametrize("far", [-1, 50])
def test_places_outside_are_refused(far):
    values, b, at = np.ones(100), np.ones((50, 60)), np.zeros(100, np.int64)
    for rows, cols in ((at + far, at), (at, at + far)):
        with pytest.raises(IndexError):
            product(values, b, rows, cols, 50)
        with pytest.raises(IndexError):
            sampled(b, b, rows, cols)


def test_nothing_gives_zeros():
    none = np.zeros(0, np.int64)
    assert not product(np.zeros(0), np.ones((3, 4)), none, none, 2).any()
    assert sampled(np.ones((3, 4)), np.ones((3, 4)), none, none).shape == (0,)
