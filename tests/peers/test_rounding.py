"""Norms, variances, softmaxes and losses in float32 are as near to the truth as PyTorch's."""

from __future__ import annotations

import pytest

CASES = ("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "normalize",
         "local_response_norm", "statistics", "reductions", "softmax", "log_sums", "classes",
         "pairs", "chances")  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("name", CASES)
def test_errors_are_at_most_pytorchs(name):
    import torch
    from peers.generators.rounding import CASES as KNOWN
    from peers.generators.rounding import errors, worse

    import disttrain

    assert set(CASES) == set(KNOWN)
    seeds = [f"{name} {seed}" for seed in range(40)]
    wrong = worse([f for seed in seeds for f in errors(KNOWN[name], disttrain, torch, seed)])
    assert not wrong, "\n".join(wrong)
