"""Whole sequences of recurrent networks against the formulas; gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.recurrent.recurrence import MODES, backward, forward

T, N, H = 4, 3, 5


def drawn(mode, dtype=np.float64, seed=0):
    rng, kind = np.random.default_rng(seed), MODES[mode]
    x = rng.normal(size=(T, N, kind.gates * H))
    w, b = rng.normal(size=(kind.gates * H, H)) * 0.5, rng.normal(size=kind.gates * H)
    states = [rng.normal(size=(N, H)) for _ in range(kind.states)]
    return x.astype(dtype), [s.astype(dtype) for s in states], w.astype(dtype), b.astype(dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_formula(mode, x, states, w, b):
    outs = []
    h, c = (*states, None)[:2]
    for part in x:
        s = h @ w.T + b
        if mode == "LSTM":
            i, f, g, o = np.split(part + s, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif mode == "GRU":
            (xr, xz, xn), (hr, hz, hn) = np.split(part, 3, -1), np.split(s, 3, -1)
            n = np.tanh(xn + sigmoid(xr + hr) * hn)
            h = n + sigmoid(xz + hz) * (h - n)
        else:
            h = np.tanh(part + s) if mode == "RNN_TANH" else np.maximum(part + s, 0)
        outs.append((h, c)[: len(states)])
    return [np.stack(each) for each in zip(*outs, strict=True)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dtype", "far"), [(np.float64, 1e-13), (np.float32, 2e-6)])
def test_values_are_those_of_the_formulas(mode, dtype, far):
    x, states, w, b = drawn(mode, dtype)
    outs, _ = forward(mode, x, states, w, b)
    for got, expected in zip(outs, by_formula(mode, x, states, w, b), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=far, atol=far)
    without, _ = forward(mode, x, states, w, None)
    zero = by_formula(mode, x, states, w, 0 * b)
    np.testing.assert_allclose(without[0], zero[0], rtol=far, atol=far)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_differences(mode):
    x, states, w, b = drawn(mode)
    rng = np.random.default_rng(1)
    outs, kept = forward(mode, x, states, w, b)
    g, ends = rng.normal(size=outs[0].shape), tuple(rng.normal(size=s.shape) for s in states)
    dx, dstates, dw, db, _ = backward(mode, g, ends, kept, tuple(states), w, outs)

    def loss():
        outs = forward(mode, x, states, w, b)[0]
        last = sum((end * o[-1]).sum() for end, o in zip(ends, outs, strict=True))
        return (g * outs[0]).sum() + last

    for array, found in zip((x, w, b, *states), (dx, dw, db, *dstates), strict=True):
        for at in rng.integers(0, array.size, 6):
            before, step = array.flat[at], 1e-6
            array.flat[at] = before + step
            up = loss()
            array.flat[at] = before - step
            down = loss()
            array.flat[at] = before
            assert found.flat[at] == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_is_missing_is_zero(mode):
    x, states, w, b = drawn(mode)
    outs, kept = forward(mode, x, states, w, b)
    g, zeros, none = np.ones((T, N, H)), [0 * s for s in states], [None] * len(states)
    first, *rest = backward(mode, g, zeros, kept, tuple(states), w, outs)
    again, *others = backward(mode, g, none, kept, tuple(states), w, outs)
    assert first.tobytes() == again.tobytes() and rest[1].tobytes() == others[1].tobytes()


def test_memory_of_any_layout_is_taken():
    x, states, w, b = drawn("LSTM")
    outs, _ = forward("LSTM", x, states, w, b)
    turned = [np.asfortranarray(s) for s in states]
    other, _ = forward("LSTM", np.asfortranarray(x), turned, np.asfortranarray(w), b)
    np.testing.assert_allclose(other[0], outs[0], rtol=1e-14)
