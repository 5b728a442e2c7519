"""Images at the places of a grid."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError, ShapeError
from support.numeric import check_gradients

F = dt.nn.functional
RNG = np.random.default_rng(0)
SAME = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_identity_gives_the_image(mode, padding, corners):
    x = dt.from_numpy(RNG.normal(size=(2, 3, 4, 5)))
    theta = dt.tensor([SAME] * 2, dtype=dt.float64)
    grid = F.affine_grid(theta, x.shape, align_corners=corners)
    out = F.grid_sample(x, grid, mode, padding, align_corners=corners)
    np.testing.assert_allclose(out.numpy(), x.numpy(), atol=1e-12)


def test_the_identity_gives_the_volume():
    x = dt.from_numpy(RNG.normal(size=(1, 2, 3, 4, 2)))
    theta = dt.eye(3, 4, dtype=dt.float64)[None]
    grid = F.affine_grid(theta, x.shape)
    np.testing.assert_allclose(F.grid_sample(x, grid).numpy(), x.numpy(), atol=1e-12)


def test_what_lies_outside():
    line = dt.tensor([[[[1.0, 2.0, 3.0]]]])
    grid = dt.tensor([[[[-2.0, 0.0], [0.5, 0.0], [2.0, 0.0]]]])
    found = {
        padding: F.grid_sample(line, grid, "bilinear", padding, align_corners=True).tolist()
        for padding in ("zeros", "border", "reflection")
    }
    assert found == {
        "zeros": [[[[0.0, 2.5, 0.0]]]], "border": [[[[1.0, 2.5, 3.0]]]],
        "reflection": [[[[2.0, 2.5, 2.0]]]],
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_gradients_of_image_and_grid(mode, padding):
    x, grid = RNG.normal(size=(1, 2, 3, 4)), RNG.uniform(-1.4, 1.4, size=(1, 2, 3, 2))
    check_gradients(lambda a, g: F.grid_sample(a, g, mode, padding), x, grid)


def test_grids_of_one_place_and_of_maps():
    theta = dt.tensor([[[1.0, 0.0, 0.25], [0.0, 1.0, -0.5]]])
    assert F.affine_grid(theta, (1, 1, 1, 1)).tolist() == [[[[0.25, -0.5]]]]
    assert F.affine_grid(theta, (1, 1, 1, 2), True)[0, 0, :, 0].tolist() == [-0.75, 1.25]
    assert F.affine_grid(theta, (1, 1, 1, 2), False)[0, 0, :, 0].tolist() == [-0.25, 0.75]
    check_gradients(lambda a: F.affine_grid(a, (1, 1, 2, 3)), theta.double().numpy())


def test_a_place_that_is_no_number_is_outside():
    x, grid = dt.ones(1, 1, 2, 2), dt.full((1, 1, 1, 2), float("nan"))
    for mode in ("bilinear", "nearest"):
        assert not F.grid_sample(x, grid, mode).isinf().any()


def test_misuse():
    x, grid = dt.ones(1, 1, 2, 2), dt.zeros(1, 1, 1, 2)
    with pytest.raises(ConfigError, match="mode"):
        F.grid_sample(x, grid, "cubic")
    with pytest.raises(ConfigError, match="padding_mode"):
        F.grid_sample(x, grid, padding_mode="wrap")
    with pytest.raises(DTypeError, match="one type"):
        F.grid_sample(x, grid.double())
    with pytest.raises(ShapeError, match="last dimension"):
        F.grid_sample(x, dt.zeros(1, 1, 1, 3))
    with pytest.raises(ShapeError, match="needed"):
        F.grid_sample(x, grid[0])
    with pytest.raises(ShapeError, match="images"):
        F.grid_sample(x[None], dt.zeros(1, 1, 1, 1, 3), "bicubic")
    with pytest.raises(ShapeError, match="theta"):
        F.affine_grid(dt.zeros(1, 2, 2), (1, 1, 2, 2))
    with pytest.raises(ShapeError, match="positive output size"):
        F.affine_grid(dt.zeros(1, 2, 3), (1, 1, 0, 2))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("shape", [(0, 3, 2, 2), (2, 0, 2, 2)])
def test_empty_batches(mode, shape):
    x, grid = dt.ones(*shape).requires_grad_(), dt.zeros(shape[0], 4, 1, 2).requires_grad_()
    out = F.grid_sample(x, grid, mode, align_corners=False)
    assert out.shape == (*shape[:2], 4, 1)
    out.sum().backward()
    assert x.grad.shape == x.shape and grid.grad.shape == grid.shape
