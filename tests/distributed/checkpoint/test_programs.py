"""Checkpoints as programs for PyTorch use them: planners, writers and stagers of their own."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import serialize
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import planner_helpers
from disttrain.distributed.checkpoint.default_planner import flatten_state_dict
from disttrain.distributed.checkpoint.planner import WriteItemType

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
