"""Autocast of the CPU: every operation's result has the type that PyTorch's lists give it."""

from __future__ import annotations

import pytest
from peers.generators.autocasting import PARTS

CASES = [(space, part, "bfloat16") for space, count in PARTS.items() for part in range(count)]
CASES += [("nn.functional", part, "float16") for part in range(PARTS["nn.functional"])]


@pytest.mark.peer
@pytest.mark.parametrize(("space", "part", "low"), CASES)
def test_results_inside_have_the_same_types(space, part, low):
    import torch
    from peers.generators.autocasting import misfits

    import disttrain as dt

    found = misfits(space, part, dt, torch, low)
    assert not found, f"{len(found)} calls:\n" + "\n".join(found[:40])
