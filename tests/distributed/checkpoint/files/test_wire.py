"""Plans as bytes: what is packed comes out again, and nothing else is built."""

from __future__ import annotations

import json

import pytest

import disttrain as dt
from disttrain.distributed.checkpoint import metadata, planner
from disttrain.distributed.checkpoint.files import wire
from disttrain.distributed.checkpoint.state.flat import Index


def test_plain_values_and_containers_keep_their_kinds():
    value = {"a": [1, 2.5, None, True, "x"], ("t", 1): (dt.Size([2, 3]), dt.float16), 3: [Index(4)]}
    found = wire.parse(wire.dump(value))
    assert found == value
    assert [type(x) for x in found[("t", 1)]] == [dt.Size, type(dt.float16)]
    assert type(found[3][0]) is Index and type(found["a"][3]) is bool


def test_classes_of_plans():
    index = metadata.MetadataIndex("weight", dt.Size([0, 2]), 1)
    item = planner.WriteItem(index, planner.WriteItemType.SHARD)
    plan = planner.SavePlan([item])
    found = wire.parse(wire.dump(plan))
    assert type(found) is planner.SavePlan and found.items == [item]
    assert found.items[0].type is planner.WriteItemType.SHARD


def test_only_known_names_are_built():
    for tag in (["class", "Popen", "ls"], ["enum", "Signals", "SIGKILL"], ["dtype", "object"]):
        with pytest.raises(KeyError):
            wire.parse(json.dumps(tag).encode())


def test_tensors_travel_packed():
    found = wire.parse(wire.dump({"extra": dt.arange(3.0)}))
    assert found["extra"].tolist() == [0.0, 1.0, 2.0]
