"""Checkpoints as programs for PyTorch use them: planners, writers and stagers of their own."""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import serialize
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import format_utils, planner_helpers, state_dict_loader
from disttrain.distributed.checkpoint.default_planner import flatten_state_dict
from disttrain.distributed.checkpoint.planner import WriteItemType
from disttrain.distributed.checkpoint.staging import (
    BlockingAsyncStager,
    DefaultStager,
    StagingOptions,
)
from disttrain.distributed.checkpoint.state_dict_saver import AsyncSaveResponse
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import LaunchError

pytestmark = pytest.mark.simulated


def on_ranks(body: Callable[[], None], world_size: int) -> None:
    """Simulated ranks with a process group."""

    def with_group() -> None:
        dist.init_process_group()
        body()
        dist.destroy_process_group()

    simulate(with_group, world_size=world_size)


def state(k: float = 1.0) -> dict:
    return {"a": dt.full((4, 3), k), "b": dt.arange(5.0) * k, "n": int(7 * k), "o": [k, "x"]}


class Renaming(dcp.DefaultLoadPlanner):
    """Loads under other names; reads what is no tensor as the documentation shows."""

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.original_state_dict = state_dict
        renamed = {f"foo_{k}": v for k, v in state_dict.items()}
        self.state_dict, self.mappings = flatten_state_dict(renamed)
        self.metadata, self.is_coordinator = metadata, is_coordinator

    def load_bytes(self, read_item, value):
        name = read_item.dest_index.fqn[4:]
        self.original_state_dict[name] = serialize.load(value, weights_only=False)


class Named(dcp.DefaultSavePlanner):
    """Saves under other names, and numbers by ``save``."""

    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        renamed = {f"foo_{k}": v for k, v in state_dict.items()}
        super().set_up_planner(renamed, storage_meta, is_coordinator)

    def transform_object(self, write_item, object):
        if write_item.type is WriteItemType.BYTE_IO and write_item.index.fqn == "foo_n":
            out = io.BytesIO()
            serialize.save(object, out)
            return out
        return super().transform_object(write_item, object)


