"""Autocast of the CPU: every operation's result has the type that PyTorch's lists give it."""

from __future__ import annotations

import pytest


@pytest.mark.peer
@pytest.mark.parametrize(("space", "low"), [
    ("", "bfloat16"), ("nn.functional", "bfloat16"), ("linalg", "bfloat16"), ("fft", "bfloat16"),
    ("nn.functional", "float16"),
])  # fmt: skip
def test_results_inside_have_the_same_types(space, low):
    import torch
    from peers.generators.autocasting import SPACES, misfits

    import disttrain as dt

    assert space in SPACES
    found = misfits(space, dt, torch, low)
    assert not found, f"{len(found)} calls:\n" + "\n".join(found[:40])
