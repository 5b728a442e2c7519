"""Products of many rows: what they are, in any order of memory and by any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.products import many_rows


@pytest.fixture
def own(monkeypatch):
    """Also where a BLAS is as good; code is made anew."""
    monkeypatch.setattr(many_rows.blas, "kernels", lambda: "")
    many_rows._run.cache_clear()
    yield
    many_rows._run.cache_clear()


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("m", "k", "n"), [(64, 512, 128), (100, 333, 250), (61, 2100, 60)])
def test_products_in_any_order_of_memory(m, k, n):
    x, w = drawn(m, k), drawn(k, n, seed=1)
    want = x.astype(np.float64) @ w
    wide = np.zeros((m, 2 * n), np.float32)
    given = [(x, w), (np.asfortranarray(x), w), (x, np.asfortranarray(w)), (x[:, ::-1], w[::-1])]
    for a, b in given:
        found = many_rows.product(a, b)
        if found is None:
            pytest.skip("no code is made on this machine")
        np.testing.assert_allclose(found, want, 1e-4, 2e-3)
        into = many_rows.product(a, b, wide[:, :n])
        assert into.tobytes() == found.tobytes() and not wide[:, n:].any()


@pytest.mark.usefixtures("own")
def test_a_row_has_its_bits_whatever_the_others_and_the_threads(monkeypatch):
    x, w = drawn(96, 700), drawn(700, 192, seed=1)
    whole = many_rows.product(x, w)
    if whole is None:
        pytest.skip("no code is made on this machine")
    assert many_rows.product(x[17:80], w).tobytes() == whole[17:80].tobytes()
    monkeypatch.setattr(many_rows, "_SPREAD", 0)
    for count in (2, 3):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        assert many_rows.product(x, w).tobytes() == whole.tobytes()


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("x", "w"),
    [
        (drawn(8, 1024), drawn(1024, 1024)),
        (drawn(64, 8), drawn(8, 64)),
        (drawn(512, 512), drawn(512, 10)),
        (drawn(512, 512).astype(np.float64), drawn(512, 512).astype(np.float64)),
        (drawn(512, 512), drawn(512, 512).astype(np.float64)),
        (drawn(2, 512, 512), drawn(512, 512)),
    ],
)
def test_the_rest_is_left_to_numpy(x, w):
    assert many_rows.product(x, w) is None
