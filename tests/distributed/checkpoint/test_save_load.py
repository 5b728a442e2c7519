"""Checkpoints: what is saved is what is loaded, by any number of ranks, or nobody gets anything."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn, optim, serialize
from disttrain.core import Size
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties
from disttrain.distributed.checkpoint.staging import DefaultStager, StagingOptions
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Replicate, Shard, distribute_tensor
from support.ranks import run_ranks


class Sharded:
    """A tensor that is split over ranks: this one's pieces."""

    def __init__(self, full: np.ndarray, boxes: list, blank: bool = False) -> None:
        self.full, self.dtype, self.requires_grad = full, dt.tensor(full).dtype, False
        self.parts = {
            at: dt.tensor(full[tuple(slice(a, a + n) for a, n in zip(at, size))].copy())
            for at, size in boxes
        }
        if blank:
            for part in self.parts.values():
                part.zero_()

    def size(self) -> Size:
        return Size(self.full.shape)

    def __create_chunk_list__(self) -> list:
        return [ChunkStorageMetadata(Size(at), Size(t.shape)) for at, t in self.parts.items()]

    def __get_tensor_shard__(self, index):
        return self.parts[tuple(index.offset)]

    def check(self) -> None:
        for at, part in self.parts.items():
            box = tuple(slice(a, a + n) for a, n in zip(at, part.shape))
            np.testing.assert_array_equal(part.numpy(), self.full[box])


FULL = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)


