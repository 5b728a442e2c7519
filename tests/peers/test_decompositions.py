"""Linear algebra and Fourier transforms, drawn at random: PyTorch's values, derivatives, vmap."""

from __future__ import annotations

import pytest


@pytest.mark.peer
def test_drawn_calls_give_what_pytorch_gives():
    import torch
    from peers.generators.decompositions import misfits

    import disttrain

    found = list(misfits(disttrain, torch, range(6)))
    assert not found, f"{len(found)} draws:\n" + "\n".join(found[:40])
