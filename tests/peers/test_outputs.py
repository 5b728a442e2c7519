"""``out=``: what is written, and what is refused, as PyTorch does it."""

from __future__ import annotations

import pytest
from peers.generators.outputs import PARTS

CASES = [(space, part) for space, count in PARTS.items() for part in range(count)]


@pytest.mark.peer
@pytest.mark.parametrize(("space", "part"), CASES)
def test_outputs_are_written_and_refused_alike(space, part):
    import torch
    from peers.generators.outputs import misfits

    import disttrain as dt

    found = misfits(space, part, dt, torch)
    assert not found, f"{len(found)} calls:\n" + "\n".join(found[:40])
