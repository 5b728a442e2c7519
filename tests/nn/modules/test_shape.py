"""Modules that rearrange, pad and resize."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn

F = nn.functional
X = dt.arange(2.0 * 4 * 4 * 6).reshape(2, 4, 4, 6)


def test_flattening_and_back():
    assert nn.Flatten()(X).shape == (2, 96) and nn.Flatten(0, 1)(X).shape == (8, 4, 6)
    assert nn.Unflatten(1, (2, 2))(X).shape == (2, 2, 2, 4, 6)


def test_resizing():
    assert nn.Upsample(scale_factor=2)(X).tolist() == F.interpolate(X, scale_factor=2).tolist()
    wanted = F.interpolate(X, scale_factor=2, mode="bilinear", align_corners=True)
    assert nn.UpsamplingBilinear2d(scale_factor=2)(X).tolist() == wanted.tolist()
    assert nn.UpsamplingNearest2d(size=(8, 3))(X).shape == (2, 4, 8, 3)
    assert nn.PixelUnshuffle(2)(nn.PixelShuffle(2)(X)).tolist() == X.tolist()


def test_windows_and_their_sum():
    columns = nn.Unfold(2, stride=2)(X)
    assert columns.shape == (2, 16, 6)
    assert nn.Fold((4, 6), 2, stride=2)(columns).tolist() == X.tolist()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (nn.ReflectionPad2d, "reflect"),
        (nn.ReplicationPad2d, "replicate"),
        (nn.CircularPad2d, "circular"),
    ],
)
def test_borders_in_the_plane(kind, mode):
    assert kind((1, 2, 0, 1))(X).tolist() == F.pad(X, (1, 2, 0, 1), mode=mode).tolist()
    assert kind(1)(X).shape == (2, 4, 6, 8)


def test_borders_of_a_constant():
    assert nn.ZeroPad2d(1)(X).sum() == X.sum() and nn.ZeroPad2d((0, 1, 2, 0))(X).shape == (
        2,
        4,
        6,
        7,
    )
    assert nn.ConstantPad2d(1, 7.0)(X)[0, 0, 0].tolist() == [7.0] * 8
    assert nn.ConstantPad1d(2, -1.0)(X[0])[0, 0, :2].tolist() == [-1.0, -1.0]
    assert nn.ReflectionPad1d(1)(X[0])[0, 0, 0] == X[0, 0, 0, 1]
    assert nn.ReplicationPad1d(2)(X[0])[0, 0, :2].tolist() == [X[0, 0, 0, 0].item()] * 2
    assert nn.CircularPad1d(1)(X[0])[0, 0, 0] == X[0, 0, 0, -1]
    assert nn.ZeroPad1d(1)(X[0]).shape == (4, 4, 8)
    assert nn.ConstantPad3d(1, 0.0)(X[None]).shape == (1, 2, 6, 6, 8)
    assert nn.ZeroPad3d(1)(X[None]).tolist() == nn.ConstantPad3d(1, 0.0)(X[None]).tolist()


@pytest.mark.parametrize(
    "kind, mode",
    [
        (nn.ReflectionPad3d, "reflect"),
        (nn.ReplicationPad3d, "replicate"),
        (nn.CircularPad3d, "circular"),
    ],
)
def test_padding_of_three_dimensions(kind, mode):
    x = X[None]
    padded = kind((1, 2, 0, 1, 1, 0))(x)
    wanted = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    assert (
        padded.tolist()
        == np.pad(x.numpy(), ((0, 0), (0, 0), (1, 0), (0, 1), (1, 2)), wanted).tolist()
    )


def test_channels_of_the_groups_are_interleaved():
    x = dt.arange(12).reshape(1, 6, 2)
    assert nn.ChannelShuffle(2)(x)[0, :, 0].tolist() == [0, 6, 2, 8, 4, 10]
    assert repr(nn.ChannelShuffle(2)) == "ChannelShuffle(groups=2)"
