"""Calls with unusual sizes, memory, types and numbers give what PyTorch's give; compiled, the same
bits; mapped, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.peer
NAMES = ("depthwise", "reduced", "ranked", "pooled", "resized", "normalised", "products")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_drawn_calls(name):
    import torch
    from peers.unusual import differences

    import disttrain

    with np.errstate(all="ignore"):
        wrong = [w for seed in range(200) for w in differences(disttrain, torch, name, seed)]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_compiled_and_mapped_calls(name):
    from peers.unusual import bits

    import disttrain

    with np.errstate(all="ignore"):
        wrong = [
            w for seed in range(12 if name == "pooled" else 60) for w in bits(disttrain, name, seed)
        ]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
