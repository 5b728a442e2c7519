"""The places of the few largest or smallest: the first of equal ones, nan the largest."""

from __future__ import annotations

import random

import numpy as np
import pytest

import disttrain as dt
from disttrain.backends import threads
from disttrain.backends.fused import top as places


def _wanted(row, k, largest):
    odd = [bool(x != x) for x in row]
    numbers = [0 if o else int(x) if row.dtype.kind == "i" else float(x) for x, o in zip(row, odd)]
    sign = -1 if largest else 1
    order = sorted(range(len(row)), key=lambda j: (odd[j] ^ largest, sign * numbers[j], j))
    return order[:k]


def _drawn(seed):
    rng, draw = np.random.default_rng(seed), random.Random(seed)
    kind, n = draw.choice(["f4", "f8", "i4", "i8"]), draw.randint(1, 300)
    shape = (draw.randint(1, 4), n)
    a = rng.integers(-20, 20, shape) if seed % 2 else rng.normal(size=shape) * 1e3
    a = a.astype(kind)
    if a.dtype.kind == "f" and seed % 3 == 0:
        for value in (np.nan, -0.0, np.inf, -np.inf):
            a[rng.random(shape) < 0.1] = value
    elif seed % 3 == 0:
        a[0, 0], a[-1, -1] = np.iinfo(kind).min, np.iinfo(kind).max
    return a, draw.randint(1, min(n, places.MOST))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("largest", [True, False])
def test_drawn_rows(seed, largest):
    a, k = _drawn(seed)
    found = places.top(a, k, 1, largest)
    if found is not None:
        assert found.tolist() == [_wanted(row, k, largest) for row in a]


@pytest.mark.parametrize("k", [33, 100, places.MOST])
@pytest.mark.parametrize("largest", [True, False])
def test_more_places_of_long_rows(k, largest):
    a = np.random.default_rng(k).integers(-500, 500, (2, 128 * k)).astype("f4")
    a[0, 7] = np.nan
    found = places.top(a, k, 1, largest)
    assert found is None or found.tolist() == [_wanted(row, k, largest) for row in a]
    assert places.top(a[:, : 4 * k], k, 1, largest) is None  # left to numpy


@pytest.mark.parametrize("order", [1, -1])
def test_rows_in_order(order):
    a = np.arange(1000, dtype="f4")[::order]
    found = places.top(a, 5, 0, True)
    assert found is None or a[found].tolist() == [999, 998, 997, 996, 995]


def test_axes_other_orders_of_memory_and_threads(monkeypatch):
    a = np.random.default_rng(0).normal(size=(7, 40, 3)).astype("f4")
    before = places.top(a, 4, 1, False)
    if before is None:
        return
    assert np.array_equal(before, np.argsort(a, 1, kind="stable")[:, :4])
    assert np.array_equal(before, places.top(np.asfortranarray(a), 4, 1, False))
    monkeypatch.setattr(places, "_SPLIT", 1)
    monkeypatch.setattr(threads, "count", lambda: 3)
    assert np.array_equal(before, places.top(a, 4, 1, False))


def test_what_is_left_to_numpy():
    a = np.ones((3, 100), "f4")
    assert places.top(a, 0, 1, True) is None
    assert places.top(a, places.MOST + 1, 1, True) is None
    assert places.top(a.astype(">f4"), 2, 1, True) is None
    assert places.top(a[:0], 2, 1, True) is None
    assert places.top(a.astype("u1"), 2, 1, True) is None


@pytest.mark.parametrize("kind", [dt.float16, dt.bfloat16, dt.uint8, dt.int64])
def test_other_types_by_the_public_function(kind):
    x = dt.tensor([3, 1, 2, 3, 0]).to(kind)
    values, found = dt.topk(x, 3)
    assert values.tolist() == [3, 3, 2]
    assert found.tolist() == [0, 3, 2]
