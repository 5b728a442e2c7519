"""Gradients of convolutions in x, by residues of their strides."""

from __future__ import annotations

import random

import numpy as np
import pytest

from disttrain.backends.fused.convolutions import residues, winograd
from disttrain.ops.primitives import windows as win


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Whether it gains or not."""
    for name, value in (("_LEAST", 0), ("_PLACES", 0), ("_EACH", 1), ("_GAIN", 1e9)):
        monkeypatch.setattr(winograd, name, value)
    monkeypatch.setattr(residues, "_LONG", 0)
    winograd._plan.cache_clear()
    yield
    monkeypatch.undo()
    winograd._plan.cache_clear()


@pytest.mark.parametrize("seed", range(40))
def test_drawn_gradients(seed):
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    dims, groups = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2])
    stride = tuple(draw.choice([1, 2, 2, 3]) for _ in range(dims))
    dilation = tuple(draw.choice([1, 1, 2]) for _ in range(dims))
    kernel = tuple(s * draw.choice([1, 2, 3]) + draw.randrange(2) for s in stride)
    padding = tuple(draw.randint(0, d * (k - 1)) for k, d in zip(kernel, dilation, strict=True))
    out = tuple(draw.randint(1, 9) for _ in range(dims))
    axes = zip(out, kernel, stride, padding, dilation, strict=True)
    size = tuple(
        max(1, (n - 1) * s + d * (k - 1) + 1 - 2 * p + draw.randrange(s)) for n, k, s, p, d in axes
    )
    out = win.out_sizes(size, kernel, stride, padding, dilation)
    inner, outer = draw.choice([1, 5, 16]), draw.choice([2, 7, 16])
    shapes = (2, outer * groups, *out), (outer * groups, inner, *kernel)
    g, w = (rng.normal(size=shape).astype("f4") for shape in shapes)
    dx = np.full((2, inner * groups, *size), np.nan, "f4")
    how = {"stride": stride, "padding": padding, "dilation": dilation}
    took = residues.input_grad(g, w, dx, **how, groups=groups)
    if took is None:
        return
    full = np.zeros((2, inner * groups, *(n + 2 * p for n, p in zip(size, padding, strict=True))))
    flat = g.reshape(2, groups, outer, -1).astype("f8")
    wide = w.reshape(groups, outer, *w.shape[1:]).astype("f8")
    for tap, where in win.taps(kernel, out, stride, dilation):
        seen = full[(..., *where)]
        seen += np.einsum("goc,ngop->ngcp", wide[(..., *tap)], flat).reshape(seen.shape)
    wanted = full[win.inside(size, padding)]
    assert took == []
    assert np.abs(dx - wanted).max(initial=0) <= 1e-5 * max(1, np.abs(wanted).max(initial=0))


@pytest.mark.parametrize("size", [1, 4, 9])
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_residues_are_all_places_once(size, stride):
    found = residues.residues(size, 3, stride, 1, 2)
    places = [r.first + stride * k for r in found for k in range(r.places)]
    assert sorted(places) == list(range(size))
