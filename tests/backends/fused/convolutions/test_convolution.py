"""Windows multiplied where they lie give what windows laid out give."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.convolutions import convolution
from disttrain.backends.llvm.kernels import implicit_product


@pytest.fixture(autouse=True)
def _whatever_gains(monkeypatch):
    """Take every convolution that there is code for, and many pieces of small ones."""
    for name, value in {"_LEAST": 1, "_TERMS": 1, "_TAPS": 1, "_FULL": 0.0, "_PLACES": 20}.items():
        monkeypatch.setattr(convolution, name, value)


def _taps(x, kernel, stride, padding, dilation, out):
    """Each position in the kernel with the padded values that it meets."""
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    for tap in itertools.product(*map(range, kernel)):
        where = (
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, out, strict=True)
        )
        yield tap, x[(slice(None), slice(None), *where)]


def _case(seed):
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    dims, groups = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2])
    how = {
        "stride": tuple(draw.choice([1, 1, 2, 3]) for _ in range(dims)),
        "padding": tuple(draw.choice([0, 1, 2]) for _ in range(dims)),
        "dilation": tuple(draw.choice([1, 1, 2]) for _ in range(dims)),
    }
    kernel = tuple(draw.choice([1, 2, 3]) for _ in range(dims))
    out = tuple(draw.choice([1, 3, 5, 8] if dims < 3 else [2, 3, 4]) for _ in range(dims))
    extra = [draw.randrange(s) for s in how["stride"]]
    size = tuple(
        max(1, (n - 1) * s + d * (k - 1) + 1 - 2 * p + e)
        for n, s, p, d, k, e in zip(out, *how.values(), kernel, extra, strict=True)
    )
    spans = zip(size, *how.values(), kernel, strict=True)
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, s, p, d, k in spans)
    n, outer = draw.choice([1, 2, 5]), groups * draw.choice([12, 16, 17, 32, 37, 48])
    inner = groups * draw.choice([1, 3, 12, 16, 33])
    kind = draw.choice(["f4", "f8"])
    x, g = (rng.normal(size=shape).astype(kind) for shape in ((n, inner, *size), (n, outer, *out)))
    w = rng.normal(size=(outer, inner // groups, *kernel)).astype(kind)
    return x, w, g, groups, how


def _close(found, wanted):
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    eps = 2e-5 if found.dtype == np.float32 else 1e-12
    assert np.abs(found - wanted).max(initial=0) <= eps * scale


@pytest.fixture(params=["as wide as can be", "narrow"])
def registers(request, monkeypatch):
    """Registers of this processor, and those of older ones."""
    if request.param == "narrow":
        monkeypatch.setattr(implicit_product, "tile", lambda kind: (6, 8 if "32" in kind else 4))
    implicit_product.product.cache_clear()
    yield
    implicit_product.product.cache_clear()


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("seed", range(80))
def test_drawn_convolutions_and_their_gradients(seed):
    x, w, g, groups, how = _case(seed)
    n, outer, *out = g.shape
    kernel, inner = w.shape[2:], w.shape[1]
    bias = g[0].reshape(outer, -1)[:, 0].copy()
    grouped_g = g.reshape(n, groups, outer // groups, -1).astype("f8")
    wide = w.reshape(groups, outer // groups, *w.shape[1:]).astype("f8")
    y, dw = np.zeros(grouped_g.shape), np.zeros(wide.shape)
    padded = np.zeros((*x.shape[:2], *(a + 2 * b for a, b in zip(x.shape[2:], how["padding"]))))
    views = _taps(padded, kernel, how["stride"], (0,) * len(kernel), how["dilation"], tuple(out))
    spread = {tap: np.empty(view.shape) for tap, view in views}
    for tap, view in _taps(x.astype("f8"), kernel, **how, out=tuple(out)):
        meets = view.reshape(n, groups, inner, -1)
        y += np.einsum("goc,ngcp->ngop", wide[(..., *tap)], meets)
        dw[(..., *tap)] = np.einsum("ngop,ngcp->goc", grouped_g, meets)
        spread[tap] = np.einsum("goc,ngop->ngcp", wide[(..., *tap)], grouped_g).reshape(view.shape)
    for tap, values in spread.items():
        where = (
            slice(t * d, t * d + s * (k - 1) + 1, s)
            for t, d, s, k in zip(tap, how["dilation"], how["stride"], out, strict=True)
        )
        padded[(slice(None), slice(None), *where)] += values
    inside = (slice(p, p + k) for p, k in zip(how["padding"], x.shape[2:], strict=True))
    found = np.full_like(g, np.nan)
    if convolution.convolve(x, w, bias, found, groups=groups, **how):
        _close(found, y.reshape(g.shape) + bias.reshape(-1, *(1,) * len(out)))
    found = np.full_like(w, np.nan)
    if convolution.weight_grad(g, x, found, groups=groups, **how):
        _close(found, dw.reshape(w.shape))
    found = np.full_like(x, np.nan)
    if convolution.input_grad(g, w, found, groups=groups, **how):
        _close(found, padded[(slice(None), slice(None), *inside)])


_HOW = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


def test_a_sample_has_the_same_bits_among_many_and_alone():
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("f4") for s in ((9, 16, 11, 7), (48, 16, 3, 3)))
    y, alone = np.empty((9, 48, 11, 7), "f4"), np.empty((1, 48, 11, 7), "f4")
    assert convolution.convolve(x, w, None, y, **_HOW) == convolution.convolve(
        x[4:5], w, None, alone, **_HOW
    )
    assert np.array_equal(y[4:5], alone)


@pytest.mark.parametrize("n", [1, 7])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, n):
    monkeypatch.setattr(convolution, "_SPREAD", 1)
    rng = np.random.default_rng(0)
    shapes = ((n, 16, 23, 9), (48, 16, 3, 3), (n, 48, 12, 5))
    x, w, g = (rng.normal(size=shape).astype("f4") for shape in shapes)
    how, found = {**_HOW, "stride": (2, 2)}, []
    for count in (1, 2, 3, 5):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        out = y, dw, dx = np.empty_like(g), np.empty_like(w), np.empty_like(x)
        took = convolution.convolve(x, w, None, y, **how)
        assert took == convolution.weight_grad(g, x, dw, **how)
        assert took == convolution.input_grad(g, w, dx, **how)
        found.append(out if took else ())
    assert all(np.array_equal(a, b) for out in found for a, b in zip(out, found[0], strict=True))


def test_inputs_in_any_order_of_memory():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 9, 8, 3)).astype("f4").transpose(3, 0, 2, 1)
    w = rng.normal(size=(3, 3, 16, 32)).astype("f4").transpose(3, 2, 0, 1)
    for padding in ((0, 0), (1, 1)):
        how = {**_HOW, "padding": padding}
        out = tuple(n - 2 + 2 * padding[0] for n in x.shape[2:])
        ys = np.empty((2, 3, 32, *out), "f4")
        took = [
            convolution.convolve(a, b, None, y, **how)
            for a, b, y in ((x, w, ys[0]), (x.copy("C"), w.copy("C"), ys[1]))
        ]
        assert took[0] == took[1]
        assert not took[0] or np.array_equal(*ys)


@pytest.mark.parametrize("kind", ["i4", "f2", "c8", ">f4"])
def test_other_types_are_left_to_others(kind):
    x, w, y = (np.zeros(s, kind) for s in ((2, 16, 8, 8), (32, 16, 3, 3), (2, 32, 8, 8)))
    assert not convolution.convolve(x, w, None, y, **_HOW)
    assert not convolution.input_grad(y, w, x, **_HOW)
    assert not convolution.weight_grad(y, x, w, **_HOW)


def test_no_samples_and_no_channels_are_left_to_others(monkeypatch):
    monkeypatch.undo()
    for n, c in ((0, 16), (2, 0)):
        x, w, y = (np.zeros(s, "f4") for s in ((n, c, 8, 8), (32, c, 3, 3), (n, 32, 8, 8)))
        assert not convolution.convolve(x, w, None, y, **_HOW)
        assert not convolution.input_grad(y, w, x, **_HOW)
        assert not convolution.weight_grad(y, x, w, **_HOW)
