"""Numbers of tensors, as checks look at them."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.sanitize.values import (
    array_of,
    fetched,
    hash_of,
    is_finite,
    is_near,
    is_zero,
    sample,
    version_of,
)

BAD = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("bad", BAD)
def test_one_number_that_is_not_finite(kind, bad):
    x = np.ones((3, 5), kind)
    assert is_finite(x) and is_finite(x.T) and is_finite(x[::2, ::2])
    x[1, 4] = bad
    assert not is_finite(x) and not is_finite(x.T)
    assert is_finite(x[::2]) and not is_finite(x[1:, ::4])


def test_sums_that_overflow_and_numbers_that_repeat():
    assert is_finite(np.full(9, 3e38, np.float32))
    assert is_finite(np.broadcast_to(np.float32(1), (4, 5)))
    assert not is_finite(np.broadcast_to(np.float32(np.nan), (4, 5)))
    assert is_finite(np.zeros(0, np.float32)) and is_finite(np.arange(3))


@pytest.mark.parametrize("bad", BAD)
def test_a_row_or_a_column_of_a_large_array_is_seen(bad):
    for place in (np.s_[7], np.s_[:, 7]):
        x = np.zeros((400, 401), np.float32)
        assert is_near(x)
        x[place] = bad
        assert not is_near(x)


def test_arrays_and_versions():
    x = dt.ones(3)
    assert array_of(x) is x.array and fetched(x) is x.array and version_of(x) == 0
    assert fetched(dt.empty(2, device="meta")) is None and array_of(None) is None
    x.view(3).add_(1)
    assert version_of(x) == 1
    assert not is_zero(x) and is_zero(dt.zeros(2))
    assert sample(dt.ones(1000)).shape == (256,)


def test_hashes():
    a, b = dt.randn(3), dt.randn(3)
    assert hash_of([a, b]) == hash_of([a.clone(), b.clone()]) != hash_of([b, a])
    assert hash_of([]) == 0
