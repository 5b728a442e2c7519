"""Reductions and running operations against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives import reduce as rd

RNG = np.random.default_rng(0)
OVER = [(0,), (1,), (0, 2), (0, 1, 2)]
MANY = {
    "sum_": np.sum,
    "mean": np.mean,
    "amax": np.max,
    "amin": np.min,
    "any_": np.any,
    "all_": np.all,
}


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("dims", OVER)
@pytest.mark.parametrize("keep", [False, True])
def test_over_dimensions(name, dims, keep):
    a = RNG.normal(size=(3, 40, 5)).astype(np.float32)
    a = a > 0 if name in ("any_", "all_") else a
    found = np.asarray(getattr(rd, name).forward(a, dims=dims, keepdim=keep))
    wanted = MANY[name](a if a.dtype == bool else a.astype("f8"), axis=dims, keepdims=keep)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert found.shape == wanted.shape and found.dtype == a.dtype


def test_long_sums_across_memory_are_as_exact_as_along_it():
    a = RNG.uniform(0, 1, (40_000, 3)).astype(np.float32)
    exact = a.astype("f8").sum(0)
    for x, dims in ((a, (0,)), (np.asfortranarray(a), (0,)), (a.T, (1,))):
        found = rd.sum_.forward(x, dims=dims, keepdim=False)
        np.testing.assert_allclose(found, exact, rtol=3e-7)


def test_sums_of_half_types_and_of_flags():
    assert rd.sum_.forward(np.ones(5000, np.float16), dims=(0,), keepdim=False) == 5000
    found = np.asarray(rd.sum_.forward(np.ones(300, np.int8), dims=(0,), keepdim=False))
    assert found == 300 and found.dtype == np.int64


@pytest.mark.parametrize("dim", [0, 1])
def test_running_along_a_dimension(dim):
    a = RNG.normal(size=(6, 7)).astype(np.float32)
    for name, how in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
        found = getattr(rd, name).forward(a, dim=dim)
        np.testing.assert_allclose(found, how(a.astype("f8"), dim), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rd.prod.forward(a, dim=dim, keepdim=False), a.prod(dim), rtol=1e-5)


def test_sums_of_exponentials_neither_overflow_nor_vanish():
    a = np.array([[1e3, 1e3], [-1e3, -1e3], [-np.inf, -np.inf], [np.inf, 0.0]])
    found = rd.logsumexp.forward(a, dims=(1,), keepdim=False)
    np.testing.assert_allclose(found, [1e3 + np.log(2), -1e3 + np.log(2), -np.inf, np.inf])


def test_the_first_of_equals_is_found_and_nan_before_all():
    a = np.array([[1.0, 3.0, 3.0], [np.nan, 9.0, np.nan], [-1.0, -1.0, 0.0]])
    assert rd.argmax.forward(a, dim=1, keepdim=False).tolist() == [1, 0, 2]
    assert rd.argmin.forward(a, dim=1, keepdim=True).tolist() == [[0], [0], [0]]
