"""Generated kernels do what PyTorch's do, on drawn arrays."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.peer
_FEW = {"recurrent": 100, "multiplied": 100, "halved": 100, "strided": 300, "filtered": 100,
        "asked": 200}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *("copied", "accumulated", "scattered", "convolved", "ordered", "recurrent"),
        *("strided", "multiplied", "normalised", "resized", "pooled", "halved", "filtered"),
        "asked",
    ],
)
def test_drawn_calls(name):
    import torch
    from peers.generators.kernels import CASES, differences

    import disttrain

    assert name in CASES
    seeds = [f"{name} {seed}" for seed in range(_FEW.get(name, 600))]
    wrong = [w for seed in seeds for w in differences(name, disttrain, torch, seed)]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
