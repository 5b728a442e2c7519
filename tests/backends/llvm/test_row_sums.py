"""Sums of rows of millions of numbers keep their digits; those of short rows keep their bits."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from disttrain.backends.family import Family
from disttrain.backends.fused import softmax, sums
from disttrain.backends.fused.normalization import group_norm, norms
from disttrain.backends.lang.expr import var
from disttrain.backends.lang.kernel import Array, Kernel, Loop, Put, Reduce
from disttrain.backends.llvm import row_sums

LONG = (1, 1_500_001)


def _worst(found, wanted, beside=None):
    beside = np.abs(wanted).max() if beside is None else beside
    return float(np.abs(found.astype("f8") - wanted).max() / max(1.0, beside))


def _normal(x):
    centred = x - x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return centred * rstd, rstd


@pytest.mark.parametrize("values", ["normal", "positive", "alike"])
def test_normalisations_of_long_rows(values):
    rng = np.random.default_rng(0)
    x = {
        "normal": lambda: rng.normal(size=LONG),
        "positive": lambda: rng.random(LONG) + 0.5,
        "alike": lambda: np.where(np.arange(LONG[1]) % 2 == 0, 0.7, 1.3)[None],
    }[values]().astype("f4")
    g = rng.normal(size=LONG).astype("f4") + np.float32(0.5)
    hat, rstd = _normal(x.astype("f8"))
    wide = g.astype("f8")
    dx = rstd * (wide - wide.mean() - hat * (wide * hat).mean())
    out, mean, rstds = norms.layer_norm(x, None, None, 1e-5)
    assert _worst(out, hat) < 1e-6
    assert _worst(norms.layer_norm_backward(g, x, mean, rstds, None)[0], dx) < 1e-6
    seen, given = x[:, None], g[:, None]
    out, mean, rstds = group_norm.group_norm(seen, None, None, 1, 1e-5)
    assert _worst(out[:, 0], hat) < 1e-6
    found = group_norm.group_norm_backward(given, seen, mean, rstds, None, 1)
    assert _worst(found[0][:, 0], dx) < 1e-6
    assert _worst(found[1], (wide * hat).sum(), np.abs(wide * hat).sum()) < 1e-6
    assert _worst(found[2], wide.sum()) < 1e-6


def test_other_sums_of_long_rows():
    x = np.random.default_rng(1).random((2, 1_000_003)).astype("f4")
    wide = np.exp(x.astype("f8"))
    scaled = softmax.softmax(x) * 1e6
    assert _worst(scaled, wide / wide.sum(1, keepdims=True) * 1e6) < 1e-6
    assert _worst(sums.of_rows(x, x.shape[1]), x.sum(1, dtype="f8")) < 2e-7
    roots = np.sqrt((x.astype("f8") ** 2).mean(1, keepdims=True))
    assert _worst(norms.rms_norm(x, None, 0.0)[0], x / roots) < 1e-6


def test_many_rows_and_samples_of_parameters():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300_000, 4)).astype("f4")
    g = rng.random(x.shape).astype("f4")
    _, mean, rstd = norms.layer_norm(x, None, None, 1e-5)
    ones = np.ones(4, "f4")
    found = norms.layer_norm_backward(g, x, mean, rstd, ones)
    assert _worst(found[2], g.sum(0, dtype="f8")) < 1e-6
    x, g = (a.reshape(-1, 2, 4) for a in (x, g))
    _, mean, rstd = group_norm.group_norm(x, None, None, 2, 1e-5)
    found = group_norm.group_norm_backward(g, x, mean, rstd, None, 2)
    assert _worst(found[2], g.sum((0, 2), dtype="f8")) < 1e-6


def _kernel(dtype, copies):
    params = Array("x", dtype), Array("out", dtype, "row", writes=True)
    loop = Loop((Reduce("total", "sum", var("x")),), copies)
    return Kernel("sums", params, (loop, Put("out", var("total"))))


@pytest.mark.parametrize("blocks", [1, 2, 5])
@pytest.mark.parametrize("copies", [1, 2, 4])
def test_every_number_is_added_once(copies, blocks):
    """Numbers whose sums are exact in any order, around the end of a block."""
    program = Family(partial(_kernel, copies=copies))[np.dtype("f4")]
    for more in (-65, -64, -16, -1, 0, 1, 15, 16, 63, 64, 65):
        width = 16 * copies * row_sums.TURNS * blocks + more
        x = np.random.default_rng(width).integers(-8, 9, (3, width)).astype("f4")
        out = np.full(3, np.nan, "f4")
        program(x, out)
        assert np.array_equal(out, x.sum(1)), more


def test_what_is_not_finite_stays():
    for value in (np.nan, np.inf, -np.inf):
        for place in (0, 5000, 9999):
            x = np.ones((1, 10_000), "f4")
            x[0, place] = value
            _, mean, rstd = norms.layer_norm(x, None, None, 1e-5)
            assert not np.isfinite(mean).any()
            assert np.isnan(rstd).all()
