"""Padding, resizing and shuffling of images."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.nn.functional import vision

F = dt.nn.functional
RNG = np.random.default_rng(0)
A = RNG.normal(size=(2, 3, 4, 5))


@pytest.mark.parametrize(
    ("mode", "name"),
    [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"), ("constant", "constant")],
)
def test_borders_are_numpys(mode, name):
    found = F.pad(dt.from_numpy(A), (1, 2, 3, 0), mode=mode).numpy()
    assert (found == np.pad(A, ((0, 0), (0, 0), (3, 0), (1, 2)), mode=name)).all()


def test_negative_borders_cut():
    assert (F.pad(dt.from_numpy(A), (-1, 0, 0, -2)).numpy() == A[:, :, :2, 1:]).all()


def test_nearest_repeats_and_linear_lies_between():
    x = dt.from_numpy(A)
    near = F.interpolate(x, scale_factor=2, mode="nearest").numpy()
    assert (near == A.repeat(2, 2).repeat(2, 3)).all()
    line = dt.tensor([[[0.0, 1.0, 4.0]]])
    ends = F.interpolate(line, size=5, mode="linear", align_corners=True)
    assert ends.tolist() == [[[0.0, 0.5, 1.0, 2.5, 4.0]]]
    middle = F.interpolate(line, size=6, mode="linear", align_corners=False)
    np.testing.assert_allclose(middle.numpy()[0, 0], [0, 0.25, 0.75, 1.75, 3.25, 4.0])


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "area", "nearest-exact"])
def test_a_constant_stays_one(mode):
    out = F.interpolate(dt.full((1, 1, 4, 6), 2.5), size=(7, 3), mode=mode)
    np.testing.assert_allclose(out.numpy(), np.full((1, 1, 7, 3), 2.5), rtol=1e-6)


def test_pixels_move_between_channels_and_places():
    x = dt.arange(2.0 * 8 * 3 * 3).reshape(2, 8, 3, 3)
    up = F.pixel_shuffle(x, 2)
    assert up.shape == (2, 2, 6, 6) and F.pixel_unshuffle(up, 2).tolist() == x.tolist()
    assert up[0, 0, :2, :2].flatten().tolist() == x[0, :4, 0, 0].tolist()
    mixed = F.channel_shuffle(x, 2)
    assert mixed[0, :, 0, 0].tolist() == x[0, [0, 4, 1, 5, 2, 6, 3, 7], 0, 0].tolist()


@pytest.mark.parametrize("kind", ["f4", "f2", "u1"])
@pytest.mark.parametrize(("size", "out"), [((3, 4), (6, 12)), ((3, 4), (7, 8)), ((2, 5), (2, 5))])
def test_nearest_places_of_any_share(size, out, kind):
    a = np.random.default_rng(0).integers(0, 200, (2, 3, *size)).astype(kind)
    rows, columns = ((np.arange(n) * (s / n)).astype(int) for s, n in zip(size, out, strict=True))
    found = F.interpolate(dt.from_numpy(a), size=out).numpy()
    assert found.dtype == a.dtype
    assert (found == a[:, :, rows][..., columns]).all()
    if kind == "f4":
        x, g = dt.from_numpy(a).requires_grad_(), np.arange(2 * 3 * out[0] * out[1], dtype="f4")
        F.interpolate(x, size=out).backward(dt.from_numpy(g.reshape(2, 3, *out)))
        wanted = np.zeros(a.shape)
        np.add.at(wanted, (slice(None), slice(None), rows[:, None], columns), g.reshape(2, 3, *out))
        assert np.allclose(x.grad.numpy(), wanted)


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        ("bilinear", (2, 3, 8, 6)),
        ("area", (2, 3, 9, 6)),
        ("linear", (2, 3, 8)),
        ("trilinear", (1, 2, 4, 6, 8)),
    ],
)
def test_means_of_neighbours_are_what_the_matrices_say(mode, shape, monkeypatch):
    x = dt.randn(*shape, dtype=dt.float64, requires_grad=True)
    size = tuple(n // (3 if n == 9 else 2) for n in shape[2:])
    found = F.interpolate(x, size, mode=mode)
    g = dt.randn(*found.shape, dtype=dt.float64)
    (dx,) = dt.autograd.grad(found, x, g)
    monkeypatch.setattr(vision, "_mean_of", lambda *sizes: 0)
    plain = F.interpolate(x, size, mode=mode)
    assert np.allclose(found.detach().numpy(), plain.detach().numpy())
    assert np.allclose(dx.numpy(), dt.autograd.grad(plain, x, g)[0].numpy())


@pytest.mark.parametrize(("mode", "how"), [
    ("bilinear", {}), ("bicubic", {}), ("area", {}), ("bilinear", {"antialias": True}),
])  # fmt: skip
def test_what_is_not_finite_stays_near_its_place_when_resized(mode, how):
    x = dt.zeros(1, 1, 9, 9)
    x[0, 0, 4, 4] = math.nan
    x.requires_grad_()
    out = F.interpolate(x, size=(18, 18), mode=mode, **how)
    odd = out.isnan()
    assert bool(odd.any()) and not bool(odd[..., :5, :].any()) and not bool(odd[..., -5:].any())
    g = dt.zeros(1, 1, 18, 18)
    g[0, 0, 9, 9] = math.inf
    out.backward(g)
    assert bool(x.grad[0, 0, :2].isfinite().all()) and bool(x.grad[0, 0, :, -2:].isfinite().all())
