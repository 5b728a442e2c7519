"""Group normalisation and its gradients by generated code are those of numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends import threads
from disttrain.backends.fused.normalization import group_norm as fused
from disttrain.backends.llvm.kernels import group_norm as llvm

SHAPES = [((3, 6, 40), 2), ((2, 6, 7), 3), ((4, 8, 1), 4), ((1, 5, 100), 5), ((2, 4, 33), 1)]


def _reference(x, g, w, b, groups, eps):
    """By float64: the result and the gradients."""
    n, c, places = x.shape
    rows = x.reshape(n, groups, -1)
    centred = rows - rows.mean(2, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(2, keepdims=True) + eps)
    hat = (centred * rstd).reshape(x.shape)
    inner = (g * w[:, None]).reshape(rows.shape)
    by_hat = (inner * centred * rstd).mean(2, keepdims=True) * centred * rstd
    dx = (rstd * (inner - inner.mean(2, keepdims=True) - by_hat)).reshape(x.shape)
    return hat * w[:, None] + b[:, None], dx, (g * hat).sum((0, 2)), g.sum((0, 2))


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
def test_against_numpy(shape, groups, kind):
    rng = np.random.default_rng(0)
    x, g = (rng.normal(size=shape).astype(kind) for _ in range(2))
    x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, 2)), 1, 2)  # channels are last
    w, b = (rng.normal(size=shape[1]).astype(kind) for _ in range(2))
    wanted = _reference(*(a.astype("f8") for a in (x, g, w, b)), groups, 1e-3)
    out, mean, rstd = fused.group_norm(x, w, b, groups, 1e-3)
    found = out, *fused.group_norm_backward(g, x, mean, rstd, w, groups)
    close = {"float32": 1e-5, "float64": 1e-12, "float16": 4e-3}.get(np.dtype(kind).name, 3e-2)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == kind
        assert np.abs(a.astype("f8") - b).max() <= close * max(1, np.abs(b).max())


def test_without_parameters_and_without_places():
    x = np.random.default_rng(1).normal(size=(2, 4, 50))
    out, mean, rstd = fused.group_norm(x, None, None, 2, 1e-5)
    ones = fused.group_norm(x, np.ones(4), np.zeros(4), 2, 1e-5)
    assert all((a == b).all() for a, b in zip((out, mean, rstd), ones, strict=True))
    for empty in (np.zeros((0, 4, 3)), np.zeros((2, 4, 0)), np.zeros((0, 4, 30))):
        out, mean, rstd = fused.group_norm(empty, None, np.ones(4), 2, 1e-5)
        dx, *sums = fused.group_norm_backward(empty, empty, mean, rstd, None, 2)
        assert out.shape == dx.shape == empty.shape
        assert all((s == 0).all() and s.shape == (4,) for s in sums)


def test_a_mean_far_from_zero_costs_no_digits():
    x = np.random.default_rng(2).normal(size=(1, 2, 600)).astype("f4") + np.float32(1000)
    out = fused.group_norm(x, None, None, 1, 0.0)[0]
    wide = x.astype("f8")
    assert np.abs(out - (wide - wide.mean()) / wide.std()).max() < 2e-5


def test_threads_registers_and_axes_of_places(monkeypatch):
    rng = np.random.default_rng(3)
    x, g, w = (rng.normal(size=s).astype("f4") for s in ((3, 6, 5, 9), (3, 6, 5, 9), (6,)))
    found = []
    monkeypatch.setattr(fused, "_SPLIT", 1)
    for count, shape in ((1, x.shape), (4, x.shape), (1, (3, 6, 45))):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        a, b = x.reshape(shape), g.reshape(shape)
        out, mean, rstd = fused.group_norm(a, w, w, 3, 1e-5)
        found.append([out, *fused.group_norm_backward(b, a, mean, rstd, w, 3)])
        assert out.shape == found[-1][1].shape == shape
    assert len({b"".join(a.tobytes() for a in each) for each in found}) == 1
    monkeypatch.setattr(llvm, "shape", lambda kind: (8, 6, 12))  # an older processor's
    llvm.code.cache_clear()
    fused._code.cache_clear()
    try:
        out, mean, rstd = fused.group_norm(x, w, w, 3, 1e-5)
        narrow = [out, *fused.group_norm_backward(g, x, mean, rstd, w, 3)]
    finally:
        llvm.code.cache_clear()
        fused._code.cache_clear()
    for a, b in zip(narrow, found[0], strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