def cut(n: int, ranks: int, rank: int) -> tuple[int, int]:
    """As chunk() cuts: the last ranks may get less, or nothing."""
    each = -(-n // ranks)
    begin = min(rank * each, n)
    return begin, min(each, n - begin)


def rows(ranks: int, rank: int) -> list:
    begin, size = cut(7, ranks, rank)
    return [((begin, 0), (size, 6))]


def columns(ranks: int, rank: int) -> list:
    begin, size = cut(6, ranks, rank)
    return [((0, begin), (7, size))]


def both(ranks: int, rank: int) -> list:
    """A mesh of two by ranks/2 where that can be."""
    if ranks % 2:
        return columns(ranks, rank)
    (a, n), (b, m) = cut(7, 2, rank % 2), cut(6, ranks // 2, rank // 2)
    return [((a, b), (n, m))]


def whole(ranks: int, rank: int) -> list:
    return [((0, 0), (7, 6))]


SPLITS = {"rows": rows, "columns": columns, "both": both, "whole": whole}


def state(split, blank: bool = False) -> dict:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = Sharded(FULL, split(size, rank), blank)
    plain = dt.tensor(FULL[0]) if not blank else dt.zeros(6)
    return {"model": {"w": mine, "b": plain}, "step": 0 if blank else 17}


@pytest.mark.simulated
@pytest.mark.parametrize("before", SPLITS)
@pytest.mark.parametrize("after", SPLITS)
def test_any_ranks_and_split_load_what_any_other_saved(tmp_path, before, after):
    def save() -> None:
        dist.init_process_group()
        dcp.save(state(SPLITS[before]), checkpoint_id=tmp_path)

    def load() -> None:
        dist.init_process_group()
        target = state(SPLITS[after], blank=True)
        dcp.load(target, checkpoint_id=tmp_path)
        target["model"]["w"].check()
        np.testing.assert_array_equal(target["model"]["b"].numpy(), FULL[0])
        assert target["step"] == 17

    for saved in (1, 2, 3, 4):
        simulate(save, saved)
        for loaded in (1, 2, 3, 4):
            simulate(load, loaded)


@pytest.mark.simulated
def test_statistics_that_drifted_apart_are_those_of_the_first_rank(tmp_path):
    def body() -> list:
        dist.init_process_group()
        rank = float(dist.get_rank())
        names = [f"norm{i}.running_mean" for i in range(4)]
        dcp.save({n: dt.full((6,), rank) for n in names}, checkpoint_id=tmp_path / "c")
        target = {n: dt.full((6,), -1.0) for n in names}
        dcp.load(target, checkpoint_id=tmp_path / "c")
        return [t.tolist() for t in target.values()]

    assert simulate(body, 3).results == [[[0.0] * 6] * 4] * 3


def test_real_ranks_write_one_file_each_and_nothing_twice(tmp_path):
    def body(rank: int) -> None:
        dist.init_process_group(init_method=f"file://{tmp_path}/meet", rank=rank, world_size=2)
        dcp.save(state(rows) | {"big": dt.ones(1 << 18), "other": dt.ones((1 << 18) + 1)},
                 checkpoint_id=tmp_path / "c")  # fmt: skip
        target = state(columns, blank=True)
        dcp.load(target, checkpoint_id=tmp_path / "c")
        target["model"]["w"].check()
        dist.destroy_process_group()

    run_ranks(2, body)
    files = sorted((tmp_path / "c").glob("shard-*.safetensors"))
    assert len(files) == 2
    names = [set(serialize.inspect(f).entries) for f in files]
    assert not names[0] & names[1]
    assert {"big", "other"} & names[0] and {"big", "other"} & names[1]  # shared out
    os.umask(mask := os.umask(0))  # which new files and folders follow
    for path in (tmp_path / "c", *files, tmp_path / "c" / "manifest.json"):
        most = 0o777 if path.is_dir() else 0o666
        assert os.stat(path).st_mode & 0o777 == most & ~mask, path


def test_all_kinds_of_values_come_back(tmp_path):
    values = {
        "t": dt.tensor([1.5, 2.5], dtype=dt.bfloat16), "c": dt.ones(2, dtype=dt.complex128),
        "flags": dt.tensor([True, False]), "scalar": dt.tensor(3), "none": dt.zeros(0, 4),
        "number": 2.5, "text": "abc", "nothing": None, "list": [1, [2, 3], "x"],
        "mixed": [dt.ones(2), {"k": dt.zeros(1), 7: 8}], "tuple": (1, dt.ones(2)),
        "numbers": {0: {"step": dt.tensor(4.0)}, 1: {}}, "array": np.arange(3),
        "bytes": b"ab", "inf": float("inf"), "empty": {},
    }  # fmt: skip
    dcp.save(values, checkpoint_id=tmp_path)
    got: dict = {}
    from disttrain.distributed.checkpoint.default_planner import EmptyStateDictLoadPlanner

    dcp.load(got, checkpoint_id=tmp_path, planner=EmptyStateDictLoadPlanner())
    assert got.keys() == values.keys()
    for name in ("t", "c", "flags", "scalar", "none"):
        assert got[name].dtype is values[name].dtype
        assert got[name].tolist() == values[name].tolist()
    for name in ("number", "text", "nothing", "list", "bytes", "inf", "empty"):
        assert got[name] == values[name]
    assert got["mixed"][0].tolist() == [1, 1] and got["mixed"][1]["k"].tolist() == [0]
    assert got["mixed"][1][7] == 8 and got["numbers"][1] == {}
    assert got["numbers"][0]["step"].item() == 4
    assert got["tuple"][0] == 1 and got["tuple"][1].tolist() == [1, 1]
    np.testing.assert_array_equal(got["array"], np.arange(3))


def test_modules_and_optimizers_are_asked_for_their_state(tmp_path):
    def make(seed: int):
        dt.manual_seed(seed)
        model = nn.Linear(3, 2)
        return model, optim.AdamW(model.parameters(), lr=0.1 * (seed + 1))

    model, optimizer = make(0)
    model(dt.ones(1, 3)).sum().backward()
    optimizer.step()
    dcp.save({"model": model, "optim": optimizer}, checkpoint_id=tmp_path)
    other, second = make(1)
    second.load_state_dict(second.state_dict())
    other(dt.ones(1, 3)).sum().backward()
    second.step()
    version = other.weight._version
    dcp.load({"model": other, "optim": second}, checkpoint_id=tmp_path)
    assert other.weight.tolist() == model.weight.tolist()
    assert second.state_dict()["param_groups"][0]["lr"] == 0.1
    ours, theirs = (o.state_dict()["state"][0] for o in (optimizer, second))
    assert ours.keys() == theirs.keys() and "0" not in second.state_dict()["state"]
    assert all(dt.tensor(ours[k]).tolist() == dt.tensor(theirs[k]).tolist() for k in ours)
    assert other.weight._version > version


def test_an_optimizer_without_state_gets_one(tmp_path):
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters())
    model(dt.ones(1, 3)).sum().backward()
    optimizer.step()
    dcp.save({"optim": optimizer}, checkpoint_id=tmp_path)
    fresh = optim.Adam(model.parameters())
    dcp.load({"optim": fresh}, checkpoint_id=tmp_path)
    ours, theirs = (o.state_dict()["state"] for o in (optimizer, fresh))
    assert ours.keys() == theirs.keys()
    assert theirs[1]["exp_avg"].tolist() == ours[1]["exp_avg"].tolist()
    sharded = Sharded(FULL, [((0, 0), (7, 6))])
    dcp.save({"optim": optimizer, "w": sharded}, checkpoint_id=tmp_path)
    with pytest.warns(UserWarning, match=r"'optim.state' is empty.*6 values"):
        empty = {"optim": optim.Adam(model.parameters()).state_dict(), "w": sharded}
        dcp.load(empty, checkpoint_id=tmp_path)


def test_what_does_not_fit_is_told_at_once(tmp_path):
    dcp.save({"a": dt.ones(2), "b": 3, "c": dt.ones(3)}, checkpoint_id=tmp_path)
    target = {"a": dt.zeros(4), "c": 0, "q": 1, "r": dt.zeros(1)}
    with pytest.raises(dcp.CheckpointException, match=r"Missing key.*q, r") as caught:
        dcp.load(target, checkpoint_id=tmp_path)
    assert "Size mismatch" in str(caught.value) and "c is a tensor" in str(caught.value)
    assert isinstance(caught.value.failures[0][0], (RuntimeError, ValueError))
    assert target["a"].tolist() == [0] * 4
    target = {"b": dt.zeros(1)}  # a step that was a number and is a tensor now
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["b"] == 3


def test_partial_load_tells_what_was_left(tmp_path):
    dcp.save({"a": dt.ones(2), "b": 3}, checkpoint_id=tmp_path)
    target = {"a": dt.zeros(2), "q": dt.zeros(1)}
    planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
    dcp.load(target, checkpoint_id=tmp_path, planner=planner)
    assert target["a"].tolist() == [1, 1] and target["q"].tolist() == [0]
    assert planner.report == dcp.LoadReport(["q"], ["b"], [])
    assert str(planner.report) == "missing: 1 (q); unexpected: 1 (b)"


def test_types_are_converted_and_meta_tensors_get_memory(tmp_path):
    dcp.save({"a": dt.tensor([1.5, 2.5])}, checkpoint_id=tmp_path)
    target = {"a": dt.zeros(2, dtype=dt.float64)}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["a"].dtype is dt.float64 and target["a"].tolist() == [1.5, 2.5]
    target = {"a": dt.empty(2, device="meta")}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["a"].tolist() == [1.5, 2.5]


@pytest.mark.simulated
def test_ranks_that_contradict_each_other_are_named(tmp_path):
    def body() -> str:
        dist.init_process_group()
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.save({"a": dt.ones(2 + dist.get_rank())}, checkpoint_id=tmp_path)
        return str(caught.value)

    said = simulate(body, 2)
    said = said.results if hasattr(said, "results") else said
    assert "rank 0" in said[0] and "rank 1" in said[0] and said[0] == said[1]
    assert list(tmp_path.iterdir()) == []


def test_only_the_blocks_that_are_needed_are_read(tmp_path, monkeypatch):
    full = np.arange(6 << 20, dtype=np.uint8).reshape(6, 1 << 20)
    dcp.save({"w": dt.tensor(full)}, checkpoint_id=tmp_path)
    seen = 0
    plain = os.preadv

    def counted(fd, buffers, at):
        nonlocal seen
        got = plain(fd, buffers, at)
        seen += got
        return got

    monkeypatch.setattr(os, "preadv", counted)
    target = Sharded(full, [((2, 0), (1, 1 << 20)), ((4, 5), (1, 7))], blank=True)
    dcp.load({"w": target}, checkpoint_id=tmp_path)
    target.check()
    assert seen == (1 << 20) + (1 << 18)  # a row, and the one block that has the rest


def test_a_program_brings_its_own_planner_and_writer(tmp_path):
    class Half(dcp.DefaultSavePlanner):
        def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
            renamed = {"foo_" + k: v for k, v in state_dict.items()}
            super().set_up_planner(renamed, storage_meta, is_coordinator)

    class Renamed(dcp.DefaultLoadPlanner):
        def load_bytes(self, read_item, value):
            self.seen = (read_item.dest_index.fqn, type(value))
            super().load_bytes(read_item, value)

    writer = dcp.FileSystemWriter(tmp_path, single_file_per_rank=False)
    dcp.save({"a": dt.ones(2), "n": 1}, storage_writer=writer, planner=Half())
    assert len(list(tmp_path.glob("shard-*"))) == 2
    planner = Renamed()
    target = {"foo_a": dt.zeros(2), "foo_n": 0}
    dcp.load(target, storage_reader=dcp.FileSystemReader(tmp_path), planner=planner)
    assert target["foo_n"] == 1 and planner.seen == ("foo_n", io.BytesIO)
    about = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    assert about["foo_a"].size == (2,) and isinstance(about["foo_n"], dcp.BytesStorageMetadata)
    assert about["foo_a"].properties == TensorProperties(dt.float32)


@pytest.mark.simulated
def test_planners_may_keep_data_of_their_own(tmp_path):
    class Extra(dcp.DefaultSavePlanner):
        def create_local_plan(self):
            return dataclasses.replace(super().create_local_plan(), planner_data="of a rank")

        def create_global_plan(self, all_plans):
            plans, metadata = super().create_global_plan(all_plans)
            told = [p.planner_data for p in plans]
            return plans, dataclasses.replace(metadata, planner_data=told)

    def body() -> None:
        dist.init_process_group()
        planner = Extra(flatten_state_dict=False)
        dcp.save({"a": dt.ones(2), "d": {"x": 1}}, checkpoint_id=tmp_path, planner=planner)
        target = {"a": dt.zeros(2), "d": {}}
        plain = dcp.DefaultLoadPlanner(flatten_state_dict=False)
        dcp.load(target, checkpoint_id=tmp_path, planner=plain)
        assert target["a"].tolist() == [1, 1] and target["d"] == {"x": 1}

    simulate(body, 2)
    about = dcp.FileSystemReader(tmp_path).read_metadata()
    assert about.planner_data == ["of a rank"] * 2
    assert tools.values(str(tmp_path))["d"] == {"x": 1}


def test_a_second_save_replaces_the_first_and_leaves_no_file(tmp_path):
    dcp.save({"a": dt.ones(2)}, checkpoint_id=tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    dcp.save({"a": dt.ones(2) * 2}, checkpoint_id=tmp_path)
    target = {"a": dt.zeros(2)}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["a"].tolist() == [2, 2]
    assert len(list(tmp_path.iterdir())) == 3 and (tmp_path / "notes.txt").exists()
    with pytest.raises(dcp.CheckpointException, match="already exists"):
        dcp.save({}, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False))


def test_async_save_keeps_the_values_of_its_moment(tmp_path):
    def body(rank: int) -> None:
        dist.init_process_group(init_method=f"file://{tmp_path}/meet", rank=rank, world_size=2)
        for round_ in range(3):
            values = state(rows) | {"round": round_, "x": dt.full((1000,), float(round_))}
            future = dcp.async_save(values, checkpoint_id=tmp_path / "c")
            values["x"].fill_(-1.0)
            for part in values["model"]["w"].parts.values():
                part.zero_()
            other = dt.ones(1)
            dist.all_reduce(other)  # the program's own collectives go on meanwhile
        future.result()
        target = state(rows, blank=True) | {"round": 0, "x": dt.zeros(1000)}
        dcp.load(target, checkpoint_id=tmp_path / "c")
        target["model"]["w"].check()
        assert target["round"] == 2 and (target["x"] == 2).all()
        dist.destroy_process_group()

    run_ranks(2, body)


def test_copies_for_async_saves_use_the_same_memory_again():
    """So that many saves take no more than one copy, and give it back when they are asked to."""
    stager = DefaultStager(StagingOptions(use_async_staging=False))
    tensor, sharded = dt.ones(5), Sharded(FULL, [((0, 0), (7, 6))])
    state = {"a": tensor, "b": [tensor, {"c": sharded}], "n": [1]}
    first = stager.stage(state)
    tensor.fill_(2.0)
    assert first["a"].tolist() == [1.0] * 5 and first["a"] is first["b"][0]  # one stays one
    second = stager.stage(state)
    assert second["a"].array is first["a"].array and second["a"].tolist() == [2.0] * 5
    assert second["n"] is not state["n"]
    kept = stager.kept
    assert sum(a.nbytes for a in kept.values()) == 5 * 4 + FULL.nbytes
    stager.stage({"a": dt.ones(7)})
    assert sum(a.nbytes for a in kept.values()) == 7 * 4
    stager.close()
    assert not kept


def test_an_async_save_that_fails_says_so_to_who_asks(tmp_path):
    (tmp_path / "c").write_text("a file")
    future = dcp.async_save({"a": dt.ones(1)}, checkpoint_id=tmp_path / "c")
    with pytest.raises(dcp.CheckpointException, match="could not be written"):
        future.result()


def test_the_manifest_is_json(tmp_path: Path):
    dcp.save({"a": dt.ones(2)}, checkpoint_id=tmp_path)
    told = json.loads((tmp_path / "manifest.json").read_text())
    assert told["body"]["tensors"]["a"]["shape"] == [2]


PLACES = {
    "rows": [Shard(0), Shard(0)], "mesh": [Shard(0), Shard(1)], "copies": [Replicate(), Shard(1)],
    "whole": [Replicate(), Replicate()],
}  # fmt: skip


@pytest.mark.simulated
@pytest.mark.parametrize("before", PLACES)
@pytest.mark.parametrize("after", PLACES)
def test_dtensors_move_between_meshes(tmp_path, before, after):
    def spread(values, ranks: int, how: str):
        shape = (2, ranks // 2) if ranks % 2 == 0 else (1, ranks)
        mesh = init_device_mesh("cpu", shape)
        return distribute_tensor(dt.tensor(values), mesh, PLACES[how])

    def save(ranks: int) -> None:
        dist.init_process_group()
        dcp.save({"w": spread(FULL, ranks, before)}, checkpoint_id=tmp_path)

    def load(ranks: int) -> None:
        dist.init_process_group()
        target = {"w": spread(np.zeros_like(FULL), ranks, after)}
        dcp.load(target, checkpoint_id=tmp_path)
        np.testing.assert_array_equal(target["w"].full_tensor().numpy(), FULL)

    for saved, loaded in ((4, 2), (3, 4), (1, 3)):
        simulate(save, saved, args=(saved,))
        simulate(load, loaded, args=(loaded,))


@pytest.mark.simulated
@pytest.mark.peer
def test_the_safetensors_library_reads_every_shard(tmp_path):
    import safetensors.numpy as tools

    def save() -> None:
        dist.init_process_group()
        dcp.save(state(rows), checkpoint_id=tmp_path)

    simulate(save, 2)
    got = [tools.load_file(f) for f in sorted(tmp_path.glob("shard-*"))]
    np.testing.assert_array_equal(got[0]["model.w[0:4,0:6]"], FULL[:4])
    np.testing.assert_array_equal(got[1]["model.w[4:7,0:6]"], FULL[4:])
