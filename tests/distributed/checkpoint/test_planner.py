"""Plans as data, and which calls a planner of one's own must have."""

from __future__ import annotations

import dataclasses

import pytest

import disttrain as dt
from disttrain.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from disttrain.distributed.checkpoint.planner import (
    BytesIOWriteData,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    ("sizes", "kind", "num_bytes"),
    [((2, 3), dt.float32, 24), ((), dt.int64, 8), ((0, 4), dt.float16, 0), ((5,), dt.bool, 5)],
)
def test_bytes_of_a_chunk_whatever_the_whole_has(sizes, kind, num_bytes):
    chunk = ChunkStorageMetadata(dt.Size((0,) * len(sizes)), dt.Size(sizes))
    data = TensorWriteData(chunk, TensorProperties(kind), dt.Size((100,) * len(sizes)))
    item = WriteItem(MetadataIndex("w"), WriteItemType.SHARD, tensor_data=data)
    assert item.tensor_storage_size() == num_bytes


def test_values_that_are_no_tensors_have_no_such_size():
    item = WriteItem(MetadataIndex("n"), WriteItemType.BYTE_IO, BytesIOWriteData(9))
    assert item.tensor_storage_size() is None


def test_plans_of_a_save_do_not_change_under_who_has_them():
    plan = SavePlan([])
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.items = [1]
    assert plan.usable and dataclasses.replace(plan, storage_data=3).storage_data == 3


def test_a_planner_has_every_call_or_is_none():
    class Half(LoadPlanner):
        def create_local_plan(self):
            return None

    for kind in (SavePlanner, LoadPlanner, Half):
        with pytest.raises(TypeError, match="abstract"):
            kind()
    needed = {"set_up_planner", "create_local_plan", "create_global_plan"}
    assert needed < SavePlanner.__abstractmethods__ & LoadPlanner.__abstractmethods__
    assert "resolve_bytes" not in LoadPlanner.__abstractmethods__
    assert LoadPlanner.resolve_bytes(None, None).getvalue() == b""
