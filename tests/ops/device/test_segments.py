"""What falls on one place, combined there: in a fixed order, of every type, nothing lost."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.device.platform import platform
from disttrain.ops.device import segments

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


def up(a):
    return platform("cuda").upload(np.asarray(a), 0)


def down(a):
    return platform("cuda").download(a)


@pytest.mark.parametrize(
    "kind", ["f4", "f8", "f2", BF16, "i8", "i4", "i2", "u1", "?", "c8"], ids=str
)
@pytest.mark.parametrize("d", [1, 3])
def test_rows_are_added_up_by_place(kind, d):
    index = np.array([2, 0, 2, 2, 4, 0])
    g = RNG.integers(0, 4, (6, d)).astype(kind)
    want = np.zeros((6, d), "f8" if np.dtype(kind).kind in "fV" else kind)
    np.add.at(want, index, g.astype(want.dtype))
    found = down(segments.add_rows(platform("cuda"), up(g), up(index), 6))
    assert found.dtype == np.dtype(kind)
    np.testing.assert_array_equal(found.astype(want.dtype), want)


def test_half_types_are_added_in_float32():
    g = np.full((4096, 1), 1.0, BF16)  # in bfloat16 the sum would stop at 256
    found = down(segments.add_rows(platform("cuda"), up(g), up(np.zeros(4096, "i8")), 1))
    assert found.astype("f4").tolist() == [[4096.0]]


@pytest.mark.parametrize(("n", "d", "size"), [(0, 2, 3), (2, 0, 3), (2, 2, 0)])
def test_nothing_to_add(n, d, size):
    found = segments.add_rows(
        platform("cuda"), up(np.ones((n, d), "f4")), up(np.zeros(n, "i8")), size
    )
    assert found.shape == (size, d) and not down(found).any()


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "i4"])
def test_products_by_place(kind):
    for n in (1, 2, 3, 17, 64):
        index = RNG.integers(0, 5, n)
        g = RNG.integers(-2, 3, n).astype(kind)
        want, there = np.ones(7, kind), np.zeros(7, bool)
        np.multiply.at(want, index, g)
        there[index] = True
        found, seen = segments.products(platform("cuda"), up(g), up(index), 7)
        np.testing.assert_array_equal(down(found), want)
        np.testing.assert_array_equal(down(seen), there)


def test_the_order_is_that_of_the_rows():
    order, places = segments.sorted_places(platform("cuda"), up(np.array([2, 0, 2, 0], "i4")))
    assert down(order).tolist() == [1, 3, 0, 2] and down(places).tolist() == [0, 0, 2, 2]


def test_the_last_one_wins():
    at = np.array([3, 1, 3, 0, 1])
    assert down(segments.winners(platform("cuda"), up(at), 5)).tolist() == [3, 4, -1, 2, -1]


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "i2", "u1"])
def test_the_largest_stays(kind):
    out, values = np.array([1, 5, 0], kind), np.array([3, 2, 4, 1], kind)
    if np.dtype(kind).kind in "fi":
        out[2], values[3] = -7, -9
    there = up(out)
    segments.largest(platform("cuda"), there, up(np.array([0, 1, 0, 2])), up(values))
    want = out.copy()
    np.maximum.at(want, [0, 1, 0, 2], values)
    np.testing.assert_array_equal(down(there), want)


def test_nan_is_above_all_and_zeros_keep_their_order():
    values = np.array([-np.inf, -1.0, -0.0, 0.0, 1e-45, 1.0, np.inf, np.nan, -np.nan], "f4")
    xp = platform("cuda").xp
    keys = down(segments._ordered(xp, up(values)))
    assert (np.diff(keys[:8].astype("i8")) > 0).all() and keys[8] == keys[7]
    back = down(segments._floats(xp, up(keys), np.dtype("f4")))
    np.testing.assert_array_equal(back[:7].view("i4"), values[:7].view("i4"))
    out = up(np.array([5.0, 5.0], "f4"))
    segments.largest(platform("cuda"), out, up(np.array([0, 1])), up(np.array([np.nan, 7.0], "f4")))
    assert np.isnan(down(out)[0]) and down(out)[1] == 7.0
