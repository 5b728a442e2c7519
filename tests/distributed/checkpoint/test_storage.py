"""The least that a storage of one's own needs: a checkpoint in a dict of this process."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from disttrain.errors import ConfigError
from disttrain.futures import Future

pytestmark = pytest.mark.simulated

KEPT: dict = {}


def done(value=None):
    future: Future = Future()
    future.set_result(value)
    return future


class Into(StorageWriter):
    """Keeps what is written under a name."""

    def reset(self, checkpoint_id=None):
        self.name, self.calls, self.data = checkpoint_id, ["reset"], {}

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        self.calls.append("set up")

    def prepare_local_plan(self, plan):
        self.calls.append("local")
        return plan

    def prepare_global_plan(self, plans):
        self.calls.append("global")
        return plans

    def write_data(self, plan, planner):
        self.calls.append("write")
        for item in plan.items:
            value = planner.resolve_data(item)
            self.data[item.index] = value.clone() if isinstance(value, dt.Tensor) else value
        return done([WriteResult(i.index, 0, None) for i in plan.items])

    def finish(self, metadata, results):
        self.calls.append("finish")
        KEPT[self.name] = metadata, self.data


class From(StorageReader):
    """Gives it back."""

    def reset(self, checkpoint_id=None):
        self.name = checkpoint_id

    def read_metadata(self, *args, **kwargs):
        return KEPT[self.name][0]

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        pass

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        for item in plan.items:
            value = KEPT[self.name][1][item.storage_index]
            if item.type is dcp.planner.LoadItemType.BYTE_IO:
                value.seek(0)
                planner.load_bytes(item, value)
            else:
                target = planner.resolve_tensor(item)
                target.copy_(value)
                planner.commit_tensor(item, target)
        return done()


def test_calls_come_in_their_order_and_values_come_back():
    writer = Into()
    dcp.save({"a": dt.ones(2), "n": 3}, storage_writer=writer, checkpoint_id="one")
    assert writer.calls == ["reset", "set up", "local", "global", "write", "finish"]
    target = {"a": dt.zeros(2), "n": 0}
    dcp.load(target, storage_reader=From(), checkpoint_id="one")
    assert target["a"].tolist() == [1.0, 1.0] and target["n"] == 3


def test_a_save_that_fails_is_abandoned_and_not_finished():
    class Fails(Into):
        def write_data(self, plan, planner):
            raise ConfigError("no room")

        def abandon(self):
            self.calls.append("abandon")

    writer = Fails()
    with pytest.raises(dcp.CheckpointException, match="no room"):
        dcp.save({"a": 1}, storage_writer=writer, checkpoint_id="two")
    assert writer.calls[-1] == "abandon" and "two" not in KEPT


def test_what_has_a_meaning_by_itself_need_not_be_said():
    assert Into().abandon() is None and Into().storage_meta() is None
    assert Into.validate_checkpoint_id("any") and From.validate_checkpoint_id("any")
    for kind in (StorageWriter, StorageReader):
        with pytest.raises(TypeError, match="abstract"):
            kind()
