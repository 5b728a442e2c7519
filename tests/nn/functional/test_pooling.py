"""Pooling to a given size: windows that cover the input evenly."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ShapeError

F = dt.nn.functional
RNG = np.random.default_rng(0)


def spans(n, out):
    return [(math.floor(i * n / out), math.ceil((i + 1) * n / out)) for i in range(out)]


@pytest.mark.parametrize("out", [1, 3, 5, 7, 9])
def test_along_a_line(out):
    a = RNG.normal(size=(2, 3, 7))
    parts = [a[..., i:j] for i, j in spans(7, out)]
    x = dt.from_numpy(a)
    mean, best = F.adaptive_avg_pool1d(x, out).numpy(), F.adaptive_max_pool1d(x, out).numpy()
    np.testing.assert_allclose(mean, np.stack([p.mean(-1) for p in parts], -1))
    np.testing.assert_allclose(best, np.stack([p.max(-1) for p in parts], -1))


@pytest.mark.parametrize("out", [(1, 1), (2, 3), (5, 4), (None, 2)])
def test_in_the_plane(out):
    a = RNG.normal(size=(2, 3, 5, 8))
    sizes = tuple(n if o is None else o for o, n in zip(out, (5, 8), strict=True))
    found = F.adaptive_avg_pool2d(dt.from_numpy(a), out).numpy()
    assert found.shape == (2, 3, *sizes)
    for i, (top, end) in enumerate(spans(5, sizes[0])):
        for j, (left, right) in enumerate(spans(8, sizes[1])):
            wanted = a[:, :, top:end, left:right].mean((2, 3))
            np.testing.assert_allclose(found[:, :, i, j], wanted)


def test_the_largest_gets_the_gradient():
    a = RNG.normal(size=(1, 2, 6, 6))
    x = dt.from_numpy(a).requires_grad_()
    best = F.adaptive_max_pool2d(x, 2)
    wanted = a.reshape(1, 2, 2, 3, 2, 3).max((3, 5))
    assert (best.detach().numpy() == wanted).all()
    best.sum().backward()
    assert (x.grad.numpy() == np.isin(a, wanted)).all()


def test_three_dimensions():
    a = RNG.normal(size=(1, 1, 4, 4, 4))
    found = F.adaptive_avg_pool3d(dt.from_numpy(a), 2).numpy()
    wanted = a.reshape(1, 1, 2, 2, 2, 2, 2, 2).mean((3, 5, 7))
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_places_of_the_largest(n):
    x = dt.from_numpy(RNG.normal(size=(2, 3, *(5, 6, 4)[:n])))
    pool = getattr(F, f"adaptive_max_pool{n}d")
    values, places = pool(x, 3, return_indices=True)
    assert dt.equal(values, pool(x, 3)) and values.shape == places.shape
    assert dt.equal(x.flatten(2).gather(2, places.flatten(2)), values.flatten(2))


def test_the_first_of_equal_ones_gets_the_gradient():
    x = dt.ones(1, 1, 4, requires_grad=True)
    F.adaptive_max_pool1d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[1, 0, 1, 0]]]
    with pytest.raises(ShapeError, match="only the batch"):
        F.adaptive_max_pool1d(dt.ones(1, 1, 0), 2)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_power_averages(n):
    x = RNG.random((2, 3, *(4,) * n)) + 0.1
    out = getattr(F, f"lp_pool{n}d")(dt.from_numpy(x), 3.0, 2).numpy()
    first = (slice(None), slice(None), *(slice(2),) * n)
    want = (x[first] ** 3).sum(tuple(range(2, 2 + n))) ** (1 / 3)
    np.testing.assert_allclose(out[(slice(None), slice(None), *(0,) * n)], want)
    zero = dt.zeros(1, 1, *(2,) * n, requires_grad=True)
    getattr(F, f"lp_pool{n}d")(zero, 2, 2).sum().backward()
    assert not zero.grad.any()  # as PyTorch's, where the root has no slope


@pytest.mark.parametrize("shape", [(2, 0, 4, 4), (0, 2, 4, 4), (3, 4, 6)])
def test_means_over_even_regions_of_what_may_be_empty(shape):
    a = np.random.default_rng(0).normal(size=shape)
    x = dt.from_numpy(a).requires_grad_()
    out = F.adaptive_avg_pool2d(x, (2, None))
    wanted = a.reshape(*shape[:-2], 2, shape[-2] // 2, shape[-1]).mean(-2)
    assert np.allclose(out.detach().numpy(), wanted)
    out.sum().backward()
    assert np.allclose(x.grad.numpy(), 2 / shape[-2])
