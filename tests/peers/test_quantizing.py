"""Quantization means what it means in PyTorch, on drawn cases (ALL_DRAWS=1: ten times as many)."""

from __future__ import annotations

import pytest

from support.draws import share

CASES = {"tensors": 800, "channels": 600, "dynamic_tensors": 400, "faked": 600, "observed": 500,
         "dynamic_linear": 300, "static": 200, "tables": 150, "recurrent": 60, "operations": 300,
         "trained": 20}  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("name", sorted(CASES))
def test_drawn_cases(name):
    import torch
    from peers.generators.quantizing import CASES as KNOWN
    from peers.generators.quantizing import differences

    import disttrain

    assert set(CASES) == set(KNOWN)
    seeds = [f"{name} {seed}" for seed in share(range(CASES[name]), 10)]
    count = torch.get_num_threads()
    torch.set_num_threads(1)  # small work, for which several wait for each other
    try:
        wrong = [w for seed in seeds for w in differences(name, disttrain, torch, seed)]
    finally:
        torch.set_num_threads(count)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
