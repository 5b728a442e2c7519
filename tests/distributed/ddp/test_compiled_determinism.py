"""Compiled models and steps of DDP with global determinism, which run eagerly but for the module
inside."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain_launcher import launch


def plain(net, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


def determined(compiled: str) -> tuple[list, str]:
    """A run with ``deterministic="global"``; what is ``compiled``: the "model", the "step"."""
    dt.manual_seed(1)
    inside = nn.Sequential(nn.Linear(20, 16), nn.GELU(), nn.Linear(16, 5))
    model: Any = dist.DistributedDataParallel(inside, deterministic="global")
    net = dt.compile(model) if compiled == "model" else model
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    run = dt.compile(plain) if compiled == "step" else plain
    rng, seen = np.random.default_rng(dist.get_rank()), []
    for _ in range(4):
        x = dt.tensor(rng.standard_normal((8, 20)).astype(np.float32))
        loss = run(net, optimizer, x, dt.tensor(rng.integers(0, 5, 8)))
        seen.append([t.detach().numpy().tobytes() for t in (loss, *model.parameters())])
    told = {"model": lambda: net.forward.explain(), "step": lambda: run.explain()}
    return seen, told[compiled]() if compiled else ""


def determined_both_ways(compiled: str) -> tuple[bool, str]:
    dist.init_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = determined("")
        found, said = determined(compiled)
    return expected == found, said


@pytest.mark.parametrize("compiled", ["model", "step"])
def test_with_global_determinism_the_module_inside_is_compiled(compiled):
    for equal, said in launch(lambda: determined_both_ways(compiled), 2):
        assert equal and "inside: Sequential: 1 captured, 0 eager" in said, said
