"""Checkpoints of models and optimizers: saved under one parallelism, loaded under another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disttrain import core, nn, optim
from disttrain import distributed as dist
from disttrain.core.random import manual_seed
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from disttrain.distributed.fsdp import FullyShardedDataParallel as FSDP
from disttrain.distributed.fsdp import ShardingStrategy, StateDictType, fully_shard
from disttrain.distributed.fsdp.wrap import ModuleWrapPolicy
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated

FULL = StateDictOptions(full_state_dict=True)
KINDS = ["ddp", "flat", "orig", "hybrid", "fully_shard", "whole", "tensor"]


def build(kind: str, seed: int) -> nn.Module:
    manual_seed(seed)
    m: Any = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 6))).double()
    policy = ModuleWrapPolicy({nn.Sequential})
    if kind == "ddp":
        return dist.DistributedDataParallel(m)
    if kind == "fully_shard":
        return fully_shard(m)
    if kind == "tensor":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        plan = {"0": ColwiseParallel(), "2.0": RowwiseParallel()}
        return parallelize_module(m, mesh, plan)
    if kind == "hybrid":
        mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2))
        return FSDP(m, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)
    strategy = ShardingStrategy.NO_SHARD if kind == "whole" else ShardingStrategy.FULL_SHARD
    return FSDP(m, auto_wrap_policy=policy, use_orig_params=kind == "orig",
                sharding_strategy=strategy)  # fmt: skip


def numbers(state: Any) -> Any:
    if isinstance(state, dict):
        return {k: numbers(v) for k, v in state.items()}
    return state.detach().numpy().copy() if isinstance(state, core.Tensor) else state


def made(kind: str, seed: int) -> tuple[nn.Module, Any]:
    m = build(kind, seed)
    return m, optim.AdamW(m.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("source", "target"), [(k, KINDS[(i + d) % 7]) for i, k in enumerate(KINDS) for d in (1, 3)]
)
def test_from_four_ranks_to_two(source: str, target: str, tmp_path: Path) -> None:
    def save() -> Any:
        m, o = made(source, 1)
        x = core.wrap(np.random.default_rng(0).standard_normal((4, 6)))
        (m(x) ** 2).sum().backward()
        o.step()
        model, state = get_state_dict(m, o)
        dcp.save({"model": model, "optim": state}, checkpoint_id=tmp_path)
        return [numbers(dict(s)) for s in get_state_dict(m, o, options=FULL)]

    def load() -> Any:
        m, o = made(target, 2)
        model, state = get_state_dict(m, o)
        states = {"model": model, "optim": state}
        dcp.load(states, checkpoint_id=tmp_path)
        set_state_dict(m, o, model_state_dict=states["model"], optim_state_dict=states["optim"])
        return [numbers(dict(s)) for s in get_state_dict(m, o, options=FULL)]

    want_model, want_state = on_ranks(save, 4)[0]
    for model, state in on_ranks(load, 4 if target == "hybrid" else 2):
        for name, value in want_model.items():
            np.testing.assert_array_equal(model[name], value)
        for name, values in want_state["state"].items():
            for key, value in values.items():
                np.testing.assert_array_equal(state["state"][name][key], value)


def test_a_wrappers_own_sharded_state_is_a_checkpoint(tmp_path: Path) -> None:
    def save() -> None:
        m = build("flat", 1)
        with FSDP.state_dict_type(m, StateDictType.SHARDED_STATE_DICT):
            dcp.save(m.state_dict(), checkpoint_id=tmp_path)

    def load() -> dict[str, np.ndarray]:
        m = build("orig", 2)
        with FSDP.state_dict_type(m, StateDictType.SHARDED_STATE_DICT):
            state = m.state_dict()
            dcp.load(state, checkpoint_id=tmp_path)
            m.load_state_dict(state)
        return numbers(dict(m.state_dict()))

    on_ranks(save, 3)
    manual_seed(1)
    plain = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 6))).double()
    for got in on_ranks(load, 2):
        for name, p in plain.state_dict().items():
            np.testing.assert_array_equal(got[name], p.numpy())
