"""Places by order against numpy's stable sort, for drawn arrays of all types that are sorted."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.ops.primitives.sort import _argsort, _top_places

KINDS = "float16 float32 float64 int8 uint8 int16 int32 int64 uint32 bool".split()


def drawn(rng, kind):
    """An array, and one of its dimensions."""
    shape = tuple(rng.integers(1, [8, 9, 400] if rng.random() < 0.5 else [3, 700, 5]))
    a = rng.normal(size=shape) * 10.0 ** rng.integers(0, 3)
    if kind.kind == "f":
        a = a.astype(kind)
        a = np.round(a) if rng.random() < 0.5 else a
        for value in (np.nan, np.inf, -np.inf, -0.0, 0.0):
            if rng.random() < 0.4:
                a[rng.random(shape) < 0.15] = value
    elif kind.kind == "b":
        a = a > 0
    else:
        low, high = (np.iinfo(kind).min, np.iinfo(kind).max) if rng.random() < 0.5 else (0, 5)
        a = rng.integers(low, high, shape, dtype=kind, endpoint=True)
    a = np.asfortranarray(a) if rng.random() < 0.3 else a
    return a[::-1] if rng.random() < 0.3 else a, int(rng.integers(3))


def order(a, dim, descending):
    if not descending:
        return np.argsort(a, axis=dim, kind="stable")
    found = np.argsort(np.flip(a, dim), axis=dim, kind="stable")
    return a.shape[dim] - 1 - np.flip(found, dim)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("descending", [False, True])
def test_places_are_those_of_a_stable_sort(kind, descending):
    rng = np.random.default_rng(len(kind) + descending)
    for _ in range(30):
        a, dim = drawn(rng, np.dtype(kind))
        expected = order(a, dim, descending)
        assert np.array_equal(_argsort(a, dim, descending), expected), (a.shape, dim)
        size = a.shape[dim]
        k = int(rng.integers(0, size + 1)) if rng.random() < 0.5 else min(size, rng.integers(0, 6))
        places = _top_places(a, int(k), dim, descending)
        best = np.take(expected, range(k), axis=dim)
        got, wanted = np.take_along_axis(a, places, dim), np.take_along_axis(a, best, dim)
        assert np.array_equal(got, wanted, equal_nan=a.dtype.kind == "f"), (a.shape, dim, k)
        assert (np.diff(np.sort(places, axis=dim), axis=dim) > 0).all(), "a place comes twice"
