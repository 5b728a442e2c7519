"""Windows on devices: the largest values and their places, means and their adjoints."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.on_device import agree, on_device

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


WAYS = [
    {"kernel": (2,), "stride": (2,), "padding": (0,), "dilation": (1,), "ceil_mode": False},
    {"kernel": (3,), "stride": (2,), "padding": (1,), "dilation": (1,), "ceil_mode": True},
    {"kernel": (2, 3), "stride": (1, 2), "padding": (1, 1), "dilation": (2, 1), "ceil_mode": False},
    {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 0), "dilation": (1, 2), "ceil_mode": True},
    {
        "kernel": (2, 2, 2),
        "stride": (1, 2, 1),
        "padding": (0, 1, 1),
        "dilation": (1, 1, 1),
        "ceil_mode": True,
    },
]


def images(way, kind="f4"):
    return RNG.integers(-4, 5, (2, 3, *(5, 7, 4)[: len(way["kernel"])])).astype(kind)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", ["f4", "f2", BF16, "i4"], ids=str)
def test_the_largest_of_each_window(way, kind):
    a = images(way, kind)
    (best,) = on_device("max_pool", a, **way)
    agree("max_pool", a, **way)
    agree("max_pool_indices", a, best, **way)
    if kind != "i4":
        g = RNG.integers(-3, 4, best.shape).astype(kind)
        agree("max_pool_spread", g, a, best, **way)
        agree("max_pool_pick", images(way, kind), a, best, **way)


def test_equal_values_are_found_at_their_first_place():
    way = WAYS[0]
    a = np.array([[[1.0, 1.0, 2.0, 2.0]]])
    (best,) = on_device("max_pool", a, **way)
    assert on_device("max_pool_indices", a, best, **way)[0].tolist() == [[[0, 2]]]
    (back,) = on_device("max_pool_spread", np.ones_like(best), a, best, **way)
    assert back.tolist() == [[[1.0, 0.0, 1.0, 0.0]]]


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("divisor", [None, 3, -2])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_means_and_their_adjoint(way, include, divisor):
    how = {k: v for k, v in way.items() if k != "dilation"} | {
        "include": include,
        "divisor": divisor,
    }
    a = images(way, "f8")
    (out,) = on_device("avg_pool", a, **how)
    agree("avg_pool", a, tol=1e-12, **how)
    g = RNG.standard_normal(out.shape)
    (back,) = on_device("avg_pool_spread", g, size=a.shape[2:], **how)
    assert np.vdot(out, g) == pytest.approx(np.vdot(a, back))
    agree("avg_pool", images(way, "i4"), **how)
    agree("avg_pool", images(way, BF16), tol=1e-2, **how)


def test_a_window_in_the_padding_counts_what_is_inside():
    a = np.ones((1, 1, 2))
    how = {"kernel": (2,), "stride": (1,), "padding": (1,), "ceil_mode": False, "divisor": None}
    assert on_device("avg_pool", a, include=False, **how)[0].tolist() == [[[1.0, 1.0, 1.0]]]
    assert on_device("avg_pool", a, include=True, **how)[0].tolist() == [[[0.5, 1.0, 0.5]]]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_nans_infinities_and_what_lies_around(way):
    a = images(way)
    a[RNG.random(a.shape) < 0.3] = np.nan
    a[0] = -np.inf
    (best,) = on_device("max_pool", a, **way)
    agree("max_pool", a, **way)
    g = np.where(RNG.random(best.shape) < 0.3, np.inf, 1.0).astype("f4")
    agree("max_pool_indices", a, best, **way)
    agree("max_pool_spread", g, a, best, **way)
    agree("max_pool_pick", np.where(np.isnan(a), np.inf, a), a, best, **way)
