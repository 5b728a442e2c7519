"""Checkpoints between strategies: trained one way on N ranks, gone on another way on M ranks."""

from __future__ import annotations

import itertools
from collections import OrderedDict

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from disttrain.distributed.fsdp import FullyShardedDataParallel, fully_shard
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import DTensor
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

pytestmark = pytest.mark.simulated


class Net(nn.Module):
    """Sizes that no number of ranks divides; a buffer; a parameter without dimensions' worth."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3)
        self.norm = nn.BatchNorm1d(7)

    def forward(self, x: dt.Tensor) -> dt.Tensor:
        return self.second(self.norm(self.first(x)).tanh())


def plain(net: nn.Module) -> nn.Module:
    return net


def ddp(net: nn.Module) -> nn.Module:
    return dist.DistributedDataParallel(net)


def fsdp(net: nn.Module) -> nn.Module:
    fully_shard(net.first)
    return fully_shard(net)


def hybrid(net: nn.Module) -> nn.Module:
    n = dist.get_world_size()
    shape = (2, n // 2) if n % 2 == 0 else (1, n)
    return fully_shard(net, mesh=init_device_mesh("cpu", shape, mesh_dim_names=("copy", "shard")))


STRATEGIES = {"plain": plain, "ddp": ddp, "fsdp": fsdp, "hybrid": hybrid}


def trained(how: str, seed: int) -> tuple[dict, nn.Module, optim.Optimizer]:
    """The state after one step."""
    dt.manual_seed(seed)
    net = Net().double()
    wrapped = STRATEGIES[how](net)
    optimizer = optim.AdamW(net.parameters(), lr=0.1)
    wrapped(dt.randn(4, 5, dtype=dt.float64)).square().sum().backward()
    optimizer.step()
    return {"model": net.state_dict(), "optim": optimizer.state_dict()}, net, optimizer


def numbers(state: dict) -> dict[str, np.ndarray]:
    """All tensors, whole, by name."""
    out = {}
    slots = {f"{k}.{n}": t for k, s in state["optim"]["state"].items() for n, t in s.items()}
    for name, value in {**state["model"], **slots}.items():
        full = value.full_tensor() if isinstance(value, DTensor) else value
        out[name] = full.detach().numpy().copy()
    return out


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, dict[str, np.ndarray]]:
    """Checkpoints of every strategy on 1 to 4 ranks, by folder."""

    def save(how: str, where: str) -> dict[str, np.ndarray]:
        dist.init_process_group()
        state, _, _ = trained(how, 1)
        dcp.save(state, checkpoint_id=where)
        return numbers(state)

    base = tmp_path_factory.mktemp("strategies")
    found = {}
    for how, n in itertools.product(STRATEGIES, (1, 2, 3, 4)):
        where = f"{base}/{how}-{n}"
        found[where] = simulate(save, n, args=(how, where)).results[0]
    return found


@pytest.mark.parametrize("how", STRATEGIES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_run_goes_on_another_way_on_other_ranks(saved, how, ranks):
    def load() -> None:
        dist.init_process_group()
        state, net, optimizer = trained(how, 2)
        for where, values in saved.items():
            dcp.load(state, checkpoint_id=where)
            net.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optim"])
            got = numbers({"model": net.state_dict(), "optim": optimizer.state_dict()})
            assert got.keys() == values.keys()
            for name, value in values.items():
                np.testing.assert_array_equal(got[name], value, err_msg=f"{where} {name}")

    simulate(load, ranks)


def fsdp1(net: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(net, use_orig_params=True)


def tensor_parallel(net: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(net, mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})


def named(how: str, seed: int) -> tuple[dict, nn.Module, optim.Optimizer]:
    """The state after one step, by the names of parameters."""
    dt.manual_seed(seed)
    net = nn.Sequential(OrderedDict(first=nn.Linear(5, 7), act=nn.Tanh(), second=nn.Linear(7, 3)))
    wrapped = {**STRATEGIES, "fsdp1": fsdp1, "tp": tensor_parallel}[how](net.double())
    optimizer = optim.AdamW(wrapped.parameters(), lr=0.1)
    wrapped(dt.randn(4, 5, dtype=dt.float64)).square().sum().backward()
    optimizer.step()
    model, slots = get_state_dict(wrapped, optimizer)
    return {"model": model, "optim": slots}, wrapped, optimizer


def test_states_by_name_fit_every_strategy(tmp_path):
    ways = ("plain", "fsdp", "fsdp1", "tp")

    def save(how: str) -> dict[str, np.ndarray]:
        dist.init_process_group()
        state, _, _ = named(how, 1)
        dcp.save(state, checkpoint_id=f"{tmp_path}/{how}")
        return numbers(state)

    def load(how: str) -> None:
        dist.init_process_group()
        state, net, optimizer = named(how, 2)
        for where, values in saved.items():
            dcp.load(state, checkpoint_id=f"{tmp_path}/{where}")
            set_state_dict(
                net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
            )
            model, slots = get_state_dict(net, optimizer)
            got = numbers({"model": model, "optim": slots})
            assert got.keys() == values.keys()
            for name, value in values.items():
                np.testing.assert_array_equal(got[name], value, err_msg=f"{where} {name}")

    saved = {how: simulate(save, 3, args=(how,)).results[0] for how in ways}
    for how in ways:
        simulate(load, 2, args=(how,))
