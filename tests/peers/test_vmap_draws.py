"""Random operations inside vmap: what PyTorch runs runs, and draws as often."""

from __future__ import annotations

import pytest

import disttrain as dt
from support.cases.vmap_draws import DRAWS, MODES, run

pytestmark = pytest.mark.peer
# It adds its argument to noise of its own, which may be the same for all examples.
BEYOND = {"gumbel_softmax"}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DRAWS)
def test_examples_draw_as_in_pytorch(name, mode, batched):
    import torch

    theirs, ours = run(torch, name, mode, batched), run(dt, name, mode, batched)
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception) or (name in BEYOND and mode != "error"), theirs
    else:
        assert ours is theirs, ours
