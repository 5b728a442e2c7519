"""Steps that read what the one before has made: code for all of them, and one after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.recurrent import steps
from disttrain.backends.fused.recurrent.cells import COPIED, MODES
from disttrain.backends.fused.recurrent.steps import Along, Phase, parts, repeated, run
from disttrain.backends.llvm.kernels import recurrence


@pytest.fixture(params=["as wide as can be", "narrow"])
def registers(request, monkeypatch):
    """Registers of this processor, and those of older ones."""
    if request.param == "narrow" and recurrence.lanes():
        monkeypatch.setattr(recurrence, "lanes", lambda: 8)
    known = recurrence.sequence, steps._forms
    for made in known:
        made.cache_clear()
    yield
    for made in known:
        made.cache_clear()


def lstm(rows, width, inputs, kind=np.float32, backwards=False):
    """All arrays after five steps of an LSTM whose first tensor goes through a projection."""
    rng = np.random.default_rng(rows)
    count, high = 5, width - 1

    def drawn(*shape):
        return (rng.normal(size=shape) * 0.5).astype(kind)

    x, h0, c0 = drawn(count, rows, inputs), drawn(rows, high), drawn(rows, width)
    hs, cs, made = (np.zeros((count, rows, n), kind) for n in (high, width, width))
    h, c = Along(hs, -1, h0), Along(cs, -1, c0)
    u, w = drawn(inputs, 4 * width), drawn(high, 4 * width)
    p, b = drawn(width, high), drawn(4 * width)
    scale = min(1.0, 2 / math.sqrt(inputs + high))
    u, w = u * scale, w * scale  # larger ones make of rounding what no tolerance holds
    kept = np.zeros((count, rows, 4 * width), kind)
    arrays = {**parts(kept, 4, "k"), "c": c, "y0": Along(made), "y1": Along(cs)}
    step = MODES["LSTM"].steps[False, True]
    phases = [
        Phase((Along(x), h), (u, w), 4, b, step, arrays),
        Phase((Along(made),), (p,), 1, None, COPIED, {"y0": Along(hs)}),
    ]
    run(phases, count, rows, backwards)
    return hs, cs, made, kept


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("rows", "width", "inputs"), [(1, 2, 1), (7, 16, 5), (13, 33, 600)])
def test_code_does_what_is_done_step_by_step(rows, width, inputs, backwards, monkeypatch):
    found = lstm(rows, width, inputs, backwards=backwards)
    wide = lstm(rows, width, inputs, np.float64, backwards)
    monkeypatch.setattr(steps, "_forms", lambda *given: ([], None))
    plain = lstm(rows, width, inputs, backwards=backwards)
    for a, b, c in zip(found, plain, wide, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
        np.testing.assert_allclose(a, c, 1e-4, 1e-5)


def test_threads_take_rows_and_change_no_bit(monkeypatch):
    monkeypatch.setattr(steps, "_SPREAD", 0)
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        found.append(b"".join(a.tobytes() for a in lstm(11, 20, 9)))
    assert len(set(found)) == 1


def test_where_the_parts_of_steps_are():
    a, end = np.arange(24.0).reshape(4, 2, 3), np.full((2, 3), -1.0)
    for backwards in (False, True):
        order = a[::-1] if backwards else a
        for k in range(4):
            assert (Along(a).at(k, backwards) == order[k]).all()
            before, after = Along(a, -1, end).at(k, backwards), Along(a, 1).at(k, backwards)
            assert (before == (order[k - 1] if k else end)).all()
            assert after is None if k == 3 else (after == order[k + 1]).all()
        assert (Along(a, 0, end).at(0, backwards) == end).all()
        assert (Along(a, 0, end).at(1, backwards) == order[1]).all()


def test_memory_that_repeats_is_the_same_for_each_step():
    a = np.zeros((2, 3))
    many = repeated(a, 4)
    many[2, 1] = 7
    assert many.shape == (4, 2, 3) and (a[1] == 7).all() and (many[0] == a).all()
