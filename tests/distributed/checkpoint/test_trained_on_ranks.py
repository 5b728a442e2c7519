"""Models that real ranks have trained, each its own way, are one model in a process of its own:
with the weights that the ranks have, and the bits that one process computes with those."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import pipelining as pp
from disttrain.distributed.checkpoint import load_model
from disttrain.distributed.fsdp import FullyShardedDataParallel, fully_shard
from disttrain.distributed.fsdp.activation import apply_activation_checkpointing
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from disttrain.serialize import load, save
from disttrain_launcher import launch

RANKS = 2


def net() -> nn.Module:
    dt.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 14), nn.Tanh(), nn.Linear(14, 6), nn.Tanh(), nn.Linear(6, 3))


def ddp(model: nn.Module) -> nn.Module:
    return dist.DistributedDataParallel(model)


def fsdp(model: nn.Module) -> nn.Module:
    fully_shard(model[0])
    return fully_shard(model)


def flat(model: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(model, use_orig_params=True)


def recomputed(model: nn.Module) -> nn.Module:
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Linear))
    return fully_shard(model)


def tensor(model: nn.Module) -> nn.Module:
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan)


STRATEGIES = [ddp, fsdp, flat, recomputed, tensor]


def trained_as(strategy, where: str) -> None:
    """Train a step, save what each rank has, and on rank 0 the whole weights beside it."""
    wrapped = strategy(net())
    optimizer = dt.optim.SGD(wrapped.parameters(), lr=0.5)
    dt.manual_seed(7)
    wrapped(dt.randn(4, 5)).square().sum().backward()
    optimizer.step()
    state = wrapped.state_dict()
    dcp.save({"model": state}, checkpoint_id=f"{where}/{strategy.__name__}")
    whole = [t.full_tensor() if hasattr(t, "full_tensor") else t for t in state.values()]
    if dist.get_rank() == 0 and strategy is not flat:  # (whose state has pieces)
        save([t.detach() for t in whole], f"{where}/{strategy.__name__}.whole")


def pipeline(where: str) -> None:
    """The same, by stages."""
    rank = dist.get_rank()
    part = pp.split_layers(net(), RANKS)[rank]
    stage = pp.PipelineStage(part, rank, RANKS, "cpu")
    schedule = pp.ScheduleGPipe(stage, 2, loss_fn=lambda y, t: (y - t).square().sum())
    optimizer = dt.optim.SGD(part.parameters(), lr=0.5)
    x, target = dt.ones(4, 5), dt.zeros(4, 3)
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=target)
    optimizer.step()
    dcp.save({"model": part.state_dict()}, checkpoint_id=f"{where}/pipeline")
    save([t.detach() for t in part.state_dict().values()], f"{where}/pipeline.whole{rank}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = str(tmp_path_factory.mktemp("ranks"))

    def body() -> None:
        dist.init_process_group()
        for strategy in STRATEGIES:
            trained_as(strategy, where)
        pipeline(where)
        dist.destroy_process_group()

    launch(body, RANKS)
    return where


def reference(tensors) -> nn.Module:
    model = net()
    names = model.state_dict().keys()
    model.load_state_dict(dict(zip(names, tensors, strict=True)))
    return model.eval()


@pytest.mark.parametrize("name", ["ddp", "fsdp", "recomputed", "tensor", "pipeline"])
def test_the_model_is_that_of_the_ranks(folder, name):
    files = [f"{folder}/{name}.whole"]
    if name == "pipeline":
        files = [f"{folder}/pipeline.whole{rank}" for rank in range(RANKS)]
    expected = reference([t for file in files for t in load(file)])
    model, x = load_model(net, f"{folder}/{name}"), dt.randn(6, 5)
    assert model(x).tolist() == expected(x).tolist()
    assert model[0].weight.tolist() != net()[0].weight.tolist()  # it was trained


def test_flat_parameters_are_the_same_model(folder):
    x = dt.randn(6, 5)
    one, other = (load_model(net, f"{folder}/{name}") for name in ("flat", "ddp"))
    assert (one(x) - other(x)).abs().max().item() < 1e-6


@pytest.mark.parametrize("name", ["fsdp", "tensor", "pipeline"])
def test_the_exported_program_computes_the_same_bits(folder, name, tmp_path):
    model = load_model(net, f"{folder}/{name}")
    dt.export(model, (dt.zeros(2, 5),), dynamic={0: {0: "batch"}}).save(tmp_path / "m.dtp")
    x = dt.randn(6, 5)
    assert dt.load_program(tmp_path / "m.dtp")(x).tolist() == model(x).tolist()
