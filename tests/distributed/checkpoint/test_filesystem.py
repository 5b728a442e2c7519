"""Writers and readers of folders: what is there when, what is removed, who sees what."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import disttrain as dt
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint.files import folder
from disttrain.distributed.checkpoint.filesystem import read_manifest
from disttrain.errors import ConfigError, SerializationError

pytestmark = pytest.mark.simulated


def shards(path: Path) -> list[str]:
    return sorted(p.name for p in path.glob("shard-*"))


def test_a_save_replaces_the_one_before_and_its_files(tmp_path):
    dcp.save({"a": dt.ones(2)}, checkpoint_id=tmp_path)
    before = shards(tmp_path)
    dcp.save({"a": dt.zeros(2), "n": 1}, checkpoint_id=tmp_path)
    assert len(shards(tmp_path)) == 1 and shards(tmp_path) != before
    assert shards(tmp_path) == list(read_manifest(str(tmp_path)).files)


def test_where_nothing_may_be_replaced_nothing_is(tmp_path):
    dcp.save({"a": 1}, checkpoint_id=tmp_path / "c")
    before = shards(tmp_path / "c")
    writer = dcp.FileSystemWriter(tmp_path / "c", overwrite=False)
    with pytest.raises(dcp.CheckpointException, match=r"already exists in .*overwrite=False"):
        dcp.save({"a": 2}, storage_writer=writer)
    assert shards(tmp_path / "c") == before
    writer = dcp.FileSystemWriter(tmp_path / "new", overwrite=False)
    dcp.save({"a": 2}, storage_writer=writer)


def test_a_file_for_each_value_where_it_is_asked_for(tmp_path):
    writer = dcp.FileSystemWriter(tmp_path, single_file_per_rank=False, sync_files=False)
    dcp.save({"a": dt.ones(2), "b": dt.zeros(3), "n": 1}, storage_writer=writer)
    names = shards(tmp_path)
    assert len(names) == 3 and all(n.endswith(f"-{k}.safetensors") for k, n in enumerate(names))
    target = {"a": dt.zeros(2), "b": dt.ones(3), "n": 0}
    dcp.load(target, checkpoint_id=tmp_path)
    assert target["a"].tolist() == [1.0, 1.0] and target["n"] == 1


def test_a_save_that_fails_leaves_no_folder_that_it_made(tmp_path):
    class Fails(dcp.FileSystemWriter):
        def finish(self, metadata, results):
            assert shards(Path(self.path))
            raise ConfigError("not now")

    for there in (False, True):
        where = tmp_path / str(there)
        if there:
            where.mkdir()
        with pytest.raises(dcp.CheckpointException, match="not now"):
            dcp.save({"a": dt.ones(1)}, storage_writer=Fails(where))
        assert where.exists() is there and not list(tmp_path.rglob("shard-*"))


def test_what_was_committed_is_not_taken_back(tmp_path):
    class Late(dcp.FileSystemWriter):
        def finish(self, metadata, results):
            super().finish(metadata, results)
            raise ConfigError("too late")

    with pytest.raises(dcp.CheckpointException, match="too late"):
        dcp.save({"a": 7}, storage_writer=Late(tmp_path / "c"))
    target = {"a": 0}
    dcp.load(target, checkpoint_id=tmp_path / "c")
    assert target == {"a": 7}


def test_leftovers_are_collected_unless_the_manifest_is_damaged(tmp_path):
    dcp.save({"a": 1}, checkpoint_id=tmp_path)
    left = tmp_path / folder.shard_name(folder.new_save(), 3, 4)
    left.write_bytes(b"x")
    dcp.save({"a": 2}, checkpoint_id=tmp_path)
    assert not left.exists() and len(shards(tmp_path)) == 1
    left.write_bytes(b"x")
    kept = shards(tmp_path)
    (tmp_path / folder.MANIFEST).write_text("{}")
    writer = dcp.FileSystemWriter(tmp_path)
    assert set(writer._named()) == set(kept)  # perhaps it can be mended
    assert dcp.FileSystemWriter(tmp_path / "nothing")._named() == {}


def test_one_writer_serves_several_saves(tmp_path):
    writer = dcp.FileSystemWriter(tmp_path / "a")
    assert writer.checkpoint_id == str(tmp_path / "a")
    assert writer.storage_meta().checkpoint_id == str(tmp_path / "a")
    for k in "ab":
        dcp.save({"k": k}, storage_writer=writer, checkpoint_id=tmp_path / k)
        assert writer.shards == [] and writer.path == str(tmp_path / k)
    assert writer.validate_checkpoint_id("a/b") and not writer.validate_checkpoint_id("s3://a/b")


def test_ranks_must_read_one_save(tmp_path):
    dcp.save({"a": 1}, checkpoint_id=tmp_path)
    reader = dcp.FileSystemReader(tmp_path)
    reader.read_metadata()
    plan = reader.prepare_local_plan(dcp.LoadPlan([]))
    assert reader.prepare_global_plan([plan, plan]) == [plan, plan]
    dcp.save({"a": 1}, checkpoint_id=tmp_path)
    reader.reset()
    reader.read_metadata()
    other = reader.prepare_local_plan(dcp.LoadPlan([]))
    with pytest.raises(
        SerializationError, match="rank 2 sees another checkpoint there than rank 0"
    ):
        reader.prepare_global_plan([plan, dataclasses.replace(plan), other])
    assert reader.validate_checkpoint_id(tmp_path) and reader.checkpoint_id == str(tmp_path)
    assert not reader.validate_checkpoint_id(tmp_path / "nothing")


def test_without_checks_damage_is_read(tmp_path):
    dcp.save({"a": dt.zeros(4, dtype=dt.uint8)}, checkpoint_id=tmp_path)
    path = tmp_path / shards(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for verify in (True, False):
        target = {"a": dt.ones(4, dtype=dt.uint8)}
        reader = dcp.FileSystemReader(tmp_path, verify=verify)
        if verify:
            with pytest.raises(dcp.CheckpointException, match="do not fit their checksum"):
                dcp.load(target, storage_reader=reader)
        else:
            dcp.load(target, storage_reader=reader)
            assert target["a"].tolist() == [0, 0, 0, 1]
