"""Modules of other pooling: the functions with their settings."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import ConfigError

F = nn.functional
X = {n: dt.linspace(0.1, 9, 2 * 4**n).cos().abs().reshape(1, 2, *(4,) * n) for n in (1, 2, 3)}
DRAWS = {n: dt.linspace(0, 0.9, 2 * n).reshape(1, 2, n) for n in (2, 3)}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_powers_and_what_undoes_maxima(n):
    powers = getattr(nn, f"LPPool{n}d")(2, 2, stride=1, ceil_mode=True)
    assert dt.equal(powers(X[n]), getattr(F, f"lp_pool{n}d")(X[n], 2.0, 2, 1, True))
    best, places = getattr(F, f"max_pool{n}d")(X[n], 2, return_indices=True)
    unpool = getattr(nn, f"MaxUnpool{n}d")(2)
    assert dt.equal(unpool(best, places), getattr(F, f"max_unpool{n}d")(best, places, 2))
    assert unpool(best, places, output_size=[5] * n).shape[2:] == (5,) * n
    assert unpool.kernel_size == unpool.stride == (2,) * n and unpool.padding == (0,) * n


@pytest.mark.parametrize("n", [2, 3])
def test_windows_of_drawn_places(n):
    layer = getattr(nn, f"FractionalMaxPool{n}d")(2, output_ratio=0.5, return_indices=True)
    layer._random_samples = DRAWS[n]
    want = getattr(F, f"fractional_max_pool{n}d")(
        X[n], 2, output_size=2, return_indices=True, _random_samples=DRAWS[n]
    )
    assert all(dt.equal(a, b) for a, b in zip(layer(X[n]), want, strict=True))
    kind = getattr(nn, f"FractionalMaxPool{n}d")
    for settings in ({}, {"output_size": 2, "output_ratio": 0.5}, {"output_ratio": 1.5}):
        with pytest.raises(ConfigError, match="output_ratio"):
            kind(2, **settings)


def test_their_texts():
    assert repr(nn.MaxUnpool1d(2, 1)) == "MaxUnpool1d(kernel_size=(2,), stride=(1,), padding=(0,))"
    text = "LPPool2d(norm_type=2, kernel_size=3, stride=None, ceil_mode=False)"
    assert repr(nn.LPPool2d(2, 3)) == text
