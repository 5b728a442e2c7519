"""Reductions on devices: any dimensions of any layout, nan, nothing to reduce, every type; and the
plans by which sums go over memory."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from standins.cuda_on_host import COMPILER, Case, compiled, run

from disttrain.ops.device.folding import folds, split_rows
from disttrain.ops.device.reduce import _all, _columns, _logsumexp_rows, _place_rows, _rows
from support.on_device import agree

pytestmark = pytest.mark.usefixtures("double")
KINDS = ["f8", "f4", "f2", ml_dtypes.bfloat16, "i4", "u1", "?", "i8", "u2", "c16"]


def layouts(rng, shape, kind):
    a = np.round(rng.normal(size=shape) * 4, 2)
    a = (abs(a) if np.dtype(kind).kind in "u?" else a).astype(kind)
    yield a
    yield np.asfortranarray(a)
    yield np.repeat(a, 2, -1)[..., ::2]
    yield np.broadcast_to(a[:1], shape)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sums_over_any_dimensions(kind):
    rng = np.random.default_rng(3)
    tol = {"f2": 4e-3, "f4": 1e-5}.get(kind, 4e-2 if kind == ml_dtypes.bfloat16 else 1e-12)
    for shape in ((2, 3, 4, 5), (3, 1, 4)):
        for a in layouts(rng, shape, kind):
            for k in range(len(shape) + 1):
                for dims in itertools.combinations(range(len(shape)), k):
                    agree("sum", a, dims=dims, keepdim=k % 2 == 0, tol=tol)
                    if np.dtype(kind).kind in "fV":
                        agree("mean", a, dims=dims, keepdim=False, tol=tol)


@pytest.mark.parametrize("name", ["sum", "mean", "logsumexp"])
def test_nothing_to_reduce(name):
    for shape, dims in (((0, 3), (0,)), ((3, 0), (0,)), ((0,), (0,)), ((2, 0, 3), (0, 1, 2))):
        agree(name, np.empty(shape, "f4"), dims=dims, keepdim=False, tol=0)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_place_also_of_nan(name):
    rng = np.random.default_rng(4)
    for kind in ("f4", "f2", "i4", "u1", "?", "u2"):
        for shape in ((5,), (3, 7), (2, 3, 4)):
            a = rng.integers(0, 2, shape).astype(kind)
            for dim in (None, *range(len(shape))):
                agree(name, a, dim=dim, keepdim=dim == 0, tol=0)
    a = np.array([[1, np.nan, 3, np.nan], [np.inf, 1, 2, np.inf], [-np.inf] * 4], "f4")
    for dim in (0, 1):
        agree(name, a, dim=dim, keepdim=False, tol=0)


def test_logsumexp_of_infinities():
    a = np.array([[-np.inf, -np.inf], [np.inf, 0], [np.nan, 1], [1e4, 1e4]], "f4")
    for dims in ((0,), (1,), (0, 1)):
        agree("logsumexp", a, dims=dims, keepdim=True, tol=1e-6)


def test_running_sums_of_one_number():
    for name in ("cumsum", "cumprod"):
        agree(name, np.array(3, "i4"), dim=0, tol=0)


def test_plans():
    assert folds((4, 5), (20, 4), (0, 1)).pattern == "R"
    assert folds((4, 5), (20, 4), (1,)) == ("KR", (0, 1), (4, 5), (0,))
    assert folds((4, 5), (4, 16), (1,)).pattern == "RK"
    assert folds((8, 3, 5), (60, 20, 4), (0, 2)).pattern == "RKR"
    assert folds((8, 3, 5), (60, 20, 4), (1,)) is None
    assert folds((1, 1), (4, 4), ()).pattern == "R"
    assert folds((2, 3, 4), (48, 16, 4), (1, 2)).sizes == (2, 12)
    assert split_rows(4, 1 << 20) == 128
    assert split_rows(1000, 1 << 20) == 1
    assert split_rows(1, 4097) == 1


@pytest.mark.skipif(not COMPILER, reason="no host compiler")
def test_the_kernels_as_cuda(tmp_path):
    rng = np.random.default_rng(5)
    bf = np.dtype(ml_dtypes.bfloat16)
    x = rng.normal(size=(6, 40)).astype("f4")
    x[2, 5] = x[2, 9] = np.nan
    h, i = x.astype(bf), rng.integers(-9, 9, (6, 40)).astype("i4")
    rows = [np.empty(6, k) for k in (bf, "f4", "i8", "f4", "i8", "i8")]
    whole, columns = np.empty((), "f4"), np.zeros(40, "f4")
    cases = [
        Case(_rows("bfloat16", "bfloat16"), h, 40.0, rows[0]),
        Case(_rows("float32", "float32"), x, 2.0, rows[1]),
        Case(_rows("int32", "int64"), i, rows[2]),
        Case(_logsumexp_rows("float32"), x, rows[3]),
        Case(_place_rows("float32", True), x, rows[4]),
        Case(_place_rows("int32", False), i, rows[5]),
        Case(_all("float32", "float32"), x[:2], 1.0, whole),
        Case(_columns("float32"), x, columns),
    ]
    library = compiled(cases, tmp_path)
    for case in cases:
        run(library, case)
    np.testing.assert_allclose(rows[0].astype("f4"), h.astype("f4").mean(1), rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(rows[1], x.sum(1) / 2, rtol=1e-5)
    np.testing.assert_array_equal(rows[2], i.sum(1))
    np.testing.assert_allclose(rows[3], np.log(np.exp(x).sum(1)), rtol=1e-5)
    np.testing.assert_array_equal(rows[4], x.argmax(1))
    np.testing.assert_array_equal(rows[5], i.argmin(1))
    np.testing.assert_allclose(whole, x[:2].sum(), rtol=1e-5)
    np.testing.assert_allclose(columns, x.sum(0), rtol=1e-5)
