"""Checkpointed blocks in captured steps: the bits of eager ones, with their random numbers, alone
and under the strategies; and the memory that they save."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.autograd.graph import saved_tensors_hooks
from disttrain.core.backward.checkpoint import checkpoint
from disttrain.distributed.fsdp import fully_shard
from disttrain_launcher import launch

STEPS = 6


class Block(nn.Module):
    """``how``: "inside" and "reentrant" checkpoint the block's own work, "none" nothing."""

    def __init__(self, how: str, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop, self.how = nn.Dropout(0.2), how

    def work(self, x):
        return x + self.drop(self.down(F.gelu(self.up(x))))

    def forward(self, x):
        if self.how in ("inside", "reentrant"):
            return checkpoint(self.work, x, use_reentrant=self.how == "reentrant")
        if self.how == "hooks":
            with saved_tensors_hooks(lambda t: t * 2, lambda t: t * 0.5):
                return self.work(x)
        return self.work(x)


class Net(nn.Module):
    def __init__(self, how: str, width: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(20, width), nn.Linear(width, 5), how
        self.blocks = nn.ModuleList([Block(how, width) for _ in range(depth)])

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            around = self.how == "around"
            h = checkpoint(block, h, use_reentrant=False) if around else block(h)
        return self.last(h)


def alone(net: nn.Module) -> nn.Module:
    return net


def sharded(net: Any) -> nn.Module:
    for block in net.blocks:
        fully_shard(block)
    return fully_shard(net)


def bits(t: dt.Tensor) -> bytes:
    part: Any = t.detach()
    return (part.to_local() if hasattr(part, "to_local") else part).numpy().tobytes()


def train(wrap: Callable, how: str, compiled: bool, rank: int = 0) -> tuple[list, str]:
    dt.manual_seed(3)
    model = wrap(Net(how))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = dt.compile(step) if compiled else step
    rng, seen = np.random.default_rng(rank), []
    dt.manual_seed(7 + rank)
    for _ in range(STEPS):
        x = dt.tensor(rng.standard_normal((8, 20)).astype(np.float32))
        loss = run(x, dt.tensor(rng.integers(0, 5, 8)))
        params = optimizer.param_groups[0]["params"]
        seen.append([bits(t) for t in (loss, dt.rand(2), *params, *(p.grad for p in params))])
    return seen, run.explain() if compiled else ""


@pytest.mark.parametrize("how", ["inside", "reentrant", "around", "hooks"])
def test_a_captured_step_has_the_bits_of_an_eager_one(how):
    expected, _ = train(alone, how, False)
    found, said = train(alone, how, True)
    assert found == expected and " 0 eager" in said, said


def both_ways(wrap: Callable, how: str) -> tuple[bool, str]:
    dist.init_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = train(wrap, how, False, dist.get_rank())
        found, said = train(wrap, how, True, dist.get_rank())
    dist.destroy_process_group()
    return found == expected, said


@pytest.mark.parametrize("how", ["inside", "reentrant", "around"])
@pytest.mark.parametrize("wrap", [dist.DistributedDataParallel, sharded])
def test_so_it_has_under_a_strategy(wrap, how):
    for equal, said in launch(lambda: both_ways(wrap, how), 2):
        assert equal and " 0 eager" in said, said


def peak(how: str) -> float:
    """What a captured step holds, in MB, as it says itself."""
    net = Net(how, 64, 6)
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @dt.compile
    def step(x):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step(dt.ones(512, 20))
    return float(re.search(r"holds ([\d.]+) MB", step.explain())[1])  # type: ignore[index]


def test_what_runs_again_is_not_kept():
    assert peak("inside") < 0.6 * peak("none")


def test_a_model_with_checkpoints_says_what_it_cannot():
    with pytest.warns(UserWarning, match="checkpointed block"):
        model: Any = dt.compile(Net("inside"))
        model(dt.ones(2, 20)).sum().backward()
    assert model.first.weight.grad is not None


def test_a_replay_that_raises_in_the_second_run_leaves_the_stream_where_it_was():
    @dt.compile
    def step(x, i):
        def work(x):
            return F.dropout(x, 0.5)[i] * x.sum()

        out = checkpoint(work, x, use_reentrant=False)
        out.sum().backward()
        return out

    def run(last: int) -> list:
        dt.manual_seed(1)
        seen = []
        for k in (0, 1, 2, last):
            x = dt.ones(4).requires_grad_()
            try:
                seen.append(bits(step(x, dt.tensor([k]))))
            except Exception as error:
                seen.append(type(error).__name__)
            seen.append(bits(dt.rand(1)))
        return seen

    first = run(9)
    assert run(9) == first
