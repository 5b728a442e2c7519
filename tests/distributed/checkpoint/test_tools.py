"""What can be asked of checkpoints on the disk, and done to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import disttrain as dt
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed.checkpoint import tools
from disttrain.distributed.checkpoint.files import folder
from disttrain.errors import ConfigError

pytestmark = pytest.mark.simulated


def save(where: Path, **values: object) -> str:
    dcp.save(values, checkpoint_id=where)
    return str(where)


def leftover(where: Path, num_bytes: int = 7) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    path = where / folder.shard_name(folder.new_save(), 0, 2)
    path.write_bytes(b"x" * num_bytes)
    return path


def test_checkpoints_are_found_two_folders_down(tmp_path):
    for where in (tmp_path / "a", tmp_path / "b" / "c", tmp_path / "d" / "e" / "f"):
        save(where, n=1)
    leftover(tmp_path / "unfinished")
    leftover(tmp_path)  # beside them: no checkpoint
    (tmp_path / "link").symlink_to(tmp_path / "d" / "e")
    found = [str(Path(p).relative_to(tmp_path)) for p in tools.find(str(tmp_path))]
    assert found == ["a", "b/c", "unfinished"]
    assert tools.find(str(tmp_path / "a")) == [str(tmp_path / "a")]
    with pytest.raises(ConfigError, match="is no folder"):
        tools.find(str(tmp_path / "nothing"))


def test_a_row_counts_what_there_is(tmp_path):
    path = save(tmp_path / "c", w=dt.ones(3), v=dt.ones(2), n=1)
    leftover(tmp_path / "c", 9)
    row = tools.summary(path)
    assert (row.world_size, row.tensors, row.objects, row.left_over) == (1, 2, 1, 9)
    assert row.num_bytes == sum(tools.read_manifest(path).files.values()) and not row.problem
    leftover(tmp_path / "u", 5)
    row = tools.summary(str(tmp_path / "u"))
    assert (row.left_over, row.world_size) == (5, 0) and "did not finish" in row.problem


def test_values_are_whole_and_keys_are_checked(tmp_path):
    path = save(tmp_path, m={"w": dt.arange(4.0)}, n=3)
    assert tools.values(path)["m"]["w"].tolist() == [0, 1, 2, 3]
    assert tools.values(path, ["n"]) == {"n": 3}
    with pytest.raises(ConfigError, match="has nothing under x, y"):
        tools.values(path, ["x", "y"])


def test_every_damage_is_told_once(tmp_path):
    path = save(tmp_path, w=dt.ones(3), v=dt.zeros(3))
    about, wrong = tools.verify(path)
    assert wrong == [] and about.world_size == 1
    (name,) = about.files
    data = bytearray((tmp_path / name).read_bytes())
    for at in (-1, -20):
        data[at] ^= 1
    (tmp_path / name).write_bytes(data)
    told = tools.verify(path)[1]
    assert len(told) == len(set(told)) and sum("tensor 'w'" in t for t in told) == 1
    (tmp_path / name).unlink()
    assert all("missing" in t or "No such file" in t for t in tools.verify(path)[1])


def test_two_checkpoints_are_compared_bit_by_bit(tmp_path):
    a = save(tmp_path / "a", w=dt.ones(4), n=1, same=dt.ones(1), x=1, kind=dt.ones(1))
    b = save(tmp_path / "b", w=dt.tensor([1.0, 1.5, 1.0, 0.0]), n=2, same=dt.ones(1),
             y=1, kind=1)  # fmt: skip
    found = tools.diff(a, b)
    assert (found.only_first, found.only_second, found.equal) == (["x"], ["y"], 1)
    assert found.changed == [
        "kind: a tensor in one, none in the other", "n: 1 and 2",
        "w: 2 of 4 elements differ, by 1 at most",
    ]  # fmt: skip
    assert tools.diff(a, b, ("kind", "n", "w", "x", "y")) == tools.Difference(equal=1)
    assert not tools.diff(a, a) and tools.diff(a, b)


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        ([1 << 60, 5], [(1 << 60) + 1, 5], "1 of 2 elements differ, by 1 at most"),
        ([-(1 << 63)], [(1 << 63) - 1], "1 of 1 elements differ, by 1.84e+19 at most"),
        ([0.0, 1.0], [-0.0, 1.0], "1 of 2 elements differ, by 0 at most"),
        ([True, False], [False, False], "1 of 2 elements differ, by 1 at most"),
        ([1 + 1j], [1 - 1j], "1 of 1 elements differ, by 2 at most"),
        ([[1.0]], [1.0], "[1, 1] of disttrain.float32 and [1] of disttrain.float32"),
    ],
)
def test_how_far_tensors_are_apart(tmp_path, x, y, told):
    a, b = (save(tmp_path / n, t=dt.tensor(v)) for n, v in (("a", x), ("b", y)))
    assert tools.diff(a, b).changed == [f"t: {told}"]


def test_tensors_are_cut_for_ranks_along_their_first_dimension():
    rows = tools.Cut(dt.arange(14).reshape(7, 2), 3)
    assert [(tuple(c.offsets), tuple(c.sizes)) for c in rows.__create_chunk_list__()] == [
        ((0, 0), (3, 2)), ((3, 0), (3, 2)), ((6, 0), (1, 2)),
    ]  # fmt: skip
    index = dcp.MetadataIndex("w", (6, 0))
    assert rows.__get_tensor_shard__(index).tolist() == [[12, 13]]
    assert tools.Cut(dt.ones(2), 5).cuts == [(0, 1), (1, 1)]
    assert tools.Cut(dt.ones(0, 3), 2).cuts == [(0, 0)]
    assert tools.Cut(dt.tensor(1.0), 2).__get_tensor_shard__(index).item() == 1.0


def test_a_checkpoint_is_written_again_for_other_ranks(tmp_path):
    path = save(tmp_path / "a", w=dt.arange(10.0), s=dt.tensor(2.0), e=dt.ones(0, 2), n=[1])
    about = tools.reshard(path, str(tmp_path / "b"), 3)
    assert about.world_size == 3 and len(about.files) == 3
    assert not tools.diff(path, str(tmp_path / "b"))
    with pytest.raises(ConfigError, match="0 ranks given"):
        tools.reshard(path, str(tmp_path / "c"), 0)
    with pytest.raises(ConfigError, match="holds a checkpoint already"):
        tools.reshard(path, str(tmp_path / "b"), 2)


def test_a_checkpoint_is_removed_with_its_folder_unless_something_else_is_in_it(tmp_path):
    for other in (False, True):
        where = tmp_path / str(other)
        path = save(where, n=1)
        leftover(where)
        if other:
            (where / "notes.txt").write_text("mine")
        tools.remove(path)
        assert where.exists() is other
    assert [p.name for p in where.iterdir()] == ["notes.txt"]


def test_what_killed_saves_have_left_is_collected(tmp_path):
    save(tmp_path / "a", n=1)
    gone = [leftover(tmp_path / "a", 3), leftover(tmp_path / "b" / "c", 4)]
    damaged = leftover(tmp_path / "d")
    (tmp_path / "d" / folder.MANIFEST).write_text("{}")
    told = [(str(gone[0]), 3), (str(gone[1]), 4)]
    assert tools.collect(str(tmp_path), dry=True) == told and gone[0].exists()
    assert tools.collect(str(tmp_path)) == told and not gone[0].exists()
    assert damaged.exists() and tools.values(str(tmp_path / "a")) == {"n": 1}


def test_values_are_shown_as_text_where_they_can_be(tmp_path):
    assert tools.readable(dt.serialize.packed.pack({"a": np.float64(1.5)})).startswith("{'a': ")
    assert tools.readable(b"junk") == "b'junk'"
