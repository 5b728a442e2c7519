"""Convolutions by minimal filtering against sums of products in double precision."""

from __future__ import annotations

import random

import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.convolutions import winograd
from disttrain.backends.llvm.kernels import implicit_product
from disttrain.backends.llvm.kernels import winograd as code
from disttrain.ops.primitives import windows as win


def _forget():
    winograd._plan.cache_clear()
    winograd._units.cache_clear()
    code.forward.cache_clear()
    code.backward.cache_clear()


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Whether it gains or not."""
    for name, value in (("_LEAST", 0), ("_PLACES", 0), ("_EACH", 1), ("_GAIN", 1e9)):
        monkeypatch.setattr(winograd, name, value)
    _forget()
    yield
    monkeypatch.undo()
    _forget()


@pytest.fixture(params=["as wide as can be", "narrow", "few at a time"])
def registers(request, monkeypatch):
    """Registers of this processor, those of older ones, and units in many portions."""
    if request.param == "narrow":
        monkeypatch.setattr(implicit_product, "tile", lambda kind: (6, 8 if "32" in kind else 4))
    if request.param == "few at a time":
        for name, value in (("_FLOATS", 1000), ("_TILES", (3, 7)), ("_LONG", 3)):
            monkeypatch.setattr(winograd, name, value)
    _forget()


def _case(seed):
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    dims, groups = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2, 3])
    inner, outer = draw.choice([1, 2, 7, 16, 17]), draw.choice([1, 3, 8, 16, 20, 33])
    kernel = tuple(draw.choice([1, 2, 3, 3, 4, 5, 7]) for _ in range(dims - 1))
    kernel = (*kernel, draw.choice([2, 3, 3, 4, 5, 7]))
    dilation = (*(draw.choice([1, 1, 2, 3]) for _ in range(dims - 1)), draw.choice([1, 1, 2]))
    padding = tuple(draw.randint(0, d * (k - 1) + 1) for k, d in zip(kernel, dilation, strict=True))
    most = {1: 200, 2: 24, 3: 6}[dims]
    size = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + draw.randint(0, most)
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    how = {"stride": (1,) * dims, "padding": padding, "dilation": dilation}
    out = win.out_sizes(size, kernel, **how)
    n = draw.choice([1, 2, 3])
    shapes = (n, inner * groups, *size), (outer * groups, inner, *kernel), (n, outer * groups, *out)
    x, w, g = (rng.normal(size=shape).astype("f4") for shape in shapes)
    return x, w, g, {**how, "groups": groups}


def _wanted(x, w, g, how):
    """The convolution, and the gradients in x and w, in double precision."""
    steps = {k: v for k, v in how.items() if k not in ("groups", "padding")}
    groups, out = how["groups"], g.shape[2:]
    wide = w.reshape(groups, -1, *w.shape[1:]).astype("f8")
    flat = g.reshape(len(g), groups, -1, np.prod(out)).astype("f8")
    padded = win.padded(x.astype("f8"), how["padding"])
    y, dx, dw = np.zeros(flat.shape), np.zeros(padded.shape), np.zeros(wide.shape)
    for tap, where in win.taps(w.shape[2:], out, **steps):
        seen = padded[(..., *where)]
        meets = seen.reshape(len(x), groups, w.shape[1], -1)
        y += np.einsum("goc,ngcp->ngop", wide[(..., *tap)], meets)
        dw[(..., *tap)] = np.einsum("ngop,ngcp->goc", flat, meets)
        back = np.einsum("goc,ngop->ngcp", wide[(..., *tap)], flat)
        dx[(..., *where)] += back.reshape(seen.shape)
    return y.reshape(g.shape), dx[win.inside(x.shape[2:], how["padding"])], dw.reshape(w.shape)


def _adjoint(w, how):
    """Weights and arguments of the convolution that is the gradient in x."""
    grouped = w.reshape(how["groups"], -1, *w.shape[1:]).swapaxes(1, 2)
    flipped = np.flip(grouped, tuple(range(3, grouped.ndim)))
    spatial = zip(how["padding"], how["dilation"], w.shape[2:], strict=True)
    padding = tuple(d * (k - 1) - p for p, d, k in spatial)
    return flipped.reshape(-1, *flipped.shape[2:]), {**how, "padding": padding}


def _close(found, wanted):
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    assert np.abs(found - wanted).max(initial=0) <= 1e-5 * scale


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("seed", range(60))
def test_drawn_convolutions_and_their_gradients(seed):
    x, w, g, how = _case(seed)
    y, dx, dw = _wanted(x, w, g, how)
    bias = g[0].reshape(len(w), -1)[:, 0].copy()
    found = np.full_like(g, np.nan)
    if winograd.convolve(x, w, bias, found, **how) is not None:
        _close(found, y + bias.reshape(-1, *(1,) * (x.ndim - 2)))
    weights, back = _adjoint(w, how)
    found = np.full_like(x, np.nan)
    if winograd.convolve(g, weights, None, found, **back) is not None:
        _close(found, dx)
    found = np.full_like(w, np.nan)
    if winograd.weight_grad(g, x, found, **how):
        _close(found, dw)


_HOW = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


def _arrays(n, kind="f4"):
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(kind) for s in ((n, 16, 21, 17), (48, 16, 3, 3))]


def test_a_sample_has_the_same_bits_among_many_and_alone():
    x, w = _arrays(9)
    y, alone = np.empty((9, 48, 21, 17), "f4"), np.empty((1, 48, 21, 17), "f4")
    took = winograd.convolve(x, w, None, y, **_HOW)
    assert took == winograd.convolve(x[4:5], w, None, alone, **_HOW)
    assert took is None or np.array_equal(y[4:5], alone)


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("groups", [1, 2])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, n, groups):
    monkeypatch.setattr(winograd, "_SPREAD", 1)
    (x, w), found = _arrays(n), []
    w, how = w[:, : 16 // groups].copy(), {**_HOW, "groups": groups}
    g = np.random.default_rng(1).normal(size=(n, 48, 21, 17)).astype("f4")
    for count in (1, 2, 3, 5):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        y, dw = np.empty_like(g), np.empty_like(w)
        took = winograd.convolve(x, w, None, y, **how) is not None
        assert took == winograd.weight_grad(g, x, dw, **how)
        found.append((y, dw) if took else ())
    assert all(np.array_equal(a, b) for out in found for a, b in zip(out, found[0], strict=True))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_samples_that_are_not_finite_are_told(value):
    x, w = _arrays(5)
    x[1, 3, 20, 16], x[3, 0, 0, 0] = value, value
    y, dw = np.empty((5, 48, 21, 17), "f4"), np.empty_like(w)
    with np.errstate(all="ignore"):
        left = winograd.convolve(x, w, None, y, **_HOW)
        assert left in (None, [1, 3])
        assert not winograd.weight_grad(y, x, dw, **_HOW)
    assert left is None or np.isfinite(y[[0, 2, 4]]).all()


def test_inputs_in_any_order_of_memory():
    x, w = _arrays(3)
    ys = np.empty((3, 3, 48, 21, 17), "f4")
    turned = x.transpose(2, 0, 3, 1).copy().transpose(1, 3, 0, 2)
    apart = np.repeat(np.repeat(x, 2, 1), 2, 0)[::2, ::2]
    for a, y in zip((x, turned, apart), ys, strict=True):
        took = winograd.convolve(a, w.transpose(3, 2, 1, 0).copy().T, None, y, **_HOW)
    assert took is None or (np.array_equal(ys[0], ys[1]) and np.array_equal(ys[0], ys[2]))


@pytest.mark.parametrize("kind", ["i4", "f2", "c8", "f8", ">f4"])
def test_other_types_are_left_to_others(kind):
    x, w = _arrays(2, kind)
    y = np.zeros((2, 48, 21, 17), kind)
    assert winograd.convolve(x, w, None, y, **_HOW) is None
    assert not winograd.weight_grad(y, x, w, **_HOW)


@pytest.mark.parametrize(
    "change", [{"stride": (2, 1)}, {"dilation": (1, 3)}, {"kernel": (3, 1)}, {"n": 0}]
)
def test_what_it_does_not_know_is_left_to_others(change):
    change = dict(change)
    n, kernel = change.pop("n", 2), change.pop("kernel", (3, 3))
    how = {**_HOW, **change}
    x, w = np.zeros((n, 16, 20, 20), "f4"), np.zeros((32, 16, *kernel), "f4")
    steps = {k: v for k, v in how.items() if k != "groups"}
    y = np.zeros((n, 32, *win.out_sizes((20, 20), kernel, **steps)), "f4")
    assert winograd.convolve(x, w, None, y, **how) is None
    assert not winograd.weight_grad(y, x, w, **how)
