"""Pooling to a given size: windows that cover the input evenly."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt

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


@pytest.mark.parametrize("shape", [(2, 0, 4, 4), (0, 2, 4, 4), (3, 4, 6)])
def test_means_over_even_regions_of_what_may_be_empty(shape):
    a = np.random.default_rng(0).normal(size=shape)
    x = dt.from_numpy(a).requires_grad_()
    out = F.adaptive_avg_pool2d(x, (2, None))
    wanted = a.reshape(*shape[:-2], 2, shape[-2] // 2, shape[-1]).mean(-2)
    assert np.allclose(out.detach().numpy(), wanted)
    out.sum().backward()
    assert np.allclose(x.grad.numpy(), 2 / shape[-2])
