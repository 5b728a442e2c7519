"""Errors of wrong calls: their classes are caught by what catches PyTorch's."""

from __future__ import annotations

import pytest


@pytest.mark.peer
@pytest.mark.parametrize(
    "path",
    [
        "",
        "nn.functional",
        "Tensor",
        "nn",
        "nn.init",
        "linalg",
        "fft",
        "special",
        "nn.utils",
        "func",
    ],
)
def test_errors_are_of_the_classes_that_programs_catch(path):
    import torch
    from peers.generators.error_classes import SPACES, misfits

    import disttrain as dt

    assert path in SPACES
    found = misfits(path, dt, torch)
    assert not found, f"{len(found)} calls:\n" + "\n".join(found[:40])
