"""What keeps state of the world is known by what its package says of itself."""

import importlib

import pytest

from disttrain.compile.guards.kinds import OURS, USER, file_kind, is_ours, outward_part

OUTWARD = {
    "disttrain.comm.store.server": "disttrain.comm",
    "disttrain.data.loader": "disttrain.data",
    "disttrain.distributed.ddp.delayed": "DDP",
    "disttrain.distributed.ddp.reducer.reducer": "DDP",
    "disttrain.distributed.fsdp.flat.unit": "FullyShardedDataParallel",
    "disttrain.distributed.groups.state": "disttrain.distributed",
    "disttrain.metrics.jsonl": "disttrain.metrics",
    "disttrain.rpc.calls.agent": "RPC",
    "disttrain.serialize.api": "disttrain.serialize",
}


@pytest.mark.parametrize("name", OUTWARD)
def test_a_part_that_keeps_state_is_watched(name):
    module = importlib.import_module(name)
    assert OUTWARD[name] in outward_part(name)[0]
    assert file_kind(module.__file__) == USER


@pytest.mark.parametrize(
    "name",
    ["core.tensor", "nn.module", "ops.methods", "optim.optimizer", "distributed.ddp.module",
     "distributed.fsdp.unit", "distributed.tensor.array"],
)  # fmt: skip
def test_a_part_that_computes_is_not(name):
    module = importlib.import_module(f"disttrain.{name}")
    assert outward_part(module.__name__) is None
    assert file_kind(module.__file__) == OURS


def test_classes_are_told_by_their_modules():
    agent = importlib.import_module("disttrain.rpc.calls.agent").Agent
    linear = importlib.import_module("disttrain.nn.modules.linear").Linear
    assert is_ours(linear) and not is_ours(agent)
