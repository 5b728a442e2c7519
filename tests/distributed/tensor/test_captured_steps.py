"""Captured steps with DTensors: tensor parallelism alone, beside data parallelism, and with losses
over cut classes have the bits of eager steps on the same ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
)
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from disttrain_launcher import launch

STEPS = 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.drop = nn.Embedding(16, 16), nn.LayerNorm(16), nn.Dropout(0.1)
        self.up, self.down, self.out = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 12)

    def forward(self, x):
        h = self.table(x)
        return self.out(h + self.drop(self.down(F.gelu(self.up(self.norm(h)))))).flatten(0, 1)


BLOCK = {"up": ColwiseParallel(), "down": RowwiseParallel()}
SEQUENCE = {
    "table": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
    "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}  # fmt: skip
CLASSES = {**BLOCK, "out": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}


def parallel(plan: dict) -> Callable[[], nn.Module]:
    return lambda: parallelize_module(
        Net(), init_device_mesh("cpu", (dist.get_world_size(),)), plan
    )


def whole() -> nn.Module:
    """All parameters are DTensors, and the data are cut."""
    return distribute_module(Net(), init_device_mesh("cpu", (dist.get_world_size(),)))


def replicas() -> nn.Module:
    return dist.DistributedDataParallel(parallel(BLOCK)())


def sharded_too() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(Net(), mesh["tp"], BLOCK)
    fully_shard(model.up, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


# --- steps: (model, optimizer, x, y) -> what it returns -----------------------------------------
def plain(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def summed(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def clipped(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss, norm


def over_classes(model, optimizer, x, y):
    optimizer.zero_grad()
    with loss_parallel():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
    optimizer.step()
    return loss.full_tensor()


def checked(model, optimizer, x, y):
    DTensor.from_local(x, model.up.weight.device_mesh, [Replicate()], run_check=True)
    return plain(model, optimizer, x, y)


CASES: dict[str, tuple[Callable, Callable, int]] = {
    "block": (parallel(BLOCK), plain, 2),
    "sequence": (parallel(SEQUENCE), plain, 2),
    "summed": (parallel(BLOCK), summed, 2),
    "clipped": (parallel(BLOCK), clipped, 2),
    "classes": (parallel(CLASSES), over_classes, 2),
    "whole": (whole, plain, 2),
    "replicas": (replicas, plain, 2),
    "sharded too": (sharded_too, plain, 4),
}


def bits(t: Any) -> Any:
    part = t.detach()
    return (part.to_local() if isinstance(part, DTensor) else part).numpy().tobytes()


def train(case: tuple, compiled: bool) -> tuple[list, str]:
    make, body, _ = case
    dt.manual_seed(3)
    model = make()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def step(x, y):
        return body(model, optimizer, x, y)

    run = dt.compile(step) if compiled else step
    rng, seen = np.random.default_rng(0), []
    dt.manual_seed(11)
    for _ in range(STEPS):
        data = [dt.tensor(rng.integers(0, 16, (4, 6))), dt.tensor(rng.integers(0, 12, 24))]
        if make is whole:
            data = [distribute_tensor(t, mesh, [Shard(0)]) for t in data]
        result = run(*data)
        schedule.step()
        params = optimizer.param_groups[0]["params"]
        tensors = (*dt.tree.leaves(result), *params, *(p.grad for p in params))
        seen.append([bits(t) for t in tensors if t is not None])
    return seen, run.explain() if compiled else ""


def both_ways(case: tuple) -> tuple[bool, str]:
    dist.init_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = train(case, False)
        found, said = train(case, True)
    dist.destroy_process_group()
    return expected == found, said


@pytest.mark.parametrize("name", CASES)
def test_a_captured_step_has_the_bits_of_an_eager_one(name):
    case = CASES[name]
    for equal, said in launch(lambda: both_ways(case), case[2]):
        assert equal and " 0 eager" in said, said


def test_simulated_ranks_capture_too():
    for equal, said in dist.simulate(lambda: both_ways(CASES["block"]), 2, seed=5).results:
        assert equal and " 0 eager" in said, said


def test_what_passes_the_operations_by_is_said_by_name():
    for equal, said in launch(lambda: both_ways((parallel(BLOCK), checked, 2)), 2):
        assert equal and "run_check=True" in said and " 1 eager" in said, said


def beside_others() -> tuple:
    """What a mesh remembers of other operations is nothing to a capture."""
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (2,))
    run = dt.compile(lambda x: (DTensor.from_local(x, mesh, [Shard(0)]) * 2).full_tensor().sum())
    found = []
    for i in range(6):
        found.append(float(run(dt.ones(2, 3) * i)))
        (distribute_tensor(dt.ones(4, i + 1), mesh, [Shard(0)]) + i).full_tensor()
    return found, run.explain()


def test_a_mesh_is_the_same_whatever_else_it_is_used_for():
    for found, said in launch(beside_others, 2):
        assert found == [24.0 * i for i in range(6)] and len(said.splitlines()) <= 5, said


def rearranged() -> tuple:
    """The argument lies otherwise from one call to the next."""
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (2,))
    run = dt.compile(lambda x: (x * 2 + 1).sum().full_tensor())
    whole = dt.arange(12.0).reshape(4, 3)
    made = [distribute_tensor(whole + i, mesh, [p]) for i, p in
            enumerate((Shard(0), Shard(0), Replicate(), Shard(0), Replicate()))]  # fmt: skip
    return [float(run(x)) for x in made], run.explain()


def test_an_argument_that_lies_otherwise_is_another_capture():
    for found, said in launch(rearranged, 2):
        assert found == [144.0 + 24.0 * i for i in range(5)] and "2 captured" in said, said