class Narrow(dcp.DefaultSavePlanner):
    """Saves tensors with fewer bits."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        for item in plan.items:
            if item.tensor_data is not None:
                item.tensor_data.properties.dtype = dt.float16
        return plan

    def resolve_data(self, write_item):
        found = super().resolve_data(write_item)
        return found if write_item.type is WriteItemType.BYTE_IO else found.to(dt.float16)


class Widen(dcp.DefaultLoadPlanner):
    """Reads into memory of its own, and puts it where it belongs afterwards."""

    def resolve_tensor(self, read_item):
        return dt.empty(super().resolve_tensor(read_item).shape, dtype=dt.float16)

    def commit_tensor(self, read_item, tensor):
        super().resolve_tensor(read_item).copy_(tensor)


def test_planners_that_rename_read_what_is_no_tensor_by_load(tmp_path: Path):
    def body() -> None:
        dcp.save(state(), checkpoint_id=tmp_path / "c", planner=Named())
        target = state(0.0)
        dcp.load(target, checkpoint_id=tmp_path / "c", planner=Renaming())
        assert target["a"].sum().item() == 12.0 and target["n"] == 7 and target["o"] == [1.0, "x"]

    on_ranks(body, world_size=2)


def test_planners_that_convert_by_resolving_and_committing(tmp_path: Path):
    def body() -> None:
        dcp.save(state(), checkpoint_id=tmp_path, planner=Narrow())
        about = dcp.FileSystemReader(tmp_path).read_metadata()
        assert about.state_dict_metadata["a"].properties.dtype == dt.float16
        target = state(0.0)
        dcp.load(target, checkpoint_id=tmp_path, planner=Widen())
        assert target["b"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0] and target["b"].dtype == dt.float32

    on_ranks(body, world_size=2)


def test_planners_that_share_the_work_out_their_own_way(tmp_path: Path):
    class Turns(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans):
            items, n = all_plans[0].items, len(all_plans)
            return super().create_global_plan(
                [dataclasses.replace(p, items=items[r::n]) for r, p in enumerate(all_plans)]
            )

    def body() -> None:
        dcp.save(state(), checkpoint_id=tmp_path, planner=Turns())
        target = state(0.0)
        dcp.load(target, checkpoint_id=tmp_path)
        assert target["a"].sum().item() == 12.0 and target["o"] == [1.0, "x"]

    on_ranks(body, world_size=3)


def test_copies_that_come_as_futures_give_futures_of_both(tmp_path: Path):
    stager, value = DefaultStager(StagingOptions()), dt.ones(3)
    saved = dcp.async_save({"a": value}, checkpoint_id=tmp_path / "c", async_stager=stager)
    assert isinstance(saved, AsyncSaveResponse)
    assert saved.staging_completion.result() is None
    value.zero_()
    saved.upload_completion.result()
    target = {"a": dt.zeros(3)}
    dcp.load(target, checkpoint_id=tmp_path / "c")
    assert target["a"].tolist() == [1.0] * 3

    saved = dcp.async_save({"a": 1}, checkpoint_id=tmp_path / "d", async_stager=Refuses())
    for future in (saved.staging_completion, saved.upload_completion):
        with pytest.raises(Exception, match="no room"):
            future.result()


class Refuses(BlockingAsyncStager):
    def stage(self, state_dict):
        future: Future = Future()
        future.set_exception(ValueError("no room"))
        return future


def test_two_stagers_have_memory_of_their_own():
    first, second = (DefaultStager(StagingOptions(use_async_staging=False)) for _ in range(2))
    one, two = first.stage({"a": dt.ones(2)}), second.stage({"a": dt.zeros(2)})
    assert one["a"].tolist() == [1.0, 1.0] and two["a"].tolist() == [0.0, 0.0]
    plain = BlockingAsyncStager()
    one, two = plain.stage({"a": dt.ones(2)}), plain.stage({"a": dt.zeros(2)})
    assert one["a"].tolist() == [1.0, 1.0] and two["a"].tolist() == [0.0, 0.0]


def test_a_writer_may_make_the_copy(tmp_path: Path):
    class Doubling(dcp.FileSystemWriter):
        def stage(self, state_dict):
            return {k: v * 2 for k, v in super().stage(state_dict).items()}

    dcp.async_save({"a": dt.ones(2)}, storage_writer=Doubling(tmp_path)).result()
    assert state_dict_loader.load_from_keys("a", checkpoint_id=tmp_path)["a"].tolist() == [2.0, 2.0]


def test_results_inside_tuples_are_copied(tmp_path: Path):
    grown = dt.ones(2).requires_grad_() * 3
    dcp.async_save({"t": (grown, [grown])}, checkpoint_id=tmp_path).result()
    target = {"t": None}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["t"][0].tolist() == [3.0, 3.0] and target["t"][1][0].tolist() == [3.0, 3.0]


def test_a_sharded_tensor_in_a_tuple_is_refused_when_it_is_saved(tmp_path: Path):
    def body() -> None:
        mesh = init_device_mesh("cpu", (2,))
        dcp.save({"t": (distribute_tensor(dt.ones(4), mesh, [Shard(0)]),)}, checkpoint_id=tmp_path)

    with pytest.raises(LaunchError, match="a tuple with a sharded tensor"):
        on_ranks(body, world_size=2)
    assert not list(tmp_path.iterdir())


def test_part_of_a_checkpoint_without_a_state_dict(tmp_path: Path):
    dcp.save({"m": {"w": dt.ones(2), "v": dt.zeros(1)}, "n": 3}, checkpoint_id=tmp_path)
    found = state_dict_loader.load_from_keys({"m.w", "n"}, checkpoint_id=tmp_path)
    assert found["m"]["w"].tolist() == [1.0, 1.0] and found["n"] == 3 and list(found["m"]) == ["w"]


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


def test_reads_of_pieces_that_a_program_asks_for(tmp_path: Path):
    dcp.save({"w": dt.ones(6)}, checkpoint_id=tmp_path)
    stored = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata["w"]
    wanted = [dcp.ChunkStorageMetadata(dt.Size([k]), dt.Size([2])) for k in (0, 4)]
    items = planner_helpers.create_read_items_for_chunk_list("w", stored, wanted)
    reads = [(tuple(i.storage_offsets), tuple(i.lengths)) for i in items]
    assert reads == [((0,), (2,)), ((4,), (2,))]


def test_numbers_of_ranks_are_numbers_in_checkpoints(tmp_path: Path):
    def body() -> None:
        group = dist.group.WORLD
        value = {"rank": dist.get_rank(), "of": group.size, "again": [group.rank]}
        assert type(value["rank"]) is int and type(dist.get_world_size()) is int
        dcp.save({f"r{dist.get_rank()}": value}, checkpoint_id=tmp_path)
        target = {f"r{dist.get_rank()}": dict.fromkeys(value)}
        dcp.load(target, checkpoint_id=tmp_path)
        assert target == {f"r{dist.get_rank()}": value}

    on_ranks(body, world_size=2)


class OwnError(Exception):
    """One that other ranks cannot make."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_errors_of_classes_that_only_one_rank_has_read_alike_everywhere(tmp_path: Path):
    class Fails:
        def state_dict(self):
            if dist.get_rank() == 1:
                raise OwnError(1, 2)
            return {}

        def load_state_dict(self, state_dict):
            pass

    texts = []

    def body() -> None:
        with pytest.raises(dcp.CheckpointException) as found:
            dcp.save({"f": Fails()}, checkpoint_id=tmp_path)
        texts.append(str(found.value))
        if dist.get_rank() == 0:
            texts.append(str(pickle.loads(pickle.dumps(found.value))))

    on_ranks(body, world_size=2)
    assert len(texts) == 3 and len(set(texts)) == 1 and "OwnError: 1 and 2" in texts[0]
