"""Matrices that resize: their sums, where they are symmetric, weights as whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain.errors import ConfigError
from disttrain.nn.functional.filters import fixed_point, sampled, smooth


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("make", [sampled, smooth])
@pytest.mark.parametrize(("size", "out"), [(32, 5), (5, 32), (7, 7), (1, 3), (9, 1)])
def test_weights_of_a_new_place_sum_to_one(mode, make, size, out):
    matrix = make(mode, size, out, None, False)
    assert matrix.shape == (out, size)
    np.testing.assert_allclose(matrix.sum(1), 1.0)
    np.testing.assert_allclose(matrix, matrix[::-1, ::-1], atol=1e-12)


def test_a_smaller_image_is_made_of_all_of_the_larger_one():
    assert (smooth("bilinear", 40, 4, None, False) != 0).any(0).all()
    assert not (sampled("bilinear", 40, 4, None, False) != 0).any(0).all()


def test_whole_weights_are_as_fine_as_16_bits_allow():
    weights, bits = fixed_point(np.array([[0.25, 0.75], [-0.1, 0.3]]))
    assert bits == 15 and np.array_equal(weights, np.trunc(weights))
    assert weights.max() < 1 << 15
    np.testing.assert_allclose(weights / 2**bits, [[0.25, 0.75], [-0.1, 0.3]], atol=2**-15)


def test_antialias_is_for_images_and_smooth_modes():
    for shape, mode in (((1, 1, 4), "linear"), ((1, 1, 4, 4), "nearest")):
        with pytest.raises(ConfigError, match="antialias=True given with mode"):
            F.interpolate(dt.ones(*shape), size=2, mode=mode, antialias=True)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_stay_bytes_and_gradients_of_floats_are_those_of_the_matrix(mode, antialias):
    image = dt.full((1, 3, 8, 8), 200, dtype=dt.uint8)
    small = F.interpolate(image, size=(3, 5), mode=mode, antialias=antialias)
    assert small.dtype is dt.uint8 and small.unique().tolist() == [200]
    x = dt.rand(1, 1, 6, 6, dtype=dt.float64, requires_grad=True)
    assert dt.autograd.gradcheck(
        lambda t: F.interpolate(t, size=(4, 3), mode=mode, antialias=antialias), (x,)
    )
