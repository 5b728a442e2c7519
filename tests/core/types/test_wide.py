"""Accumulation in a type wide enough: of half types, of long sums, of running ones."""

import math

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.core.types import wide

RNG = np.random.default_rng(0)
HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def test_types():
    assert wide.is_half(HALVES[0]) and wide.is_half(HALVES[1]) and not wide.is_half(np.dtype("f4"))
    assert wide.accumulator(np.dtype("u1")) == np.int64
    assert wide.accumulator(HALVES[1]) == np.float32
    assert wide.accumulator(np.dtype("f8")) == np.float64
    assert wide.running(np.dtype("f4")) == np.float64 and wide.running(HALVES[0]) == np.float32
    assert wide.widened(None) is None and wide.widened(np.ones(2, HALVES[0])).dtype == np.float32


@pytest.mark.parametrize("kind", HALVES)
def test_half_types_are_summed_in_float32(kind):
    a = np.full((3, 5000), 0.1, kind)
    got = wide.total(a, (1,), False)
    assert got.dtype == kind
    np.testing.assert_allclose(got.astype(float), a.astype(np.float64).sum(1), rtol=1e-2)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1), (0, 2), ()])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("n", [7, 130, 1000])
def test_long_sums_across_memory_stay_exact(dims, keepdim, n):
    a = RNG.standard_normal((n, 30, 2)).astype(np.float32)
    got = wide.add_up(a, dims, keepdim)
    want = a.astype(np.float64).sum(axis=dims, keepdims=keepdim)
    assert got.shape == want.shape and got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_errors_do_not_grow_with_the_length():
    a = np.full((1 << 20, 2), 0.1, np.float32)
    got = wide.total(a, (0,), False)
    np.testing.assert_allclose(got, a.astype(np.float64).sum(0), rtol=1e-5)


def test_functions_of_half_types_run_in_float32():
    seen = []

    @wide.through_float32
    def fn(a, b, scale=1.0):
        seen.append(a.dtype)
        return a * b * scale

    a = np.ones(2, HALVES[1])
    assert fn(a, a, scale=2.0).dtype == a.dtype and fn(np.ones(2), np.ones(2)).dtype == np.float64
    assert seen == [np.float32, np.float64]


def test_integers_are_summed_in_64_bits():
    assert wide.total(np.full(300, 200, np.uint8), (0,), False) == 60_000
    assert wide.count((2, 3, 4), (0, 2)) == 8


def test_eight_bits_hold_no_infinity_or_no_sign():
    x = dt.tensor([1.0, -2.3, 500.0, math.nan, math.inf, -math.inf])
    short, scale = (x.to(kind).float() for kind in (dt.float8_e4m3fn, dt.float8_e8m0fnu))
    assert short[:3].tolist() == [1.0, -2.25, 448.0] and short[4:].tolist() == [448.0, -448.0]
    assert bool(short[3].isnan()) and scale[:3].tolist() == [1.0, 2.0, 512.0]
    assert bool(scale[3:].isnan().all())
    x = dt.zeros(2, dtype=dt.float8_e4m3fn).copy_(dt.tensor([500.0, -1e9]))
    assert x.float().tolist() == [448.0, -448.0]
    assert dt.tensor([1e9], dtype=dt.float8_e4m3fn).float().tolist() == [448.0]
    cast = dt.compile(lambda x: x.to(dt.float8_e4m3fn).float() * 2)
    assert cast(dt.tensor([500.0])).tolist() == cast(dt.tensor([600.0])).tolist() == [896.0]
