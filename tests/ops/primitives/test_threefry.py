"""Primitives that draw as functions of keys: shapes, types, and what they are without vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.ops.primitives import threefry as prims

KEYS = np.arange(8, dtype=np.uint32).reshape(4, 2)


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8"])
def test_bits_of_both_ways(kind):
    kind = np.dtype(kind)
    for way in (True, False):
        few = prims.random_bits(KEYS, 7, kind, way)
        assert few.shape == (4, 7) and few.dtype == kind
        assert len(set(few.reshape(-1).tolist())) > 20


def test_uniform_numbers_of_all_types():
    for name in ("float16", "bfloat16", "float32", "float64"):
        kind = getattr(dt, name).np
        x = prims.unit(KEYS, 100, kind, False).astype(np.float64)
        assert x.min() >= 0 and x.max() < 1 and 0.4 < x.mean() < 0.6


def test_normal_numbers_are_quantiles():
    x = prims.normal(KEYS, 500, np.dtype(np.float32), True).astype(np.float64)
    u = prims.unit(KEYS, 500, np.dtype(np.float32), True).astype(np.float64)
    back = np.vectorize(math.erf)(x / math.sqrt(2))
    assert np.abs(back - (2 * u - 1)).max() < 1e-6


def test_erfinv_in_single_precision():
    x = dt.linspace(-0.999, 0.999, 101)
    assert dt.allclose(prims.erfinv_single(x), dt.erfinv(x), rtol=2e-6, atol=1e-7)
    assert prims.erfinv_single(dt.tensor([1.0, -1.0])).tolist() == [math.inf, -math.inf]


def test_products_are_added_unrounded():
    a, c = dt.tensor([1 + 2.0**-12]), dt.tensor([-1 - 2.0**-11])
    found = float(prims.fma(a, a, c))
    assert found in (2.0**-24, 0.0)  # without such an instruction rounded twice


def test_draws_have_the_shape_that_was_said():
    key = dt.keyed.split(dt.keyed.seed(0), 3)
    x = prims.threefry_draw(key, shape=(2, 5), what="keys", dtype=prims.KEY, partitionable=False)
    assert x.shape == (3, 2, 5)
