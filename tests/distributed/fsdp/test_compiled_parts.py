"""Compiled parts of models that ``fully_shard`` has sharded, and compiled models around it: the
bits of eager steps, and what they say."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from disttrain_launcher import launch

BF16 = MixedPrecisionPolicy(param_dtype=dt.bfloat16)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def bits(t: Any) -> bytes:
    part: Any = t.detach() if t is not None else dt.zeros(0)
    return (part.to_local() if hasattr(part, "to_local") else part).numpy().tobytes()


def train(where: str, policy: Any, kind: str = "units") -> tuple[list, list[str]]:
    """``where`` a part is compiled: "before" it is sharded, "after" that, a "layer" in it, or the
    "whole" model, or the "step"; "" nothing. ``kind`` of sharding: "units" of fully_shard, "flat"
    ones, or "global" determinism."""
    dt.manual_seed(3)
    model: Any = nn.Sequential(nn.Linear(20, 16), Block(), Block(), nn.Linear(16, 5))
    told = []
    for i in (1, 2):
        if where == "before":
            model[i] = dt.compile(model[i])
        if kind == "flat":
            model[i] = FullyShardedDataParallel(model[i])
        else:
            fully_shard(model[i], mp_policy=policy)
        if where == "after":
            model[i] = dt.compile(model[i])
        if where == "layer":
            model[i].up = dt.compile(model[i].up)
        told.append(model[i].up if where == "layer" else model[i])
    if kind == "flat":
        net: Any = FullyShardedDataParallel(model)
    else:
        options = {"deterministic": "global"} if kind == "global" else {}
        net = fully_shard(model, mp_policy=policy, **options)
    if where == "whole":
        net = dt.compile(net)
        told = [net]
    optimizer = optim.AdamW(net.parameters(), lr=1e-2)
    rng, seen = np.random.default_rng(dist.get_rank()), []

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss

    run = dt.compile(step) if where == "step" else step
    for _ in range(6):
        x = dt.tensor(rng.standard_normal((8, 20)).astype(np.float32))
        loss = run(x, dt.tensor(rng.integers(0, 5, 8)))
        params = optimizer.param_groups[0]["params"]
        seen.append([bits(t) for t in (loss, *params, *(p.grad for p in params))])
    if where == "step":
        return seen, [run.explain()]  # type: ignore[attr-defined]
    return seen, [part.forward.explain() for part in told] if where else []


def both_ways(where: str, policy: Any, kind: str = "units") -> tuple[bool, list[str]]:
    dist.init_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = train("", policy, kind)
        found, said = train(where, policy, kind)
    return expected == found, said


@pytest.mark.parametrize("policy", [None, BF16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("where", ["before", "after", "layer"])
def test_a_compiled_part_works_with_the_whole_weights(where, policy):
    for equal, said in launch(lambda: both_ways(where, policy), 2):
        assert equal and all(" 0 eager" in text for text in said), said


def test_a_compiled_model_says_that_its_step_is_what_to_compile():
    for equal, (said,) in launch(lambda: both_ways("whole", None), 2):
        assert equal and "compile the whole step, or the parts" in said, said


@pytest.mark.parametrize(
    "where, kind",
    [
        *(("whole", kind) for kind in ("units", "flat", "global")),
        *(("step", kind) for kind in ("flat", "global")),
    ],
)
def test_the_units_of_a_model_that_runs_eagerly_are_compiled(where, kind):
    for equal, (said,) in launch(lambda: both_ways(where, None, kind), 2):
        assert equal and said.count("inside: ") > 2, said
        assert said.count("Block: 1 captured, 0 eager") == 2, said
