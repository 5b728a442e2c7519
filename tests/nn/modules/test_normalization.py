"""Normalising modules: parameters, and what they are without."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn

F = nn.functional
X = dt.linspace(-3, 5, 96).reshape(4, 6, 4).sin()


def test_parameters_have_the_normalised_shape_and_begin_as_nothing():
    module = nn.LayerNorm((6, 4))
    assert module.weight.shape == module.bias.shape == (6, 4)
    assert module(X).tolist() == F.layer_norm(X, (6, 4)).tolist()
    with dt.no_grad():
        module.weight.fill_(2)
        module.bias.fill_(1)
    assert dt.allclose(module(X), F.layer_norm(X, (6, 4)) * 2 + 1, atol=1e-6)
    assert not list(nn.LayerNorm(4, elementwise_affine=False).parameters())
    assert nn.LayerNorm(4, bias=False).bias is None


def test_the_others_are_their_functions():
    assert nn.RMSNorm(4, eps=1e-3)(X).tolist() == F.rms_norm(X, (4,), eps=1e-3).tolist()
    assert nn.GroupNorm(3, 6)(X).tolist() == F.group_norm(X, 3).tolist()
    assert nn.GroupNorm(2, 6, affine=False).weight is None
    assert nn.LocalResponseNorm(3)(X).tolist() == F.local_response_norm(X, 3).tolist()


def test_groups_divide_the_channels():
    with pytest.raises((ValueError, RuntimeError)):
        nn.GroupNorm(4, 6)


def test_texts_tell_the_settings():
    assert repr(nn.LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)"
    assert repr(nn.GroupNorm(3, 6)) == "GroupNorm(3, 6, eps=1e-05, affine=True, bias=True)"


def test_neighbours_across_maps():
    image = X[None]
    layer = nn.CrossMapLRN2d(3, alpha=0.3, k=2)
    near = [image[:, :2].square().sum(1), image[:, :3].square().sum(1)]
    for c, squares in enumerate(near):
        want = image[:, c] * (2 + 0.1 * squares).pow(-0.75)
        assert dt.allclose(layer(image)[:, c], want, atol=1e-6)
    assert repr(layer) == "CrossMapLRN2d(3, alpha=0.3, beta=0.75, k=2)"
    with pytest.raises(ValueError, match="4D"):
        layer(X)
