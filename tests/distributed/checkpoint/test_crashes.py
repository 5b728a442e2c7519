"""Whatever stops a save, at whatever moment: the checkpoint there was, or the new one, and no mix.

Every operation on a file is taken as the last one: of the process, of one rank, of the machine.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.checkpoint.files import folder
from disttrain.errors import DisttrainError
from support.disk_log import Stopped, after_power_cut, watched

pytestmark = pytest.mark.simulated


def save(value: float, where: Path, ranks: int = 2) -> None:
    def body() -> None:
        dist.init_process_group()
        mine = range(dist.get_rank(), 4, ranks)  # so that every rank has a file to write
        state = {f"t{k}": dt.full((3,), value + k) for k in mine} | {"value": value}
        dcp.save(state, checkpoint_id=where)

    simulate(body, ranks)


def found(where: Path) -> float:
    """The one value that all of the checkpoint is made of."""
    got = tools.values(str(where))
    for k in range(4):
        assert got[f"t{k}"].tolist() == [got["value"] + k] * 3
    return got["value"]


def nothing_but_the_checkpoint(where: Path) -> None:
    about = tools.read_manifest(str(where))
    assert sorted(p.name for p in where.iterdir()) == sorted([*about.files, folder.MANIFEST])


def stopped_save(where: Path, stop_at: int | None, dies=None) -> int:
    """Save 2.0 up to an operation; how many there were."""
    with watched(where, stop_at, dies) as log:
        try:
            save(2.0, where)
        except (DisttrainError, Stopped):
            assert stop_at is not None
    return len(log.entries)


@pytest.mark.parametrize("before", [None, 1.0], ids=["a new folder", "over another"])
def test_a_process_may_end_at_any_operation(tmp_path, before):
    if before is not None:
        save(before, tmp_path / "before")

    def prepare(name: str) -> Path:
        if before is not None:
            shutil.copytree(tmp_path / "before", tmp_path / name)
        return tmp_path / name

    operations = stopped_save(prepare("counted"), None)
    assert operations > 15
    seen = set()
    for k in range(operations):
        where = prepare(str(k))
        stopped_save(where, k)
        if before is None and not (where / folder.MANIFEST).exists():
            seen.add(None)  # invisible
            with pytest.raises(DisttrainError):
                tools.read_manifest(str(where))
        else:
            seen.add(found(where))
        save(3.0, where)
        assert found(where) == 3.0
        nothing_but_the_checkpoint(where)  # what was left over is gone
    assert seen == {before, 2.0}


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_may_end_at_any_operation(tmp_path, rank):
    """The others get an error, take away what they can, and could go on."""

    def dies() -> bool:
        return context.current().rank == rank

    save(1.0, tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "counted")
    for k in range(stopped_save(tmp_path / "counted", None)):
        where = tmp_path / str(k)
        shutil.copytree(tmp_path / "before", where)
        stopped_save(where, k, dies)
        assert found(where) in (1.0, 2.0)
        save(3.0, where)
        assert found(where) == 3.0
        nothing_but_the_checkpoint(where)


@pytest.mark.parametrize("contents", [False, True], ids=["contents lost", "contents kept"])
@pytest.mark.parametrize("names", ["none", "all", "move", "remove"])
def test_the_power_may_go_at_any_operation(tmp_path, contents, names):
    where = tmp_path / "c"
    save(1.0, where)
    start = {p.name: p.read_bytes() for p in where.iterdir()}
    with watched(where) as log:
        save(2.0, where)
    values = []
    for k in range(len(log.entries) + 1):
        after = tmp_path / f"{k}"
        after_power_cut(start, log.entries[:k], after, contents, names)
        values.append(found(after))
    assert values[0] == 1.0 and set(values) == {1.0, 2.0}
    assert values == sorted(values)  # once it is new it stays new
    assert values[-1] == 2.0  # when the save has returned, no power cut takes it away
