"""Reading and writing by indices on the strict double: repeated places, nan, every type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.errors import DimError
from disttrain.ops.device import segments
from support.on_device import agree, on_device, place

pytestmark = pytest.mark.usefixtures("double")
KINDS = ["f8", "f4", "f2", ml_dtypes.bfloat16, "i8", "i4", "u1", "c16", "?"]


def tolerance(kind):
    return {"f4": 1e-5, "f2": 5e-3}.get(kind, 5e-2 if kind is ml_dtypes.bfloat16 else 1e-12)


def numbers(rng, shape, kind):
    return np.round(rng.normal(size=shape) * 3, 1).astype(kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_that_repeat(kind):
    rng = np.random.default_rng(1)
    for size, few in ((5, True), (600, False)):
        index = rng.integers(0, 5, (6, 4)) * (1 if few else 100)
        g = numbers(rng, (6, 4, 3), kind)
        if kind == "?":
            continue
        agree("spread", g, index, dim=0, shape=(size, 3), tol=tolerance(kind))
        g = numbers(rng, (3, 6, 4), kind)
        agree("spread", g, index, dim=1, shape=(3, size), tol=tolerance(kind))
        agree(
            "spread", g, index, dim=1, shape=(3, size), skip=int(index[0, 0]), tol=tolerance(kind)
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_places_that_repeat(kind):
    """The last value stays; sums are added up; the rest of the array is as it was."""
    rng = np.random.default_rng(2)
    a = numbers(rng, (4, 5), kind)
    for dim in (0, 1):
        index = rng.integers(0, 4, (3, 4))
        src = numbers(rng, (3, 4), kind)
        agree("gather", a, index, dim=dim)
        agree("scatter", a, index, src, dim=dim)
        agree("scatter", a, index, np.dtype(kind).type(1), dim=dim)
        if kind != "?":
            agree("put_along", src, index, dim=dim, shape=(4, 5), tol=tolerance(kind))
            agree("scatter_reduce", a, index, src, dim=dim, reduce="prod", include_self=dim == 0,
                  tol=tolerance(kind))  # fmt: skip
        if np.dtype(kind).kind != "c":
            for reduce in ("amax", "amin"):
                agree("scatter_reduce", a, index, src, dim=dim, reduce=reduce,
                      include_self=dim == 0)  # fmt: skip
    flat = rng.integers(0, 20, (7, 2))
    values = numbers(rng, (7, 2), kind)
    agree("put", a, flat, values, accumulate=False)
    agree("put", a, flat, values[:, :1], accumulate=False)
    if kind != "?":
        agree("put", a, flat, values, accumulate=True, tol=tolerance(kind))


def test_extremes_keep_nan():
    a = np.array([[1, -np.inf, np.nan, -0.0, 5]], "f4")
    index = np.array([[0, 0, 1, 3, 4, 4]])
    src = np.array([[np.nan, 2, -np.inf, 0.0, 4, np.inf]], "f4")
    for reduce in ("amax", "amin"):
        for own in (True, False):
            agree("scatter_reduce", a, index, src, dim=1, reduce=reduce, include_self=own)


def test_a_skipped_row_may_hold_nan():
    g = np.array([[1, 2], [np.nan, np.inf], [3, 4]], "f4")
    agree("spread", g, np.array([1, 0, 1]), dim=0, shape=(2, 2), skip=0)


def test_nothing_to_gather():
    empty = np.empty((0, 3), "i8")
    agree("gather", np.ones((4, 3), "f4"), empty, dim=0)
    agree("scatter", np.ones((4, 3), "f4"), empty, np.empty((0, 3), "f4"), dim=0)
    agree("spread", np.empty((0, 2), "f4"), np.empty(0, "i8"), dim=0, shape=(3, 2))
    agree("put_along", np.empty((0, 3), "f4"), empty, dim=0, shape=(4, 3))


def test_long_runs_are_added_in_one_order(double):
    """Bit for bit on every run, and with the digits of a sum by pairs."""
    rng = np.random.default_rng(3)
    index, g = np.repeat([300, 7], [1500, 500]), rng.normal(size=(2000, 2)).astype("f4")
    first = double.download(segments.add_rows(double, place(g).data, place(index).data, 400))
    again = double.download(segments.add_rows(double, place(g).data, place(index).data, 400))
    np.testing.assert_array_equal(first, again)
    want = np.array([g[:1500].astype("f8").sum(0), g[1500:].astype("f8").sum(0)])
    np.testing.assert_allclose(first[[300, 7]], want, rtol=1e-5, atol=1e-5)
    assert not double.counts.unordered


@pytest.mark.parametrize("wrong", [-1, 4])
def test_indices_out_of_range(wrong):
    a, src = np.ones((4, 3), "f4"), np.ones((1, 3), "f4")
    index = np.array([[0, 1, wrong]])
    for name, args, params in (
        ("gather", (a, index), {"dim": 0}),
        ("scatter", (a, index, src), {"dim": 0}),
        ("put_along", (np.ones((2, 3), "f4"), np.repeat(index, 2, 0)), {"dim": 0, "shape": (4, 3)}),
        ("take", (a, index[0]), {"dim": 0}),
        ("spread", (np.ones((3, 3), "f4"), index[0]), {"dim": 0, "shape": (4, 3)}),
        ("scatter_reduce", (a, index, src), {"dim": 0, "reduce": "amax", "include_self": True}),
        ("put", (a, index[0] * 3, src[0]), {"accumulate": False}),
    ):
        with pytest.raises(DimError, match="out of range"):
            on_device(name, *args, **params)
