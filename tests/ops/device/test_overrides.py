"""The overrides of ``ops/device`` mean what the primitives' own forwards mean: on the samples of
the table in four floating types, and where array modules differ from numpy."""

from __future__ import annotations

import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import disttrain.ops.device  # noqa: F401  (fills the table)
from disttrain.ops.declare import REGISTRY
from support.numpy_platform import NumpyPlatform
from support.table import NAMES, samples

PLATFORM = NumpyPlatform()
TYPES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-3, ml_dtypes.bfloat16: 2e-2}
GIVEN = [n for n in NAMES if REGISTRY[n].on_device is not None]


def many(result):
    return result if isinstance(result, tuple) else (result,)


def comparable(a):
    return a.astype(np.complex128) if a.dtype.kind in "cV" else a


def same(got, want, tol, exact_type=True):
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape
        assert g.dtype == w.dtype or not exact_type
        np.testing.assert_allclose(comparable(g), comparable(w), rtol=tol, atol=tol)


def typed(args, kind):
    floats = [isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in args]
    return [a.astype(kind) if f else a for a, f in zip(args, floats, strict=True)]


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_samples(name):
    prim = REGISTRY[name]
    for args, params in samples(name):
        for kind, tol in TYPES.items():
            given = typed(args, kind)
            try:
                want = many(prim.forward(*given, **params))
            except (TypeError, ValueError):
                continue  # a type that the host has no answer for
            same(many(prim.on_device(PLATFORM, *given, **params)), want, tol)


ODD = [0.0, -0.0, 1, -1, 0.1, -0.1, 3, -3, 7.5, math.inf, -math.inf, math.nan, 1e30, 0.3]


@pytest.mark.parametrize("name", "floor_divide fmod remainder truncate_divide".split())
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_divisions_of_odd_numbers(name, kind):
    a, b = (x.astype(kind) for x in np.meshgrid(ODD, ODD))
    prim = REGISTRY[name]
    want, got = prim.forward(a, b), prim.on_device(PLATFORM, a, b)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("name", "sign sgn trunc clip_below clip_above heaviside isinf".split())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_odd_numbers(name):
    prim = REGISTRY[name]
    a, b = (x.astype("f4") for x in np.meshgrid(ODD, ODD))
    args = (a, b)[: len(prim.args)]
    np.testing.assert_array_equal(prim.on_device(PLATFORM, *args), prim.forward(*args))


def test_more_axes_than_kernels_walk():
    a = np.arange(1024.0, dtype="f4").reshape((2,) * 10).transpose(9, 0, 8, 1, 7, 2, 6, 3, 5, 4)
    got = REGISTRY["add"].on_device(PLATFORM, a, a[:, :1])
    np.testing.assert_array_equal(got, a + a[:, :1])


def test_the_table_is_not_loaded_with_the_package():
    code = "import sys, disttrain; print('disttrain.ops.device' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
