"""Values that go back to where maxima stood, and maxima over windows of drawn places."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError, ShapeError
from support.numeric import check_gradients

F = dt.nn.functional
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_undoes_pooling_at_the_places_of_the_maxima(n):
    x = dt.from_numpy(RNG.normal(size=(2, 3, *(4, 6, 2)[:n])))
    pool, unpool = getattr(F, f"max_pool{n}d"), getattr(F, f"max_unpool{n}d")
    best, places = pool(x, 2, return_indices=True)
    back = unpool(best, places, 2)
    np.testing.assert_array_equal(back.numpy(), np.where(back.numpy() != 0, x.numpy(), 0))
    assert int((back != 0).sum()) == best.numel()
    check_gradients(lambda a: unpool(a, places, 2), best.numpy())


def test_a_size_may_be_given_within_a_stride():
    best, places = F.max_pool1d(dt.arange(5.0)[None, None], 2, return_indices=True)
    assert F.max_unpool1d(best, places, 2).tolist() == [[[0, 1, 0, 3]]]
    assert F.max_unpool1d(best, places, 2, output_size=[5]).tolist() == [[[0, 1, 0, 3, 0]]]
    assert F.max_unpool1d(best, places, 2, output_size=(1, 1, 5)).shape == (1, 1, 5)
    with pytest.raises(ConfigError, match="invalid output_size"):
        F.max_unpool1d(best, places, 2, output_size=[6])


def test_misuse_of_unpooling():
    x, places = dt.ones(1, 1, 2), dt.zeros(1, 1, 2, dtype=dt.int64)
    with pytest.raises(DTypeError, match="int64"):
        F.max_unpool1d(x, places.to(dt.int32), 2)
    with pytest.raises(ShapeError, match="one per element"):
        F.max_unpool1d(x, places[..., :1], 2)
    with pytest.raises(ShapeError, match="one number or 2"):
        F.max_unpool2d(x[None], places[None], (2, 2, 2))


@pytest.mark.parametrize("n", [2, 3])
def test_windows_lie_in_the_image_in_order_and_end_at_its_end(n):
    sizes = (7, 8, 6)[:n]
    x = dt.arange(float(np.prod(sizes))).reshape(1, 1, *sizes)
    found, places = getattr(F, f"fractional_max_pool{n}d")(x, 2, output_size=3, return_indices=True)
    assert found.shape == places.shape == (1, 1, *(3,) * n)
    assert found.flatten().tolist() == places.flatten().tolist()  # values are their own places
    assert found.max() == x.max()
    corners = np.stack(np.unravel_index(places.numpy().reshape((3,) * n), sizes))
    for d in range(n):
        steps = np.diff(corners[d], axis=d)
        assert (steps > 0).all() and (steps <= 3).all()


def test_given_draws_choose_the_windows():
    x = dt.arange(10.0).reshape(1, 1, 1, 10).expand(1, 1, 10, 10).clone()
    low = dt.tensor([[[0.0, 0.0]]])
    out = F.fractional_max_pool2d(x, 2, output_size=4, _random_samples=low)
    step = 8 / 3  # starts: whole parts of 0, 1 and 2 steps; the last window ends the line
    assert out[0, 0, 0].tolist() == [int(i * step) + 1 for i in range(3)] + [9]
    check_gradients(
        lambda a: F.fractional_max_pool2d(a, 2, output_size=2, _random_samples=low.double()),
        RNG.normal(size=(1, 1, 4, 5)),
    )


def test_misuse_of_drawn_windows():
    x = dt.ones(1, 1, 4, 4)
    with pytest.raises(ConfigError, match="either an output_size or an output_ratio"):
        F.fractional_max_pool2d(x, 2)
    assert F.fractional_max_pool2d(x, 2, 3, (0.5, 0.5)).shape == (1, 1, 3, 3)  # the size counts
    with pytest.raises(ConfigError, match="between 0 and 1"):
        F.fractional_max_pool2d(x, 2, output_ratio=(0.5, 1.5))
    with pytest.raises(ShapeError, match="do not fit"):
        F.fractional_max_pool2d(x, 3, 3)
    with pytest.raises(ShapeError, match="random samples"):
        F.fractional_max_pool2d(x, 2, 2, _random_samples=dt.rand(1, 1, 3))
