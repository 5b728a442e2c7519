"""Whole numbers: ranges, means, and counts that add up."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import keyed as k

KEY, I32, F32 = k.seed(2), np.dtype(np.int32), np.dtype(np.float32)


def number(x, kind=F32):
    return dt.tensor(np.asarray(x, kind))


@pytest.mark.parametrize("kind", "int8 uint8 int16 int32 uint32 int64 uint64".split())
def test_integers(kind):
    x = k.integers(KEY, (2000,), number(1, I32), number(7, I32), np.dtype(kind)).numpy()
    assert x.dtype == kind and set(x.tolist()) == set(range(1, 7))
    empty = k.integers(KEY, (5,), number(3, I32), number(3, I32), np.dtype(kind))
    assert empty.tolist() == [3] * 5


def test_all_bytes():
    x = k.integers(KEY, (5000,), number(0, I32), number(256, I32), np.dtype(np.uint8))
    assert len(set(x.tolist())) == 256


def test_chances():
    assert abs(float(k.bernoulli(KEY, number(0.3), (4000,)).float().mean()) - 0.3) < 0.04
    high = k.bernoulli(KEY, number(0.3), (4000,), mode="high")
    assert abs(float(high.float().mean()) - 0.3) < 0.04
    assert set(k.rademacher(KEY, (100,), I32).tolist()) == {-1, 1}


def test_counts():
    rate = number([0.0, 2.0, 40.0])
    x = k.poisson(KEY, rate, (2000, 3), I32).float().mean(0)
    assert float(x[0]) == 0 and abs(float(x[1]) - 2) < 0.2 and abs(float(x[2]) - 40) < 1
    for n, p in ((10, 0.3), (10, 0.8), (500, 0.4)):
        x = k.binomial(KEY, number(n), number(p), (2000,), F32)
        assert abs(float(x.mean()) - n * p) < 0.05 * n and float(x.max()) <= n
    trials = k.geometric(KEY, number(0.25), (4000,), I32).float()
    assert abs(float(trials.mean()) - 4) < 0.4
    shares = k.multinomial(KEY, number(20.0), number([0.2, 0.3, 0.5]), (3,), F32)
    assert float(shares.sum()) == 20


def test_numbers_that_are_none():
    odd = number([np.nan, -1.0, np.inf])
    x = k.binomial(KEY, odd, number(0.5), (3,), F32)
    assert x.isnan().tolist() == [True, True, False] and float(x[2]) == np.inf
    assert k.gamma(KEY, number(np.nan), (), F32).isnan()


def test_each_example_has_its_own():
    keys = k.split(KEY, 3)
    rates = number([1.0, 5.0, 30.0])
    mapped = dt.func.vmap(lambda key, r: k.poisson(key, r, (4,), I32))(keys, rates)
    assert mapped.tolist() == [k.poisson(keys[i], rates[i], (4,), I32).tolist() for i in range(3)]
