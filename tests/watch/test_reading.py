"""A black box read while it is written, cut, damaged, or gone round."""

from __future__ import annotations

import os
import struct

import pytest

from disttrain.comm.calls.header import DTYPES, OPS
from disttrain.comm.job import blackbox as at
from disttrain.comm.job.blackbox import MARK, Box, runs
from disttrain.errors import CommError
from disttrain.watch import reading
from disttrain.watch.reading import (
    BROKEN_OFF,
    ENDED,
    FAILED,
    UNDER_WAY,
    Follower,
    Operation,
    Words,
    broken_off,
    numbers,
    read_all,
    read_rank,
)

VERB = OPS.index("all_reduce")
FLOAT = next(i for i, kind in enumerate(DTYPES) if kind.name == "float32")


@pytest.fixture
def box():
    made = Box.create(2, {"job": "j"}, first=3)
    yield made
    made.close()


def _mark(mine, text="", op=VERB, dtype=FLOAT, peer=-1, group="world"):
    number = mine.text(text) if text else 0
    return MARK.pack(10, number, mine.group(group, range(4)), peer, op, dtype, 1, 1)


def _op(number, seq, ended, group="world"):
    return Operation(number, 10 * number, ended, seq, "barrier", 0, "", group, -1, "barrier()")


def test_an_operation_without_a_text_is_told_by_what_it_moves(box):
    mine = box.recorder(3)
    mine.end(mine.begin(1, _mark(mine, peer=2)))
    mine.end(mine.begin(2, _mark(mine, op=len(OPS), dtype=len(DTYPES))))  # of a newer version
    known, unknown = read_rank(box, 3).operations
    assert (known.text, known.peer) == ("all_reduce(float32[10])", 2)
    assert (unknown.verb, unknown.dtype, unknown.text) == ("?", "", "?([10])")


def test_records_cut_in_the_middle_are_left_out(box):
    mine = box.recorder(3)
    mark = _mark(mine, "all_reduce")
    for seq in (1, 2, 3):
        mine.end(mine.begin(seq, mark))
    place = box.at(3) + at.RECORDS_AT + 2 * at.RECORD_BYTES
    struct.pack_into("<Q", box.buffer, place, 777)  # its first word alone was written
    assert [op.seq for op in read_rank(box, 3).operations] == [1, 3]


def test_only_the_newest_are_kept_in_their_order(box):
    mine = box.recorder(4)
    mark = _mark(mine, "all_reduce")
    for seq in range(1, at.NUM_RECORDS + 10):
        mine.end(mine.begin(seq, mark))
    last = at.NUM_RECORDS + 9
    assert [op.seq for op in read_rank(box, 4, 3).operations] == [last - 2, last - 1, last]
    assert len(read_rank(box, 4).operations) == reading.SHOWN
    assert read_rank(box, 4, 0).operations == []
    assert [r.rank for r in read_all(box)] == list(reading.each(box)) == [3, 4]
    assert reading.about(box) == {"job": "j"}


def test_a_text_whose_place_was_taken_is_not_told_as_another_one(box):
    mine = box.recorder(3)
    mine.end(mine.begin(1, _mark(mine, "first")))
    for i in range(at.NUM_TEXTS):
        mine.text(f"later {i}")
    for i in range(at.NUM_GROUPS):
        mine.group(f"group of {i}", [i])
    (op,) = read_rank(box, 3).operations
    assert op.text == "all_reduce(float32[10])" and op.group == "group 1"
    assert len(read_rank(box, 3).groups) == at.NUM_GROUPS


def test_what_would_move_the_cursor_of_a_terminal_is_not_told(box):
    mine = box.recorder(3)
    mine.end(mine.begin(1, _mark(mine, "a\x1b[2Jb")))
    mine.say("one\x07\ntwo")
    there = read_rank(box, 3)
    assert there.operations[0].text == "a?[2Jb" and there.said == "one?\ntwo"


def test_collectives_that_others_of_their_group_have_left_behind_were_broken_off():
    ops = [_op(1, 1, 0), _op(2, 0, 0), _op(3, 1, 0, "other"), _op(4, 2, -9), _op(5, 3, 9)]
    states = [op.state for op in broken_off([*ops, _op(6, 4, 0)])]
    assert states == [BROKEN_OFF, UNDER_WAY, UNDER_WAY, FAILED, ENDED, UNDER_WAY]
    # A failed one tells nothing of the group's order.
    assert [op.state for op in broken_off([_op(1, 1, 0), _op(2, 2, -9)])] == [UNDER_WAY, FAILED]


def test_a_follower_waits_for_what_is_under_way_but_not_for_ever(box):
    mine, follower = box.recorder(3), Follower(box, 3)
    mark = _mark(mine, "all_reduce")
    assert follower.new() == ([], 0) and follower.newest() == 0
    open_one = mine.begin(1, mark)
    mine.end(mine.begin(2, mark))
    assert follower.new() == ([], 0)
    mine.end(open_one)
    assert [op.seq for op in follower.new(1)[0]] == [1]
    assert [op.seq for op in follower.new()[0]] == [2]
    mine.begin(3, mark)  # will never end
    for seq in range(4, 4 + reading.SHOWN):
        assert follower.new() == ([], 0)
        mine.end(mine.begin(seq, mark))
    assert [op.seq for op in follower.new()[0]] == list(range(3, 4 + reading.SHOWN))


def test_members_are_read_as_they_were_written():
    for ranks in ([0], [0, 1, 2, 3], [0, 1, 2, 3, 8, 10, 12, 14], [5, 3, 4], [7, 7], []):
        assert numbers(runs(ranks)) == tuple(ranks)
    for damaged in ("1-x", "-", "1-5:0", "0-99999999999", ",", "1-5:", "x"):
        assert numbers(damaged) in ((), (1, 2, 3, 4, 5))
    assert numbers("0-99999999999") == () and numbers("1-5:0") == ()


def test_times_of_waiting_and_of_life(box):
    words = Words(1, 50, 0, 70, 0, waited=100, waits_since=40, ended=0, ended_at=0, stacks_fd=0)
    assert words.waited_by(60) == 120 and words.waited_by(30) == 100
    rank = reading.Rank(0, words, "", {}, [_op(1, 1, -90)])
    assert rank.alive_at == 90 and rank.last.number == 1
    assert reading.Rank(0, words, "", {}, []).alive_at == 70
    assert reading.Rank(0, words, "", {}, []).last is None


def test_files_that_are_no_boxes_are_refused_and_closed(tmp_path):
    path = tmp_path / "blackbox"
    open_ones = len(os.listdir("/proc/self/fd"))
    for content, why in ((b"", "cut short"), (b"x" * at.PAGE, "none, or was cut short")):
        path.write_bytes(content)
        with pytest.raises(CommError, match=why):
            reading.opened(str(path))
    assert len(os.listdir("/proc/self/fd")) == open_ones
