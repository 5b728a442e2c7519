"""Checkpoints as single files and back, and single files loaded as checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import serialize
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import format_utils, tools
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import ConfigError, LaunchError

pytestmark = pytest.mark.simulated


def on_ranks(body: Callable[[], None], world_size: int) -> None:
    """Simulated ranks with a process group."""

    def with_group() -> None:
        dist.init_process_group()
        body()
        dist.destroy_process_group()

    simulate(with_group, world_size=world_size)


def test_one_file_is_loaded_into_sharded_tensors(tmp_path: Path):
    full = dt.arange(21.0).reshape(7, 3)
    serialize.save({"m": {"w": full, "b": full[0]}}, tmp_path / "m.pt")

    def body(shape: tuple = (7, 3)) -> None:
        mesh = init_device_mesh("cpu", (3,))
        target = {"m": {"w": distribute_tensor(dt.zeros(shape), mesh, [Shard(0)]),
                        "b": dt.zeros(3)}}  # fmt: skip
        dcp.load(
            target,
            storage_reader=format_utils.BroadcastingTorchSaveReader(),
            planner=format_utils.DynamicMetaLoadPlanner(),
            checkpoint_id=tmp_path / "m.pt",
        )
        assert (target["m"]["w"].full_tensor() == full).all()
        assert target["m"]["b"].tolist() == [0.0, 1.0, 2.0]

    on_ranks(body, world_size=3)
    for shape in ((8, 3), (6, 3), (7, 2), (21,)):
        with pytest.raises(LaunchError, match=r"'m\.w' has the shape"):
            on_ranks(lambda shape=shape: body(shape), world_size=3)


STATE = {"m": {"w": dt.arange(6.0).reshape(3, 2), "b": dt.ones(2)}, "n": [1, "x"]}


def test_to_one_file_and_back(tmp_path: Path):
    dcp.save(STATE, checkpoint_id=tmp_path / "c")
    format_utils.dcp_to_torch_save(tmp_path / "c", tmp_path / "one.pt")
    assert serialize.load(tmp_path / "one.pt")["n"] == [1, "x"]
    format_utils.torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "back")
    assert not tools.diff(str(tmp_path / "c"), str(tmp_path / "back"))


def test_a_part_under_a_key_goes_without_the_key(tmp_path: Path):
    dcp.save(STATE, checkpoint_id=tmp_path / "c")
    part = format_utils.consolidate(tmp_path / "c", tmp_path / "m", "m")
    assert sorted(part) == ["b", "w"] and sorted(serialize.load(tmp_path / "m")) == ["b", "w"]
    for key in ("x", "m.x", "m.w.x"):
        with pytest.raises(ConfigError, match=r"has nothing under .*; on top it has m, n\."):
            format_utils.consolidate(tmp_path / "c", tmp_path / "m", key)
    dcp.save({}, checkpoint_id=tmp_path / "empty")
    with pytest.raises(ConfigError, match="no values at all"):
        format_utils.consolidate(tmp_path / "empty", tmp_path / "m", "x")


def test_files_become_checkpoints_under_a_key(tmp_path: Path):
    serialize.save({"w": dt.ones(2)}, tmp_path / "f.safetensors")
    format_utils.import_files(tmp_path / "f.safetensors", tmp_path / "c", key="a.b")
    assert tools.values(str(tmp_path / "c"))["a"]["b"]["w"].tolist() == [1.0, 1.0]
    format_utils.import_files(tmp_path, tmp_path / "d")
    assert tools.values(str(tmp_path / "d"))["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"x": dt.ones(1)}, "'x' is not there; needed: a tensor"),
        ({"n": dt.ones(1)}, "'n' is a list; needed: a tensor"),
        ({"n": 3}, "'n' is a int; only tensors can be loaded from such a file"),
    ],
)
def test_a_file_has_tensors_alone_for_such_a_load(tmp_path: Path, target: dict, told: str):
    serialize.save(STATE, tmp_path / "m.pt")
    reader = format_utils.BroadcastingTorchSaveReader()
    assert reader.validate_checkpoint_id(tmp_path / "m.pt")
    assert not reader.validate_checkpoint_id(tmp_path)
    with pytest.raises(dcp.CheckpointException, match=told):
        dcp.load(target, storage_reader=reader, checkpoint_id=tmp_path / "m.pt",
                 planner=format_utils.DynamicMetaLoadPlanner())  # fmt: skip
    with pytest.raises(dcp.CheckpointException, match="no checkpoint_id given"):
        dcp.load({"b": dt.ones(2)}, storage_reader=format_utils.BroadcastingTorchSaveReader(),
                 planner=format_utils.DynamicMetaLoadPlanner())  # fmt: skip
