"""The folder of a checkpoint: names, locks, the one step that changes it, what is left over."""

from __future__ import annotations

import os

import pytest

from disttrain.distributed.checkpoint.files import folder
from disttrain.distributed.checkpoint.files.folder import MANIFEST, Shard
from disttrain.errors import ConfigError, SerializationError
from disttrain.serialize.disk import FOREIGN_AGE

pytestmark = pytest.mark.simulated


def named(rank=0, number=None, save=None):
    return folder.shard_name(save or folder.new_save(), rank, 4, number)


def test_names_of_shards_are_told_from_paths_and_other_files():
    name = named(3, 12)
    assert name.endswith("-00003-of-00004-12.safetensors")
    assert folder.check_shard_name(name, "here") == name
    for wrong in ("../" + name, name + "x", name + "\n", "manifest.json", "", None, 3):
        with pytest.raises(SerializationError, match=r"here: .* is no name of a shard"):
            folder.check_shard_name(wrong, "here")
    assert folder.new_save() != folder.new_save() and len(folder.new_save()) == 24


def test_folders_are_made_once(tmp_path):
    where = str(tmp_path / "a" / "b")
    assert folder.make(where) is True and folder.make(where) is False
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="file"):
        folder.make(str(tmp_path / "file" / "x"))


def test_a_shard_is_written_in_places_and_removed_where_the_save_failed(tmp_path):
    for remove in (False, True):
        shard = Shard(str(tmp_path), named(), 6)
        shard.write(b"def", 3)
        shard.write(memoryview(b"abc"), 0)
        shard.sync()
        assert (tmp_path / shard.name).read_bytes() == b"abcdef"
        shard.close(remove)
        shard.close(remove=True)  # it is over: nothing happens
        assert (tmp_path / shard.name).exists() is not remove


def test_a_shard_never_writes_into_a_file_that_is_there(tmp_path):
    name = named()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="File exists"):
        Shard(str(tmp_path), name, 0)
    assert not (tmp_path / "elsewhere").exists()


def test_a_manifest_changes_in_one_step(tmp_path, monkeypatch):
    folder.commit(str(tmp_path), folder.new_save(), b"one")
    assert folder.read_manifest(str(tmp_path)) == (MANIFEST, b"one")

    def fails(*names):
        assert (tmp_path / MANIFEST).read_bytes() == b"one"  # until the very end
        raise OSError(5, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(Exception, match="no"):
            folder.commit(str(tmp_path), folder.new_save(), b"two")
    assert [p.name for p in tmp_path.iterdir()] == [MANIFEST]
    folder.commit(str(tmp_path), folder.new_save(), b"two")
    assert folder.read_manifest(str(tmp_path)) == (MANIFEST, b"two")


def test_only_files_of_saves_are_left_over(tmp_path):
    save = folder.new_save()
    names = [named(0), named(1, 3), f".manifest-{save}.draft"]
    for name in (*names, MANIFEST, "model.safetensors", "notes", ".manifest-x.draft"):
        (tmp_path / name).write_text("")
    assert folder.leftovers(str(tmp_path), ()) == sorted(names)
    assert folder.leftovers(str(tmp_path), {names[0]: 1}) == sorted(names[1:])
    assert folder.leftovers(str(tmp_path / "nothing"), ()) == []


def test_what_is_being_written_stays(tmp_path):
    running = Shard(str(tmp_path), named(), 5)
    (tmp_path / (left := named(1))).write_bytes(b"abc")
    names = folder.leftovers(str(tmp_path), ())
    assert folder.collect(str(tmp_path), names, dry=True) == [(left, 3)]
    assert (tmp_path / left).exists()
    assert folder.collect(str(tmp_path), [*names, named(2)]) == [(left, 3)]
    running.close(remove=False)
    assert folder.collect(str(tmp_path), [running.name]) == [(running.name, 5)]
    assert not list(tmp_path.iterdir())


def test_what_another_host_may_be_writing_stays_until_it_is_old(tmp_path):
    name = named(save="f" * 8 + "0" * 16)
    path = tmp_path / name
    path.write_bytes(b"x")
    assert folder.collect(str(tmp_path), [name]) == []
    old = path.stat().st_mtime - FOREIGN_AGE - 10
    os.utime(path, (old, old))
    assert folder.collect(str(tmp_path), [name]) == [(name, 1)]


def test_links_and_pipes_of_such_names_are_left_alone(tmp_path):
    link, pipe = named(0), named(1)
    (tmp_path / "target").write_text("mine")
    (tmp_path / link).symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / pipe)
    assert folder.collect(str(tmp_path), [link, pipe]) == []
    assert (tmp_path / "target").read_text() == "mine"


def test_where_there_is_no_checkpoint_that_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / named()).write_text("")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / ".metadata").write_text("")
    for name, why in (
        ("nothing", "it does not exist"), ("file", "it is no folder"), ("empty", "there is none"),
        ("begun", "a save that did not finish"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=why):
            folder.read_manifest(str(tmp_path / name))
    assert folder.of_pytorch(str(tmp_path / "empty")) == ""
    assert "read it by FileSystemReader" in folder.of_pytorch(str(tmp_path / "torch"))
    assert folder.read_manifest(str(tmp_path / "torch")) == (folder.METADATA, b"")
    (tmp_path / "empty" / MANIFEST).write_text("xx")
    monkeypatch.setattr(folder, "MANIFEST_CAP", 1)
    with pytest.raises(SerializationError, match="2 bytes; at most 1 are read"):
        folder.read_manifest(str(tmp_path / "empty"))


def test_a_shard_that_is_missing_or_a_link_is_not_opened(tmp_path):
    name = named()
    with pytest.raises(SerializationError, match="is missing, and the manifest names it"):
        folder.open_shard(str(tmp_path), name)
    (tmp_path / "other").write_text("")
    (tmp_path / name).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        folder.open_shard(str(tmp_path), name)
