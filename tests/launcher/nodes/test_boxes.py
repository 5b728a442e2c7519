"""The report of the black boxes of all nodes: what is told, what is kept, and what is refused."""

from __future__ import annotations

import zlib

import pytest

from disttrain.comm.job.blackbox import MARK, Box
from disttrain_launcher.nodes import boxes

pytestmark = pytest.mark.simulated


def packed(first: int, code: int = 0, ranks: int = 1) -> bytes:
    box = Box.create(ranks, {"host": f"h{first}", "generation": 1}, first)
    for rank in range(first, first + ranks):
        recorder = box.recorder(rank)
        group = recorder.group("world", range(4))
        text = recorder.text("all_reduce(float32[3], op=SUM) at train.py:7 in step")
        recorder.begin(1, MARK.pack(3, text, group, -1, 0, 0, 0, 0))
        box.ended(rank, code)
    data = zlib.compress(bytes(box.buffer))
    box.close()
    return data


def test_each_rank_is_told_with_its_node_its_end_and_its_line():
    lines = boxes.told([(0, packed(0, 1)), (1, packed(1, 137))], None)
    assert lines[0] == "where the ranks of all 2 nodes stood (black boxes):"
    assert "node 0 (h0): rank 0, step 0, exit code 1: all_reduce" in lines[1]
    assert "node 1 (h1): rank 1, step 0, signal 9: all_reduce" in lines[2]
    assert all("at train.py:7" in line and "under way" in line for line in lines[1:])


def test_boxes_are_kept_beside_those_that_are_there(tmp_path):
    there = tmp_path / "node_0" / "attempt_0"
    there.mkdir(parents=True)
    (there / "blackbox").write_bytes(b"its own")
    lines = boxes.told([(0, packed(0)), (1, packed(1))], str(tmp_path))
    assert f"`disttrain blackbox {tmp_path}` shows them" in lines[0]
    assert (there / "blackbox").read_bytes() == b"its own"
    kept = tmp_path / "node_1" / "attempt_0" / "blackbox"
    assert kept.stat().st_size == len(zlib.decompress(packed(1)))
    assert kept.stat().st_mode & 0o777 == 0o600


def test_what_is_no_box_is_said_and_a_link_is_not_followed(tmp_path):
    bomb = zlib.compress(bytes(8 << 20))
    whole = packed(2)
    lines = boxes.told([(0, b"junk"), (1, bomb), (2, whole), (3, whole[:-20])], str(tmp_path))
    bad = [f"  node {place}: its black box cannot be read" for place in (0, 1, 3)]
    assert [line for line in lines if "cannot be read" in line] == bad
    assert boxes.told([], None) == [] and boxes.told([(0, b"junk")], None) == []
    target = tmp_path / "target"
    folder = tmp_path / "node_5" / "attempt_0"
    folder.mkdir(parents=True)
    (folder / "blackbox").symlink_to(target)
    boxes.told([(5, packed(5))], str(tmp_path))
    assert not target.exists()


def test_of_very_many_ranks_some_are_told():
    lines = boxes.told([(n, packed(50 * n, ranks=50)) for n in range(2)], None)
    assert len(lines) == 66 and lines[-1] == "  and 36 more"
