"""Sobol's points, plain and scrambled by a seed, are PyTorch's to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.quasirandom import SobolEngine
from disttrain.quasirandom.directions import MOST, directions


@pytest.mark.peer
@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("size", [1, 5, 300])
def test_points_are_those_of_pytorch(scramble, size):
    import torch

    peer = torch.quasirandom.SobolEngine(size, scramble=scramble, seed=77)
    ours = SobolEngine(size, scramble=scramble, seed=77)
    for n in (1, 7, 33):
        assert np.array_equal(ours.draw(n).numpy(), peer.draw(n).numpy())
        ours.fast_forward(n)
        peer.fast_forward(n)
    assert repr(ours) == repr(peer)


@pytest.mark.peer
def test_directions_are_those_of_pytorch():
    import torch

    found = torch.quasirandom.SobolEngine(MOST).sobolstate.numpy()
    assert np.array_equal(directions(MOST), found)
