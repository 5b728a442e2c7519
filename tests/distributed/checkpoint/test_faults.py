"""What can be wrong with a disk, a file or a rank: one clear error on all ranks, nothing lost."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import random
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.checkpoint.files import folder
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor import Shard, distribute_tensor
from disttrain.errors import ConfigError, DisttrainError, PeerFailed
from injections import checkpoint_kills
from support.ranks import fork_ranks


def spread(value: float) -> dict:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {"w": distribute_tensor(dt.full((8, 4), value), mesh, [Shard(0)]), "n": value}


def save(where: Path, value: float = 1.0, ranks: int = 2) -> None:
    def body() -> None:
        dist.init_process_group()
        dcp.save(spread(value), checkpoint_id=where)

    simulate(body, ranks)


def value_in(where: Path) -> float:
    got = tools.values(str(where))
    assert (got["w"] == got["n"]).all()
    return got["n"]


def failures(attempt, ranks: int = 2) -> str:
    """The one text that ``attempt`` raises on all ranks."""

    def body() -> str:
        dist.init_process_group()
        with pytest.raises(dcp.CheckpointException) as caught:
            attempt()
        assert isinstance(caught.value, DisttrainError) and caught.value.failures
        return str(caught.value)

    said = simulate(body, ranks).results
    assert len(set(said)) == 1
    return said[0]


# --- saving -------------------------------------------------------------------------------------


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("function", "code"),
    [
        *itertools.product(["pwrite", "fsync"], [errno.ENOSPC, errno.EIO, errno.EDQUOT]),
        ("posix_fallocate", errno.ENOSPC),
    ],
)
def test_a_disk_that_fails_one_rank_fails_all(tmp_path, monkeypatch, function, code):
    save(tmp_path, 1.0)
    before = sorted(p.name for p in tmp_path.iterdir())
    plain = getattr(os, function)

    def failing(fd, *more):
        if context.current().rank == 1:
            raise OSError(code, os.strerror(code))
        return plain(fd, *more)

    monkeypatch.setattr(os, function, failing)
    said = failures(lambda: dcp.save(spread(2.0), checkpoint_id=tmp_path))
    monkeypatch.undo()
    assert "rank 1" in said and "rank 0" not in said and os.strerror(code) in said
    if code == errno.ENOSPC:
        assert "bytes are needed" in said and "are free" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert value_in(tmp_path) == 1.0


def test_a_file_that_may_not_grow(tmp_path):
    """The system's own limit, on a real process."""

    def body(rank: int) -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.save({"w": dt.ones(100_000)}, checkpoint_id=tmp_path / "c")
        assert not (tmp_path / "c").exists()
        return str(caught.value)

    (outcome,) = fork_ranks(1, body)
    assert "File too large" in outcome.value


