"""The state of an optimizer loaded before there is one: where it lies, what is left out."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from disttrain.distributed.checkpoint.optimizer import room_for
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def test_the_state_of_an_optimizer_is_loaded_before_there_is_one(tmp_path):
    dcp.save({"optim": {"state": {"w": {"m": dt.ones(4), "step": 3}}}}, checkpoint_id=tmp_path)
    reader = dcp.FileSystemReader(tmp_path)
    got = dcp.load_sharded_optimizer_state_dict({"w": dt.zeros(4)}, "optim", reader)
    assert got["optim"]["state"]["w"]["step"] == 3
    assert got["optim"]["state"]["w"]["m"].tolist() == [1.0] * 4


def tensor(*size, kind=dt.float32):
    whole = ChunkStorageMetadata(dt.Size((0,) * len(size)), dt.Size(size))
    return TensorStorageMetadata(TensorProperties(kind), dt.Size(size), [whole])


def about(**values):
    """A checkpoint of values under ``optim.state.w`` and of a model."""
    paths = {f"optim.state.w.{k}": ("optim", "state", "w", k) for k in values}
    told = {f"optim.state.w.{k}": v for k, v in values.items()}
    return Metadata({**told, "model.w": tensor(4)}, {**paths, "model.w": ("model", "w")})


def test_room_is_made_for_what_lies_under_the_key_alone():
    told = about(m=tensor(4, kind=dt.float64), step=tensor(), n=BytesStorageMetadata())
    room = room_for(told, "optim", {"w": dt.ones(4)})
    assert list(room) == ["optim"]
    state = room["optim"]["state"]["w"]
    assert state["m"].dtype is dt.float64 and state["m"].shape == (4,)
    assert state["step"].shape == () and state["n"] is None
    assert room_for(told, "opt", {}) == {}


def test_what_has_a_parameters_shape_lies_as_it_does():
    def body():
        mesh = init_device_mesh("cpu", (2,))
        w = distribute_tensor(dt.ones(4), mesh, [Shard(0)])
        state = room_for(about(m=tensor(4), other=tensor(3)), "optim", {"w": w})
        state = state["optim"]["state"]["w"]
        return state["m"].placements, state["m"].to_local().shape, type(state["other"])

    assert on_ranks(body) == [((Shard(0),), (2,), dt.Tensor)] * 2
