"""A rank without peers: what every verb answers, and what can be built on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import disttrain as dt
from disttrain import context, nn
from disttrain import distributed as dist
from disttrain.comm.transports.fake import FakeStore
from disttrain.distributed import checkpoint
from disttrain.distributed.collectives import objects
from disttrain.distributed.fsdp import fully_shard
from disttrain.distributed.tensor import Replicate, Shard, distribute_tensor
from disttrain.errors import CommError, ConfigError, DTypeError, ShapeError
from support.dtrun import dtrun

RANK, SIZE = 3, 8


@pytest.fixture
def group() -> Iterator[Any]:
    with context.attach(context.Rank()):
        dist.init_process_group("fake", rank=RANK, world_size=SIZE, store=FakeStore())
        yield context.current().slots["distributed"].world
        dist.destroy_process_group()


def mine(n: int = SIZE) -> np.ndarray:
    return np.arange(n, dtype=np.float32) + 10


def _list(g: Any, verb: str, **more: Any) -> np.ndarray:
    outs = [np.zeros(2, np.float32) for _ in range(SIZE)]
    if verb == "all_gather":
        g.all_gather(outs, mine(2))
    elif verb == "gather":
        g.gather(mine(2), outs if RANK == more["root"] else None, more["root"])
    else:
        g.all_to_all(outs, [mine(2) + r for r in range(SIZE)])
    return np.stack(outs)


def _single(g: Any, verb: str, out: int, n: int = SIZE, *more: Any) -> np.ndarray:
    into = np.zeros(out, np.float32)
    getattr(g, verb)(into, mine(n), *more)
    return into


def _in_place(g: Any, verb: str, *more: Any) -> np.ndarray:
    x = mine()
    getattr(g, verb)(x, *more)
    return x


def _scatter(g: Any, root: int) -> np.ndarray:
    out = np.full(2, -1, np.float32)
    g.scatter(out, [mine(2) + r for r in range(SIZE)] if root == RANK else None, root)
    return out


def _recv(g: Any) -> tuple:
    g.send(mine(), 5)
    x = mine()
    return g.recv(x, 5), g.irecv(x).wait(), x.tolist() == mine().tolist()


TABLE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "all_reduce": (lambda g: _in_place(g, "all_reduce"), mine()),
    "broadcast": (lambda g: _in_place(g, "broadcast", 0), mine()),
    "reduce": (lambda g: _in_place(g, "reduce", RANK), mine()),
    "reduce elsewhere": (lambda g: _in_place(g, "reduce", 0), mine()),
    "all_gather": (lambda g: _list(g, "all_gather"), np.tile(mine(2), (SIZE, 1))),
    "all_gather_single": (lambda g: _single(g, "all_gather_single", 2 * SIZE, 2),
                          np.tile(mine(2), SIZE)),
    "gather": (lambda g: _list(g, "gather", root=RANK), np.tile(mine(2), (SIZE, 1))),
    "gather elsewhere": (lambda g: _list(g, "gather", root=0), np.zeros((SIZE, 2))),
    "scatter": (lambda g: _scatter(g, RANK), mine(2) + RANK),
    "scatter elsewhere": (lambda g: _scatter(g, 0), [-1, -1]),
    "reduce_scatter_single": (lambda g: _single(g, "reduce_scatter_single", 1), mine()[3:4]),
    "all_to_all": (lambda g: _list(g, "all_to_all"),
                   np.stack([mine(2) + r for r in range(SIZE)])),
    "all_to_all_single": (lambda g: _single(g, "all_to_all_single", SIZE), mine()),
    "all_to_all uneven": (
        lambda g: _single(g, "all_to_all_single", 10, 3, [3, 7, *[0] * 6], [1, 1, 1, *[0] * 5]),
        [10, 11, 12, 10, 11, 12, 10, 11, 12, 10],
    ),
    "send and recv": (_recv, (5, 0, True)),
    "barrier": (lambda g: g.barrier(async_op=True).wait(), None),
    "async": (lambda g: g.all_reduce(mine(), async_op=True).wait(), mine()),
}  # fmt: skip


@pytest.mark.parametrize("verb", TABLE)
def test_every_verb_answers_from_its_own_data(group: Any, verb: str) -> None:
    call, want = TABLE[verb]
    got = call(group)
    if want is None or isinstance(want, tuple):
        assert got == want
    else:
        np.testing.assert_array_equal(got, want)


def test_arguments_are_checked_as_ever(group: Any) -> None:
    with pytest.raises(ConfigError):
        group.broadcast(mine(), SIZE)
    with pytest.raises(ShapeError):
        group.all_gather_single(mine(), mine())
    with pytest.raises(DTypeError):
        group.all_reduce(np.array(["a"]))


def test_groups_and_objects(group: Any) -> None:
    sub = dist.new_group([1, RANK, 5])
    assert (dist.get_rank(sub), dist.get_world_size(sub)) == (1, 3)
    assert dist.new_group([0, 1]) is dist.GroupMember.NON_GROUP_MEMBER
    assert dist.get_backend() == "fake" and dist.new_group(backend="gloo").size == SIZE
    gathered: list[Any] = [None] * SIZE
    dist.all_gather_object(gathered, {"a": 1})
    assert gathered == [{"a": 1}] * SIZE


def test_objects_of_others_stay_as_they_are(group: Any) -> None:
    for verb in (dist.broadcast_object_list, dist.recv_object_list):
        given: list[Any] = [1, "b"]
        verb(given, 0)
        assert given == [1, "b"]
    out: list[Any] = ["mine"]
    dist.scatter_object_list(out, None, src=0)
    assert out == ["mine"]
    dist.scatter_object_list(out, list(range(SIZE)), src=RANK)
    assert out == [RANK]
    with pytest.raises(CommError, match="an object of rank 0 is needed here, and this rank has no"):
        objects.broadcast(group, None, 0)


def test_a_barrier_waits_for_nobody(group: Any) -> None:
    dist.monitored_barrier()


def test_a_future_of_what_is_over_has_its_value(group: Any) -> None:
    x = dt.ones(2)
    assert dist.all_reduce(x, async_op=True).get_future().value()[0] is x


def test_ddp_averages_as_if_the_others_had_zeros_and_finds_no_drift(group: Any) -> None:
    model = dist.DistributedDataParallel(nn.Linear(2, 2), find_unused_parameters=True)
    for _ in range(2):
        model.zero_grad()
        model(dt.ones(4, 2)).sum().backward()
        assert model.module.weight.grad.tolist() == [[4 / SIZE] * 2] * 2


def test_a_rank_loads_its_part_of_a_checkpoint(group: Any, tmp_path: Path) -> None:
    checkpoint.save({"w": dt.arange(16.0)}, checkpoint_id=tmp_path, no_dist=True)
    mesh = dist.init_device_mesh("cpu", (SIZE,))
    state = {"w": distribute_tensor(dt.zeros(16), mesh, [Shard(0)])}
    checkpoint.load(state, checkpoint_id=tmp_path)
    assert state["w"].to_local().tolist() == [6, 7]


def test_a_plan_of_a_large_cluster_can_be_built() -> None:
    with context.attach(context.Rank()):
        dist.init_process_group("fake", rank=RANK, world_size=1024)
        mesh = dist.init_device_mesh("cpu", (128, 8), mesh_dim_names=("dp", "tp"))
        assert tuple(mesh.get_coordinate()) == (0, 3)
        assert dist.get_process_group_ranks(mesh.get_group("dp"))[:3] == [3, 11, 19]
        model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh["dp"])
        model(dt.ones(2, 256)).sum().backward()
        weight = model[0].weight
        assert weight.shape == (256, 256) and weight.to_local().shape == (2, 256)
        assert weight.grad.to_local().shape == (2, 256)
        tensor = distribute_tensor(dt.ones(256, 64), mesh, [Replicate(), Shard(0)])
        assert tensor.to_local().shape == (32, 64)
        dist.destroy_process_group()


SCRIPT = """
import os
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("nccl")
assert dist.get_backend() == "nccl"
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
print(dist.get_rank(), dist.get_world_size(), *(os.environ[name] for name in names))
raise SystemExit(5)
"""


def test_dtrun_plays_one_rank_in_one_process(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")  # nothing is left open
    flags = ("--as-torch", "--fake", "1024", "--fake-rank", "11", "--nproc-per-node", "8")
    ended = dtrun(tmp_path, SCRIPT, *flags)
    assert (ended.code, ended.out) == (5, "11 1024 11 3 1024 1\n"), ended.err
    assert re.fullmatch(r"dtrun: played rank 11 of 1024; \d+ MiB at most\n", ended.err)
