"""Products of a few rows are those of numpy, for matrices that lie in any way."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends import threads
from disttrain.backends.fused.products import few_rows


def _lies(rng, k, n, kind):
    """Matrices (k, n) of the same numbers that lie in different ways."""
    w = rng.normal(size=(k, n)).astype(kind)
    padded = np.zeros((k, n + 5), kind)
    padded[:, :n] = w
    steps = np.zeros((k, 2 * n), kind)
    steps[:, ::2] = w
    flipped = np.ascontiguousarray(w[::-1])[::-1]
    return w, np.asfortranarray(w), padded[:, :n], steps[:, ::2], flipped


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("k", [1, 100, 513])
def test_products(kind, k, monkeypatch):
    monkeypatch.setattr(few_rows, "_WORTH", {"across": 1, "along": 1})
    rng = np.random.default_rng(k)
    for m in (2, 3, 7, 8, 9, 16):
        x = rng.normal(size=(m, k)).astype(kind)
        for rows in (x, np.asfortranarray(x), x[::-1], np.repeat(x, 2, 1)[:, ::2]):
            for w in _lies(rng, k, 77, kind):
                y = few_rows.product(rows, w)
                wanted = rows.astype("f8") @ w
                close = 2e-5 if kind == "f4" else 1e-12
                assert y is None or np.allclose(y, wanted, close, close * np.abs(wanted).max())


def test_what_is_left_to_others():
    x, w = np.ones((4, 2000), "f4"), np.ones((2000, 1000), "f4")
    assert few_rows.product(x[:1], w) is None
    assert few_rows.product(np.ones((17, 2000), "f4"), w) is None
    assert few_rows.product(x.astype("f8"), w) is None
    assert few_rows.product(x.astype(">f4"), w.astype(">f4")) is None
    assert few_rows.product(x.astype(int), w.astype(int)) is None
    assert few_rows.product(x, w[:, ::2]) is None
    assert few_rows.product(x[:, :10], w[:10, :10]) is None
    assert few_rows.product(x[:, :0], w[:0]) is None
    assert few_rows.product(x, w[None]) is None


def test_any_number_of_threads_gives_the_same_bits(monkeypatch):
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(5, 1100)).astype("f4"), rng.normal(size=(1100, 1100)).astype("f4")
    found = set()
    for count in (1, 2, 3, 7):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        for lies in (w, np.asfortranarray(w)):
            y = few_rows.product(x, lies)
            if y is not None:
                found.add((lies.flags.c_contiguous, y.tobytes()))
    assert len(found) in (0, 2)


def test_operations_take_them_and_are_differentiated():
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(6, 900)).astype("f4"), rng.normal(size=(700, 900)).astype("f4")
    a, b = (dt.from_numpy(v).requires_grad_() for v in (x, w))
    out = dt.nn.functional.linear(a, b)
    assert np.allclose(out.detach().numpy(), x.astype("f8") @ w.T, 1e-4, 1e-3)
    assert np.allclose((a @ b.t()).detach().numpy(), x.astype("f8") @ w.T, 1e-4, 1e-3)
    out.backward(dt.ones(6, 700))
    assert np.allclose(a.grad.numpy(), np.broadcast_to(w.sum(0, "f8"), x.shape), 1e-4, 1e-3)
    assert np.allclose(b.grad.numpy(), np.broadcast_to(x.sum(0, "f8"), w.shape), 1e-4, 1e-3)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("sizes", [(3, 5), (256, 300)])
def test_a_column_times_a_row(sizes, kind):
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=(sizes[0], 1)).astype(kind), rng.normal(size=(1, sizes[1])).astype(kind)
    out = np.empty(sizes, kind)
    assert few_rows.outer(x, w, out) is out
    assert (out == x * w).all()
    assert (few_rows.outer(x[::-1], w[:, ::-1]) == (x * w)[::-1, ::-1]).all()
    assert few_rows.outer(x.astype(int), w) is None
    assert few_rows.outer(x[:0], w) is None
