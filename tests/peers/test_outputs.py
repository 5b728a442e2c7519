"""``out=``: what is written, and what is refused, as PyTorch does it."""

from __future__ import annotations

import pytest


@pytest.mark.peer
@pytest.mark.parametrize("space", ["", "linalg", "fft", "special"])
def test_outputs_are_written_and_refused_alike(space):
    import torch
    from peers.generators.outputs import SPACES, misfits

    import disttrain as dt

    assert space in SPACES
    found = misfits(space, dt, torch)
    assert not found, f"{len(found)} calls:\n" + "\n".join(found[:40])
