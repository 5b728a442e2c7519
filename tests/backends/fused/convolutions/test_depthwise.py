"""Convolutions of single channels and their gradients give what sums over their taps give."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.convolutions import depthwise
from disttrain.backends.llvm.kernels import depthwise as code


@pytest.fixture(params=["as wide as can be", "narrow"])
def registers(request, monkeypatch):
    """Registers of this processor, and those of older ones."""
    made = (depthwise._sums, depthwise._gradient, code.sums, code.gradient)
    if request.param == "narrow":
        monkeypatch.setattr(code, "lanes", lambda kind, width: 8 if "32" in kind else 4)
    for each in made:
        each.cache_clear()
    yield
    for each in made:
        each.cache_clear()


def _case(seed):
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    dims = draw.choice([1, 2, 2, 2, 3])
    channels, each, n = draw.choice([2, 3, 5]), draw.choice([1, 1, 2, 3]), draw.choice([1, 2, 5])
    how = {
        "stride": tuple(draw.choice([1, 1, 2, 2, 3, 4]) for _ in range(dims)),
        "padding": tuple(draw.choice([0, 1, 2, 3]) for _ in range(dims)),
        "dilation": tuple(draw.choice([1, 1, 2, 3]) for _ in range(dims)),
    }
    kernel = tuple(draw.choice([1, 2, 3, 4, 5, 7]) for _ in range(dims))
    size = [draw.randint(1, 20 if dims < 3 else 7) for _ in range(dims)]
    size[-1] = draw.choice([size[-1], draw.randint(20, 90)])
    spans = list(zip(*how.values(), kernel, strict=True))
    size = tuple(max(n, d * (k - 1) + 1 - 2 * p) for n, (_, p, d, k) in zip(size, spans))
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, (s, p, d, k) in zip(size, spans))
    kind = draw.choice(["f4", "f8"])
    x = rng.normal(size=(n, channels, *size)).astype(kind)
    g = rng.normal(size=(n, channels * each, *out)).astype(kind)
    return x, rng.normal(size=(channels * each, 1, *kernel)).astype(kind), g, how


def _taps(x, kernel, stride, padding, dilation, out):
    """Each position in the kernel with the padded values that it meets, and where these are."""
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    for tap in itertools.product(*map(range, kernel)):
        where = (
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, out, strict=True)
        )
        yield tap, (slice(None), slice(None), *where), x


def _close(found, wanted):
    eps = 1e-5 if found.dtype == np.float32 else 1e-12
    assert np.abs(found - wanted).max() <= eps * max(1.0, float(np.abs(wanted).max()))


def _wanted(x, w, g, how):
    """The convolution and both gradients, in float64."""
    x, w, g = (a.astype("f8") for a in (x, w, g))
    each, kernel, ones = len(w) // x.shape[1], w.shape[2:], (1,) * (x.ndim - 2)
    y, dw = np.zeros(g.shape), np.zeros(w.shape)
    wide = np.pad(np.zeros(x.shape), [(0, 0), (0, 0), *((p, p) for p in how["padding"])])
    for tap, where, padded in _taps(x, kernel, **how, out=g.shape[2:]):
        seen, weights = padded[where].repeat(each, 1), w[(slice(None), 0, *tap)]
        y += seen * weights.reshape(-1, *ones)
        dw[(slice(None), 0, *tap)] = (seen * g).sum((0, *range(2, x.ndim)))
        back = (g * weights.reshape(-1, *ones)).reshape(*x.shape[:2], each, *g.shape[2:])
        wide[where] += back.sum(2)
    inside = (slice(p, p + n) for p, n in zip(how["padding"], x.shape[2:]))
    return y, wide[(slice(None), slice(None), *inside)], dw


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("seed", range(60))
def test_drawn_convolutions_and_their_gradients(seed):
    x, w, g, how = _case(seed)
    y, dx, dw = (np.full(a.shape, np.nan, a.dtype) for a in (g, x, w))
    bias, how = np.arange(len(w), dtype=w.dtype), {**how, "groups": x.shape[1]}
    done = [
        depthwise.convolve(x, w, bias, y, **how),
        depthwise.input_grad(g, w, dx, **how),
        depthwise.weight_grad(g, x, dw, **how),
    ]
    assert all(done) or not any(done)
    if any(done):
        del how["groups"]
        wanted = _wanted(x, w, g, how)
        _close(y, wanted[0] + bias.reshape(-1, *(1,) * (x.ndim - 2)))
        _close(dx, wanted[1])
        _close(dw, wanted[2])


def _all(n=4, size=24, x=None):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(n, 6, size, size)).astype("f4") if x is None else x
    w, how = rng.normal(size=(6, 1, 3, 3)).astype("f4"), {"dilation": (1, 1), "groups": 6}
    how |= {"stride": (2, 2), "padding": (1, 1)}
    g = rng.normal(size=(n, 6, size // 2, size // 2)).astype("f4")
    y, dx, dw = np.empty_like(g), np.empty(x.shape, "f4"), np.empty_like(w)
    done = (depthwise.convolve(x, w, None, y, **how), depthwise.input_grad(g, w, dx, **how),
            depthwise.weight_grad(g, x, dw, **how))  # fmt: skip
    return done, (y, dx, dw)


def test_bits_do_not_depend_on_threads(monkeypatch):
    before = _all()
    monkeypatch.setattr(depthwise, "_SPREAD", 1)
    monkeypatch.setattr(threads, "count", lambda: 3)
    after = _all()
    assert before[0] == after[0]
    if all(before[0]):
        assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1]))


def test_bits_of_a_sample_do_not_depend_on_others():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 6, 24, 24)).astype("f4")
    (done, *_), (all_of, *_) = _all(x=x)
    (_, *_), (one, *_) = _all(1, x=x[:1])
    assert not done or np.array_equal(all_of[:1], one)


def test_the_gradient_in_weights_of_what_is_not_finite_is_left_to_others():
    x = np.ones((2, 6, 8, 8), "f4")
    x[0, 0, 0, 0] = np.inf
    done, _ = _all(2, 8, x)
    assert done[0] == done[1]
    assert not done[2]


def test_orders_of_memory_and_other_types():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2, 9, 9, 6)).astype("f4").transpose(0, 3, 1, 2)
    assert not x.flags.c_contiguous
    done, found = _all(2, 8, np.ascontiguousarray(x[:, :, :8, :8]))
    again = _all(2, 8, x[:, :, :8, :8])
    assert done == again[0]
    assert not all(done) or all(np.array_equal(a, b) for a, b in zip(found, again[1]))
    assert not any(_all(2, 8, x[:, :, :8, :8].astype("f2"))[0][::2])


def test_the_gradient_in_inputs_of_weights_that_are_not_finite_is_left_to_others():
    """What no window reaches is zero, whatever the weights are."""
    g, w = np.ones((1, 2, 3, 3), "f4"), np.full((2, 1, 2, 2), np.nan, "f4")
    how = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 2}
    assert not depthwise.input_grad(g, w, np.empty((1, 2, 4, 4), "f4"), **how)
