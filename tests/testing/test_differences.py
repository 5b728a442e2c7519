"""Differences of arrays: where they are largest, and which are none."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.testing.differences import compare, differ


def one(got, wanted, rtol=None, atol=0.0):
    return differ("gradient", "w", 2, got, wanted, rtol, atol)


def test_where_it_is_largest():
    wanted = np.ones((2, 3), np.float32)
    got = wanted.copy()
    got[0, 1], got[1, 2] = 1.5, 3
    found = one(got, wanted)
    assert (found.index, found.size, found.got, found.wanted) == ((1, 2), 2.0, 3.0, 1.0)
    assert str(found) == (
        "gradient of 'w', rank 2: max difference 2 at [1, 2]: 3, with one process 1"
    )


@pytest.mark.parametrize(("dtype", "apart"), [("float64", 1e-10), ("float32", 5e-5), ("int64", 0)])
def test_types_have_their_tolerance(dtype, apart):
    wanted = np.full(4, 1, dtype)
    assert one(wanted + np.asarray(apart, dtype), wanted) is None
    assert one(wanted + np.asarray(1 if dtype == "int64" else 100 * apart, dtype), wanted)


def test_the_largest_element_is_the_measure():
    wanted = np.array([1e6, 1.0])
    assert one(wanted + [0, 0.5], wanted, rtol=1e-6) is None
    assert one(wanted + [0, 0.5], wanted, rtol=1e-7) is not None
    assert one(wanted + [0, 0.5], wanted, rtol=0.0, atol=0.5) is None


def test_nan_and_infinity():
    wanted = np.array([np.nan, np.inf])
    assert one(wanted.copy(), wanted) is None
    assert one(np.array([0.0, np.inf]), wanted).size == np.inf


def test_what_is_missing_or_of_another_shape():
    a = np.ones(2)
    assert one(None, None) is None
    assert "there is none, and with one process one" in str(one(None, a))
    assert "there is one, and with one process none" in str(one(a, None))
    assert "shape (3,), with one process (2,)" in str(one(np.ones(3), a))
    assert one(np.ones(0), np.ones(0)) is None


def test_by_name_also_those_that_are_too_many():
    a, b = np.ones(1), np.zeros(1)
    found = compare("buffer", 0, {"x": a, "y": b, "z": a}, {"y": a, "x": a}, None, 0.0)
    assert [d.name for d in found if d] == ["y", "z"]
