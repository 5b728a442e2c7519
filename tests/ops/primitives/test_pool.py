"""The largest and the mean of windows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain.ops.primitives import pool

RNG = np.random.default_rng(0)
CASES = [
    ((6, 7), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((5, 6), (3, 2), (2, 1), (1, 1), (1, 1), True),
    ((9,), (3,), (2,), (1,), (2,), False),
    ((4, 5, 6), (2, 2, 3), (2, 1, 2), (0, 1, 1), (1, 1, 1), False),
]


def windows(a, kernel, stride, padding, dilation, out):
    """Per result: the places of its window that lie in the array."""
    for at in itertools.product(*map(range, out)):
        places = []
        for tap in itertools.product(*map(range, kernel)):
            place = [
                i * s - p + t * d
                for i, s, p, t, d in zip(at, stride, padding, tap, dilation, strict=True)
            ]
            if all(0 <= x < n for x, n in zip(place, a.shape[2:], strict=True)):
                places.append(tuple(place))
        yield at, places


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation", "ceil"), CASES)
def test_the_largest(size, kernel, stride, padding, dilation, ceil):
    a = RNG.normal(size=(2, 3, *size)).astype(np.float32)
    how = {"kernel": kernel, "stride": stride, "padding": padding}
    how |= {"dilation": dilation, "ceil_mode": ceil}
    best = pool.max_pool.forward(a, **how)
    g = RNG.normal(size=best.shape).astype(np.float32)
    wanted = np.zeros_like(a)
    for at, places in windows(a, kernel, stride, padding, dilation, best.shape[2:]):
        values = np.stack([a[(..., *p)] for p in places])
        assert (best[(..., *at)] == values.max(0)).all()
        for n, c in np.ndindex(2, 3):
            wanted[(n, c, *places[values[:, n, c].argmax()])] += g[(n, c, *at)]
    np.testing.assert_allclose(pool.max_pool_spread.forward(g, a, best, **how), wanted, atol=1e-6)
    np.testing.assert_allclose(pool.max_pool_pick.forward(a, a, best, **how), best)
    index = pool.max_pool_indices.forward(a, best, **how)
    flat = a.reshape(2, 3, -1)
    assert (np.take_along_axis(flat, index.reshape(2, 3, -1), 2) == best.reshape(2, 3, -1)).all()


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("divisor", [None, 3])
@pytest.mark.parametrize("case", [0, 1, 3])
def test_the_mean(case, include, divisor):
    size, kernel, stride, padding, dilation, ceil = CASES[case]
    a = RNG.normal(size=(2, 3, *size))
    how = {"kernel": kernel, "stride": stride, "padding": padding}
    how |= {"ceil_mode": ceil, "include": include}
    found = pool.avg_pool.forward(a, **how, divisor=divisor)
    for at, places in windows(a, kernel, stride, padding, dilation, found.shape[2:]):
        total = np.stack([a[(..., *p)] for p in places]).sum(0)
        if not ceil and include and divisor is None:
            np.testing.assert_allclose(found[(..., *at)], total / np.prod(kernel))
        elif not include or divisor:
            np.testing.assert_allclose(found[(..., *at)], total / (divisor or len(places)))
    g = RNG.normal(size=found.shape)
    back = pool.avg_pool_spread.forward(g, **how, divisor=divisor, size=size)
    np.testing.assert_allclose((back * a).sum(), (found * g).sum())  # linear: its adjoint


def test_nan_is_the_largest():
    a = np.array([[[1.0, np.nan, 3.0, 2.0]]])
    best = pool.max_pool.forward(
        a, kernel=(2,), stride=(2,), padding=(0,), dilation=(1,), ceil_mode=False
    )
    assert np.isnan(best[0, 0, 0]) and best[0, 0, 1] == 3.0


@pytest.mark.parametrize("kernel, stride, padding", [(2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 3, 0)])
def test_gradients_by_places_are_those_by_values(kernel, stride, padding):
    a = np.random.default_rng(0).integers(-3, 3, (2, 3, 7, 8)).astype(np.float32)
    a[0, 0, 2, 2:4] = np.nan
    how = {
        name: (n, n)
        for name, n in (
            ("kernel", kernel),
            ("stride", stride),
            ("padding", padding),
            ("dilation", 1),
        )
    }
    how["ceil_mode"] = False
    best = pool.max_pool.forward(a, **how)
    g = np.random.default_rng(1).normal(size=best.shape).astype(np.float32)
    wanted = pool.max_pool_spread.forward(g, a, best, **how)
    found = pool.places(a, best, **how)
    assert found.dtype == np.uint8 and (found < kernel**2).all()
    got = pool.spread_to(g, found, (7, 8), **how)
    assert got.tobytes() == wanted.tobytes() and got.strides == wanted.strides


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation", "ceil"), CASES)
@pytest.mark.parametrize("odd", [np.nan, -np.inf])
def test_the_last_nan_wins_and_what_lies_around_never_does(
    size, kernel, stride, padding, dilation, ceil, odd
):
    a = RNG.normal(size=(1, 1, *size)).astype(np.float32)
    a[RNG.random(a.shape) < 0.5] = odd
    a[..., :3] = odd
    how = {"kernel": kernel, "stride": stride, "padding": padding}
    how |= {"dilation": dilation, "ceil_mode": ceil}
    best = pool.max_pool.forward(a, **how)
    where = pool.max_pool_indices.forward(a, best, **how)
    g = np.full(best.shape, np.inf, np.float32)
    spread = pool.max_pool_spread.forward(g, a, best, **how)
    for at, places in windows(a, kernel, stride, padding, dilation, best.shape[2:]):
        values = [a[0, 0][place] for place in places]
        nans = [i for i, v in enumerate(values) if np.isnan(v)]
        chosen = places[nans[-1] if nans else int(np.argmax(values))]
        assert where[0, 0][at] == np.ravel_multi_index(chosen, size)
        assert spread[0, 0][chosen] == np.inf
    assert set(np.unique(spread)) <= {0.0, np.inf}
    assert (spread == np.inf).sum() == len(np.unique(where))
    assert (pool.max_pool_pick.forward(spread, a, best, **how) == np.inf).all()
