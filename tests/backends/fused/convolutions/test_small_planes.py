"""Convolutions of small planes and their gradients are the sums that define them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.convolutions import small_planes as fused
from disttrain.ops.primitives import windows as win


def _drawn(seed: int):
    """Sizes, steps and types of a convolution, at random."""
    draw = random.Random(seed)
    while True:
        dims = draw.choice([1, 2])
        kernel, stride, padding, dilation, size = (
            tuple(draw.choice(some) for _ in range(dims))
            for some in ([1, 2, 3, 4], [1, 1, 2, 3], [0, 1, 2], [1, 1, 2], range(1, 20))
        )
        out = win.out_sizes(size, kernel, stride, padding, dilation)
        if min(out) > 0:
            break
    groups, inner, outer = draw.choice([1, 2, 3]), draw.choice([1, 2, 5]), draw.choice([1, 4, 13])
    rng, kind = np.random.default_rng(seed), draw.choice([np.float32, np.float64])
    n = draw.choice([1, 2, 5])
    x = rng.normal(size=(n, inner * groups, *size)).astype(kind)
    w = rng.normal(size=(outer * groups, inner, *kernel)).astype(kind)
    g = rng.normal(size=(n, outer * groups, *out)).astype(kind)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x, w, rng.normal(size=len(w)).astype(kind), g, how


def _wanted(x, w, b, g, how):
    """The convolution, and its adjoints in x and w at g, in float64."""
    out, size, outer = g.shape[2:], x.shape[2:], w.shape[0] // how["groups"]
    wide = win.padded(x.astype("f8"), how["padding"])
    y, dx, dw = np.zeros(g.shape), np.zeros(wide.shape), np.zeros(w.shape)
    y += b.reshape(1, -1, *(1,) * len(size))
    for o, c in np.ndindex(w.shape[:2]):
        channel = o // outer * w.shape[1] + c
        for tap, where in win.taps(w.shape[2:], out, how["stride"], how["dilation"]):
            met = wide[(slice(None), channel, *where)]
            y[:, o] += met * w[(o, c, *tap)]
            dx[(slice(None), channel, *where)] += g[:, o].astype("f8") * w[(o, c, *tap)]
            dw[(o, c, *tap)] = (met * g[:, o]).sum()
    return y, dx[win.inside(size, how["padding"])], dw


@pytest.mark.parametrize("seed", range(60))
def test_any_sizes_and_steps(seed):
    x, w, b, g, how = _drawn(seed)
    y, dx, dw = made = [np.full(a.shape, np.nan, x.dtype) for a in (g, x, w)]
    ran = (fused.convolve(x, w, b, y, **how), fused.input_grad(g, w, dx, **how),
           fused.weight_grad(g, x, dw, **how))  # fmt: skip
    assert ran[0]
    assert ran[2]
    close = 1e-5 if x.dtype == "f4" else 1e-13
    for found, wanted, did in zip(made, _wanted(x, w, b, g, how), ran, strict=True):
        if did:
            assert np.abs(found - wanted).max() <= close * max(1, np.abs(wanted).max())


def test_arrays_in_any_order_and_no_bias():
    x, w, b, g, how = _drawn(3)
    y, again = np.empty(g.shape, x.dtype), np.empty(g.shape, x.dtype)
    assert fused.convolve(x, w, np.zeros_like(b), y, **how)
    turned = (np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1) for a in (x, w))
    assert fused.convolve(*turned, None, again, **how)
    assert y.tobytes() == again.tobytes()


def test_gradients_of_arrays_in_any_order():
    how = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    rng = np.random.default_rng(5)
    shapes = (4, 8, 9, 9), (16, 8, 3, 3), (4, 16, 9, 9)
    x, w, g = (rng.normal(size=shape).astype("f4") for shape in shapes)
    turned = [np.asfortranarray(a) for a in (x, w, g)]
    for which, shape, given, other in (
        ("input_grad", x.shape, (g, w), (turned[2], turned[1])),
        ("weight_grad", w.shape, (g, x), (turned[2], turned[0])),
    ):
        found, again = np.empty(shape, "f4"), np.empty(shape, "f4")
        assert getattr(fused, which)(*given, found, **how)
        assert getattr(fused, which)(*other, again, **how)
        assert found.tobytes() == again.tobytes()


def test_what_is_not_finite_is_left_to_others():
    how = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    rng = np.random.default_rng(0)
    x, w, g = (rng.normal(size=s).astype("f4") for s in ((2, 3, 6, 6), (4, 3, 3, 3), (2, 4, 6, 6)))
    dx, dw = np.empty_like(x), np.empty_like(w)
    for odd in (np.inf, np.nan):
        for a in (w, g):
            kept, a.flat[7] = a.flat[7], odd
            assert not fused.input_grad(g, w, dx, **how)
            a.flat[7] = kept
        for a in (x, g):
            kept, a.flat[7] = a.flat[7], odd
            assert not fused.weight_grad(g, x, dw, **how)
            a.flat[7] = kept
    assert fused.input_grad(g, w, dx, **how)
    assert fused.weight_grad(g, x, dw, **how)


@pytest.mark.parametrize("which", ["convolve", "input_grad", "weight_grad"])
def test_the_bits_depend_neither_on_threads_nor_on_other_samples(which, monkeypatch):
    how = {"stride": (1, 2), "padding": (1, 0), "dilation": (1, 1), "groups": 2}
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(5, 6, 9, 20)).astype("f4"), rng.normal(size=(10, 3, 3, 2)).astype("f4")
    out = win.out_sizes(x.shape[2:], w.shape[2:], (1, 2), (1, 0), (1, 1))
    g = rng.normal(size=(5, 10, *out)).astype("f4")

    def run(some):
        given = {"convolve": (x[some], w, None, np.empty_like(g[some])),
                 "input_grad": (g[some], w, np.empty_like(x[some])),
                 "weight_grad": (g[some], x[some], np.empty_like(w))}[which]  # fmt: skip
        assert getattr(fused, which)(*given, **how)
        return given[-1]

    whole = run(slice(0, 5))
    if which != "weight_grad":
        assert all(run(slice(k, k + 1)).tobytes() == whole[k : k + 1].tobytes() for k in range(5))
    monkeypatch.setattr(fused, "_SPREAD", 1)
    monkeypatch.setattr(threads, "count", lambda: 3)
    assert run(slice(0, 5)).tobytes() == whole.tobytes()


def test_large_planes_and_other_types_are_left_to_others():
    how = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(1, 16, 60, 60)), rng.normal(size=(16, 16, 3, 3))
    assert not fused.convolve(x, w, None, np.empty((1, 16, 58, 58)), **how)
    x, w = (a[:, :2, :8, :8].astype("f2") for a in (x, w))
    assert not fused.convolve(x, w, None, np.empty((1, 16, 6, 6), "f2"), **how)
