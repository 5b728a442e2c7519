"""Captured steps with a ``GradScaler``: scales, skipped steps and weights as in eager steps."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.amp import GradScaler
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.fsdp.grad_scaler import ShardedGradScaler
from disttrain_launcher import launch

STEPS = 8


def plain(model, optimizer, scaler, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def clipped(model, optimizer, scaler, x, y):
    with dt.autocast("cpu", dtype=dt.bfloat16):
        loss = F.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return loss, norm


def told(model, optimizer, scaler, x, y):
    loss = plain(model, optimizer, scaler, x, y)
    return loss * scaler.get_scale()


def bits(t: Any) -> bytes:
    part = t.detach()
    return (part.to_local() if hasattr(part, "to_local") else part).numpy().tobytes()


def train(wrap: Any, make: Any, body: Any, compiled: bool, rank: int = 0) -> tuple[list, str]:
    """Gradients of two batches are not finite, on rank 0."""
    dt.manual_seed(3)
    model = wrap(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    scaler = make("cpu", init_scale=2.0**8, growth_interval=2)

    def step(x, y):
        return body(model, optimizer, scaler, x, y)

    run = dt.compile(step) if compiled else step
    rng, seen = np.random.default_rng(rank), []
    for i in range(STEPS):
        x = rng.standard_normal((5, 6)).astype(np.float32)
        if i in (1, 5) and rank == 0:
            x[0, 0] = np.inf
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = run(dt.tensor(x), dt.tensor(rng.integers(0, 3, 5)))
        schedule.step()
        params = optimizer.param_groups[0]["params"]
        grads = [p.grad for p in params if p.grad is not None]
        tensors = (*dt.tree.leaves(result), *params, *grads)
        seen.append([scaler.state_dict(), *(p._version for p in params), *map(bits, tensors)])
    return seen, run.explain() if compiled else ""


def alone(net: nn.Module) -> nn.Module:
    return net


@pytest.mark.parametrize("body", [plain, clipped])
def test_a_captured_step_scales_and_skips_as_an_eager_one(body):
    expected, _ = train(alone, GradScaler, body, False)
    found, said = train(alone, GradScaler, body, True)
    assert " 0 eager" in said, said
    assert found == expected
    assert len({s[0]["scale"] for s in found}) > 1  # it grew and shrank


def test_a_scale_that_the_program_reads_makes_it_eager():
    expected, _ = train(alone, GradScaler, told, False)
    found, said = train(alone, GradScaler, told, True)
    assert found == expected and "it reads the scale of a GradScaler" in said, said


def both_ways(wrap: Any, make: Any, body: Any) -> tuple[bool, str]:
    dist.init_process_group()
    expected, _ = train(wrap, make, body, False, dist.get_rank())
    found, said = train(wrap, make, body, True, dist.get_rank())
    return found == expected, said


@pytest.mark.parametrize("body", [plain, clipped])
@pytest.mark.parametrize(
    ("wrap", "make"),
    [(dist.DistributedDataParallel, GradScaler), (fully_shard, ShardedGradScaler)],
)
def test_ranks_agree_in_replays(wrap, make, body):
    for equal, said in launch(lambda: both_ways(wrap, make, body), 2):
        assert equal and " 0 eager" in said, said