@pytest.mark.simulated
@pytest.mark.parametrize("function", ["open", "replace", "fsync"])
def test_a_commit_that_fails_leaves_what_there_was(tmp_path, monkeypatch, function):
    save(tmp_path, 1.0)
    plain = getattr(os, function)

    def failing(first, *more, **named):
        about = first if isinstance(first, str) else os.readlink(f"/proc/self/fd/{first}")
        if "manifest-" in about and not (function == "open" and not more[0] & os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return plain(first, *more, **named)

    monkeypatch.setattr(os, function, failing)
    said = failures(lambda: dcp.save(spread(2.0), checkpoint_id=tmp_path))
    monkeypatch.undo()
    assert "Read-only file system" in said and "rank 0" in said
    assert value_in(tmp_path) == 1.0 and len(list(tmp_path.iterdir())) == 3


@pytest.mark.simulated
def test_a_commit_that_is_done_is_not_taken_back(tmp_path, monkeypatch):
    """The error comes after the rename: the new checkpoint stands, and is whole."""
    save(tmp_path, 1.0)
    calls = []
    plain = folder.sync_folder

    def failing(path):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        plain(path)

    monkeypatch.setattr(folder, "sync_folder", failing)
    failures(lambda: dcp.save(spread(2.0), checkpoint_id=tmp_path))
    assert value_in(tmp_path) == 2.0


@pytest.mark.simulated
def test_a_value_that_cannot_be_saved_is_named(tmp_path):
    save(tmp_path, 1.0)

    def attempt() -> None:
        more = {"bad": lambda: 0} if dist.get_rank() == 0 else {}
        dcp.save(spread(2.0) | more, checkpoint_id=tmp_path)

    assert "cannot be found again by its name" in failures(attempt)
    assert value_in(tmp_path) == 1.0 and len(list(tmp_path.iterdir())) == 3


class Troubled:
    """Has no state to give, or takes none, on one rank."""

    def __init__(self, gives: bool) -> None:
        self.gives = gives

    def state_dict(self) -> dict:
        if not self.gives and dist.get_rank() == 1:
            raise KeyError("no state here")
        return {"x": dt.ones(2)}

    def load_state_dict(self, state: dict) -> None:
        if self.gives and dist.get_rank() == 1:
            raise ValueError("not my state")


@pytest.mark.simulated
def test_an_object_that_fails_on_one_rank_fails_all(tmp_path):
    bad = Troubled(gives=False)
    assert "no state here" in failures(lambda: dcp.save({"a": bad}, checkpoint_id=tmp_path))
    late = failures(lambda: dcp.async_save({"a": bad}, checkpoint_id=tmp_path).result())
    assert "no state here" in late and "rank 1" in late
    good = Troubled(gives=True)
    dcp.save({"a": good}, checkpoint_id=tmp_path)
    assert "no state here" in failures(lambda: dcp.load({"a": bad}, checkpoint_id=tmp_path))
    assert "not my state" in failures(lambda: dcp.load({"a": good}, checkpoint_id=tmp_path))


@pytest.mark.simulated
def test_a_plan_that_cannot_be_sent_fails_all(tmp_path):
    class Odd(dcp.DefaultSavePlanner):
        def create_local_plan(self):
            plan = super().create_local_plan()
            odd = (lambda: 0) if dist.get_rank() == 1 else None
            return dataclasses.replace(plan, planner_data=odd)

    said = failures(lambda: dcp.save({"a": dt.ones(1)}, checkpoint_id=tmp_path, planner=Odd()))
    assert "cannot be found again by its name" in said and "rank 1" in said


@pytest.mark.simulated
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_in_the_middle(tmp_path, monkeypatch, victim):
    save(tmp_path, 1.0, ranks=3)
    errors: list[BaseException] = []
    plain = os.pwrite

    def deadly(fd, *more):
        if context.current().rank == victim and "shard-" in os.readlink(f"/proc/self/fd/{fd}"):
            raise SystemExit("gone")
        return plain(fd, *more)

    def body() -> None:
        dist.init_process_group()
        try:
            dcp.save(spread(2.0), checkpoint_id=tmp_path)
        except Exception as error:
            errors.append(error)

    monkeypatch.setattr(os, "pwrite", deadly)
    with pytest.raises(DisttrainError):
        simulate(body, 3)
    monkeypatch.undo()
    assert len(errors) == 2 and all(isinstance(e, PeerFailed) for e in errors)
    assert all(e.rank == victim for e in errors)
    assert value_in(tmp_path) == 1.0
    assert len(list(tmp_path.iterdir())) == 4  # the partial files of all three are gone


def test_ranks_are_killed_and_nothing_is_lost(tmp_path):
    assert all(checkpoint_kills.run(3, 5, tmp_path).values())


# --- loading ------------------------------------------------------------------------------------


def load(where: Path) -> None:
    target = spread(0.0)
    dcp.load(target, checkpoint_id=where)


def shard_of(where: Path, rank: int) -> Path:
    return next(where.glob(f"shard-*-{rank:05d}-of-*"))


@pytest.mark.simulated
def test_a_missing_a_short_and_a_foreign_shard(tmp_path):
    save(tmp_path / "a", 1.0)
    save(tmp_path / "b", 2.0)
    for name, spoil, said in (
        ("missing", lambda p: p.unlink(), "is missing"),
        ("short", lambda p: os.truncate(p, p.stat().st_size - 5), "cut short"),
        ("empty", lambda p: os.truncate(p, 0), "cut short"),
        ("foreign", lambda p: shutil.copy(shard_of(tmp_path / "b", 1), p), "checksum"),
    ):
        where = tmp_path / name
        shutil.copytree(tmp_path / "a", where)
        spoil(shard_of(where, 1))
        text = failures(lambda where=where: load(where))
        assert said in text and shard_of(tmp_path / "a", 1).name in text
    assert value_in(tmp_path / "a") == 1.0


@pytest.mark.simulated
def test_a_checkpoint_of_another_model(tmp_path):
    save(tmp_path)

    def attempt() -> None:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        other = {"w": distribute_tensor(dt.zeros(5, 4), mesh, [Shard(0)]), "v": dt.ones(2)}
        dcp.load(other, checkpoint_id=tmp_path)

    text = failures(attempt, ranks=3)
    assert "Missing key in checkpoint state_dict: v" in text and "Size mismatch" in text


@pytest.mark.simulated
def test_no_checkpoint_and_one_that_did_not_finish(tmp_path):
    assert "does not exist" in failures(lambda: load(tmp_path / "nowhere"))
    (tmp_path / folder.shard_name(folder.new_save(), 0, 1)).write_bytes(b"x")
    assert "did not finish" in failures(lambda: load(tmp_path))


@pytest.mark.simulated
def test_any_flipped_bit_is_found(tmp_path):
    """In any byte of any rank's file or of the manifest: nothing is loaded, and a file is named."""
    save(tmp_path)
    chance = random.Random(1)
    about = tools.read_manifest(str(tmp_path))
    for k in range(120):
        path = tmp_path / (folder.MANIFEST if k % 3 == 0 else chance.choice(list(about.files)))
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        whole = path.read_bytes()
        path.write_bytes(data)
        with pytest.raises(DisttrainError, match=path.name):
            tools.values(str(tmp_path))
        path.write_bytes(whole)
    assert value_in(tmp_path) == 1.0


def body_of(where: Path) -> dict:
    return folder_json(where)["body"]


def folder_json(where: Path) -> dict:
    return json.loads((where / folder.MANIFEST).read_text())


@pytest.mark.simulated
def test_links_out_of_the_folder_are_not_followed(tmp_path):
    save(tmp_path / "a")
    shard = shard_of(tmp_path / "a", 0)
    shutil.move(shard, tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises((DisttrainError, OSError)):
        tools.values(str(tmp_path / "a"))


@pytest.mark.simulated
def test_ranks_that_see_different_folders_are_told(tmp_path):
    for k in range(2):
        save(tmp_path / str(k), float(k))

    said = failures(lambda: load(tmp_path / str(dist.get_rank())))
    assert "rank 1 sees another checkpoint" in said


@pytest.mark.simulated
def test_a_folder_that_is_not_shared_is_told(tmp_path):
    def attempt() -> None:
        where = tmp_path / str(dist.get_rank())
        dcp.save(spread(1.0), storage_writer=dcp.FileSystemWriter(where))

    assert "share" in failures(attempt)
    assert not list(tmp_path.rglob(folder.MANIFEST))


@pytest.mark.simulated
def test_errors_know_their_kind_on_every_rank(tmp_path):
    def body() -> None:
        dist.init_process_group()
        with pytest.raises(dcp.CheckpointException) as caught:
            dcp.load({"q": np.zeros(1)}, checkpoint_id=tmp_path)
        assert {type(e) for e, _ in caught.value.failures.values()} == {ConfigError}

    simulate(body, 2)
