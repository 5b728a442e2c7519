"""What keeps state of the world is known by what its package says of itself."""

import importlib

import pytest

import disttrain as dt
from disttrain.compile.guards.kinds import OURS, USER, file_kind, is_ours, outward_part, space_of

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


class AnswersToAll:
    """As what stands for a library of C functions: any name is one of it."""

    __slots__ = ("factor",)

    def __getattr__(self, name):
        return [name]


def test_what_answers_to_any_name_has_no_attributes_but_its_own():
    stub = AnswersToAll()
    stub.factor = 2.0
    assert space_of(stub) is None and space_of(AnswersToAll) == vars(AnswersToAll)
    run = dt.compile(lambda x: x * getattr(stub, "".join(["factor"])))
    assert [run(dt.ones(1)).item() for _ in range(3)] == [2.0] * 3
    stub.factor = 3.0
    assert run(dt.ones(1)).item() == 3.0
