"""What runs in a backward pass, and what hooks are given, where no gradient comes."""

from __future__ import annotations

import functools
import warnings

import pytest

GRAPHS = 600


@pytest.mark.peer
@pytest.mark.parametrize("first", range(0, GRAPHS, 100))
def test_walks_run_what_pytorch_runs(first):
    import torch
    from peers.generators.walks import Walked
    from torch.utils.checkpoint import checkpoint as their_checkpoint

    import disttrain as dt
    from disttrain.core.backward.checkpoint import checkpoint

    for seed in range(first, first + 100):
        theirs = Walked(torch, functools.partial(their_checkpoint, use_reentrant=False), seed)
        ours = Walked(dt, functools.partial(checkpoint, use_reentrant=False), seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # .grad of tensors that are no leaves
            assert ours.walk() == theirs.walk(), f"graph {seed}"
