"""An LSTM's steps by products of few rows or by a BLAS, with gradients that lie in any way."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused import few_rows, lstm


def _drawn(count, rows, width, kind):
    rng = np.random.default_rng(count)
    x, h, c, w, b = (
        (rng.normal(size=shape) * 0.5).astype(kind)
        for shape in ((count, rows, 4 * width), (rows, width), (rows, width), (4 * width, width),
                      (4 * width,))
    )  # fmt: skip
    return x, h, c, w, b


def _plain(x, h, c, w, b):
    outs = []
    for part in x:
        i, f, g, o = np.split(part + h @ w.T + b, 4, -1)
        i, f, o = (1 / (1 + np.exp(-a)) for a in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        outs.append((h, c))
    return [np.stack(a) for a in zip(*outs, strict=True)]


SIZES = [(1, 3, 5), (2, 1, 8), (5, 16, 20), (3, 40, 7)]


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize(
    ("count", "rows", "width"), [(1, 3, 5), (2, 1, 8), (5, 16, 20), (3, 40, 7)]
)
def test_all_states(count, rows, width, kind):
    given = _drawn(count, rows, width, kind)
    outs, gates = lstm.forward(*given)
    assert gates.shape == given[0].shape
    for a, b in zip(outs, _plain(*(a.astype("f8") for a in given)), strict=True):
        assert a.dtype == kind
        assert np.allclose(a, b, 1e-5 if kind == "f4" else 1e-12, 1e-6)


def test_few_rows_and_many_have_the_same_gradients(monkeypatch):
    x, h, c, w, b = _drawn(4, 5, 6, "f8")
    outs, gates = lstm.forward(x, h, c, w, b)
    g = np.random.default_rng(1).normal(size=(5, 4, 6)).swapaxes(0, 1)  # not in order
    first = lstm.backward((g, None), gates, (h, c), w, outs)
    monkeypatch.setattr(few_rows, "into", lambda rows, w: None)
    again = lstm.forward(x, h, c, w, b)[0]
    other = lstm.backward((g, np.zeros(g.shape)), gates, (h, c), w, outs)
    for a, b in zip((*first[::2], *first[1], *outs), (*other[::2], *other[1], *again), strict=True):
        assert np.allclose(a, b, 1e-12, 1e-12)


def test_memory_that_repeats_is_the_same_for_each_step():
    a = np.zeros((2, 3))
    many = lstm._repeated(a, 4)
    many[2, 1] = 7
    assert many.shape == (4, 2, 3) and (a[1] == 7).all() and (many[0] == a).all()
