"""Optimizers whose states do not begin as zeros, on sharded parameters: what one process does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed import simulate
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from support.rounding import Sums

pytestmark = pytest.mark.simulated

# The longest sum has as many rows; layers, there and back, and steps.
SUMS = Sums(terms=5, depth=2 * 2 * 3)

CASES: list[tuple[Any, dict[str, Any]]] = [
    (optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 0.2}),
    (optim.Rprop, {"lr": 0.01}),
    (optim.SGD, {"lr": 0.01, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    (optim.SGD, {"lr": 0.01, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
]


def trained(make: Any, options: dict[str, Any], sharded: bool) -> list[np.ndarray]:
    dt.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3)).double()
    if sharded:
        fully_shard(net)
    optimizer = make(net.parameters(), **options)
    for k in range(3):
        optimizer.zero_grad()
        net(dt.full((2, 3), k + 1.0, dtype=dt.float64)).square().sum().backward()
        optimizer.step()
    found: list[Any] = [p.full_tensor() if sharded else p for p in net.parameters()]
    return [p.detach().numpy() for p in found]


@pytest.mark.parametrize("make, options", CASES)
def test_states_that_begin_with_a_number_or_the_gradient(make, options):
    want = trained(make, options, sharded=False)

    def body() -> None:
        dist.init_process_group()
        for a, b in zip(trained(make, options, sharded=True), want, strict=True):
            SUMS.equal(a, b)
        dist.destroy_process_group()

    simulate(body, world_size=3)


def test_states_of_sharded_and_plain_parameters_side_by_side():
    def body() -> None:
        dist.init_process_group()
        mesh = init_device_mesh("cpu", (2,))
        sharded = nn.Parameter(distribute_tensor(dt.ones(3, 2), mesh, [Shard(0)]))
        for make in (optim.Adagrad, optim.Rprop):
            optimizer = make([nn.Parameter(dt.ones(2, 2)), sharded], lr=0.5)
            sharded.grad = distribute_tensor(dt.ones(3, 2), mesh, [Shard(0)])
            optimizer.step()
        assert sharded.full_tensor().unique().numel() == 1
        dist.destroy_process_group()

    simulate(body, world_size=2)
