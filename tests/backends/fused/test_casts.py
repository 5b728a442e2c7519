"""Casts between float32 and half types round as numpy's, whatever the numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.fused import casts

HALVES = [np.float16, ml_dtypes.bfloat16]
ODD = [0.0, -0.0, 1.0, 65504.0, 65519.0, 65520.0, -1e6, np.inf, -np.inf, np.nan, 6.1e-5, 6e-8,
       3e-8, 2.98e-8, 1e-40, 3.4e38]  # fmt: skip


def numbers(size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    values = rng.standard_normal(size) * 10.0 ** rng.integers(-9, 6, size)
    values[: len(ODD)] = ODD
    return values.astype(np.float32)


@pytest.mark.parametrize("size", [17, casts.SHORT + 1, 100_003])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("factor", [1.0, 0.5, 1 / 3])
def test_to_a_half_type_and_back(factor: float, half: type, size: int) -> None:
    x = numbers(size)
    with np.errstate(all="ignore"):
        wanted = (x * np.float32(factor)).astype(half)
    got = casts.scaled(x, factor, np.empty(size, half))
    some = ~np.isnan(x)
    np.testing.assert_array_equal(got.view(np.uint16)[some], wanted.view(np.uint16)[some])
    assert np.isnan(got.astype(np.float32)[~some]).all()
    back = casts.scaled(got, 1.0, np.empty(size, np.float32))
    np.testing.assert_array_equal(back, got.astype(np.float32))


@pytest.mark.parametrize("kinds", [(np.float64, np.float16), (ml_dtypes.float8_e5m2, np.float32),
                                   (np.float16, ml_dtypes.bfloat16)])  # fmt: skip
def test_other_types(kinds: tuple) -> None:
    x = np.linspace(-3, 3, 5000).astype(kinds[0])
    got = casts.scaled(x, 0.5, np.empty(5000, kinds[1]))
    np.testing.assert_array_equal(got, (x.astype(np.float64) * 0.5).astype(kinds[1]))
