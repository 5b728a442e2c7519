"""The black box as a rank writes it: what it keeps, how it wraps, who may write, bad files."""

from __future__ import annotations

import os
import signal
import struct

import numpy as np
import pytest

from disttrain import context
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job import blackbox
from disttrain.comm.job.blackbox import MARK, NUM_RECORDS, NUM_TEXTS, Box, Recorder
from disttrain.comm.job.segment import Segment
from disttrain.comm.transports import shm
from disttrain.errors import CollectiveMismatch, CommError
from disttrain.watch.reading import BROKEN_OFF, FAILED, UNDER_WAY, Follower, numbers, read_rank
from support.ranks import run_ranks


@pytest.fixture
def box():
    made = Box.create(2, {"job": "j"}, first=4)
    yield made
    made.close()


def _mark(mine: Recorder, text: str, group: str = "world") -> bytes:
    return MARK.pack(10, mine.text(text), mine.group(group, range(4)), -1, 2, 11, 1, 1)


def test_operations_are_read_as_they_were_written(box):
    mine = box.recorder(5)
    mark = _mark(mine, "all_reduce(float32[10]) at train.py:3")
    mine.end(mine.begin(1, mark))
    mine.label = mine.text("bucket 0")
    mine.begin(2, mark)
    mine.steps.add(64)
    mine.say("waits for rank 4")
    there = read_rank(box, 5)
    first, second = there.operations
    assert (first.verb, first.dtype, first.numel, first.group) == (
        "all_reduce", "float32", 10, "world",
    )  # fmt: skip
    assert 0 < first.begun <= first.ended <= second.begun
    assert (second.seq, second.state) == (2, UNDER_WAY)
    assert second.shown == "bucket 0: all_reduce(float32[10]) at train.py:3"
    assert (there.words.pid, there.words.step, there.words.samples) == (os.getpid(), 1, 64)
    assert there.said == "waits for rank 4" and there.groups == {"world": (0, 1, 2, 3)}
    assert read_rank(box, 4).operations == [] and box.about == {"job": "j"}


def test_what_has_not_ended_was_broken_off_once_its_group_has_gone_on(box):
    mine = box.recorder(4)
    mark = _mark(mine, "all_reduce")
    mine.begin(1, mark)
    mine.fail(mine.begin(2, mark))
    mine.begin(0, mark)  # a message
    mine.end(mine.begin(3, mark))
    states = [op.state for op in read_rank(box, 4).operations]
    assert states == [BROKEN_OFF, FAILED, UNDER_WAY, "ended"]


@pytest.mark.parametrize("count", [1, 63, 64, 511, 512, 513, 1500])
def test_the_last_ones_stay_and_a_follower_sees_each_once(box, count):
    mine, follower = box.recorder(4), Follower(box, 4)
    mark, seen, lost = _mark(mine, "barrier"), [], 0
    for i in range(1, count + 1):
        mine.end(mine.begin(i, mark))
        if i % 700 == 0:
            new, missed = follower.new(100)
            seen, lost = seen + [op.seq for op in new], lost + missed
    assert follower.newest() == count
    while True:
        new, missed = follower.new()
        seen, lost = seen + [op.seq for op in new], lost + missed
        if not new:
            break
    assert seen == sorted(set(seen)) and seen[-1] == count and len(seen) + lost == count
    assert lost == 0 or count > NUM_RECORDS
    last = read_rank(box, 4, 64).operations
    assert [op.seq for op in last] == list(range(max(1, count - 63), count + 1))


def test_a_follower_waits_for_what_is_under_way(box):
    mine, follower = box.recorder(4), Follower(box, 4)
    mark = _mark(mine, "barrier")
    begun = mine.begin(1, mark)
    mine.end(mine.begin(2, mark))
    assert follower.new() == ([], 0) and follower.newest() == 2
    mine.end(begun)
    assert [op.seq for op in follower.new()[0]] == [1, 2]


def test_an_overwritten_text_is_not_taken_for_another_call(box):
    mine = box.recorder(4)
    mark = _mark(mine, "all_reduce at one.py:1")
    for i in range(NUM_TEXTS):
        mine.text(f"call {i}")
    mine.end(mine.begin(1, mark))
    assert read_rank(box, 4).operations[0].text == "all_reduce(float32[10])"


def test_a_record_that_was_not_finished_is_left_out(box):
    mine = box.recorder(4)
    mine.end(mine.begin(1, _mark(mine, "barrier")))
    struct.pack_into("<Q", box.buffer, box.at(4) + blackbox.RECORDS_AT + 2 * 64, 2)  # killed there
    assert [op.seq for op in read_rank(box, 4).operations] == [1]


def test_a_process_that_takes_a_ranks_place_goes_on_in_its_box(box):
    first = box.recorder(4)
    mark = _mark(first, "all_reduce at a.py:1")
    for i in range(1, 4):
        first.end(first.begin(i, mark))
    first.begin(4, mark)
    box.ended(4, 137)
    assert box.operations(4) == 4
    second = box.recorder(4)
    assert (box.operations(4), read_rank(box, 4).words.ended) == (0, 0)
    second.end(second.begin(1, _mark(second, "barrier at b.py:2", "again")))
    assert box.operations(4) == 1
    there = read_rank(box, 4)
    assert [(op.number, op.state) for op in there.operations[-2:]] == [(4, FAILED), (5, "ended")]
    assert there.operations[0].text.endswith("a.py:1") and there.last.text == "barrier at b.py:2"
    assert there.last.group == "again" and set(there.groups) == {"world", "again"}


@pytest.mark.parametrize(
    "ranks", [[], [3], [0, 1, 2, 3], [0, 2, 4, 6], [5, 3, 1], [0, 1, 5, 9, 13, 14], [7, 7]]
)
def test_members_are_written_short(ranks):
    assert numbers(blackbox.runs(ranks)) == tuple(ranks)
    for damaged in ("0-3,5 ... 9", "0-99999999999999", "1,2-1:0", "-5--2"):
        assert numbers(damaged) == ()


def test_files_that_are_none(tmp_path):
    for content in (b"", b"x" * 9000):
        path = tmp_path / "box"
        path.write_bytes(content)
        fd = os.open(path, os.O_RDWR)
        with pytest.raises(CommError, match="black box"):
            Box(fd)
        os.close(fd)
    made = Box.create(1, {})
    os.ftruncate(made.fd, 8192)
    with pytest.raises(CommError, match="cut short"):
        Box(made.fd)
    made.close()


def test_groups_record_what_they_do_and_it_outlives_the_rank():
    segment, box = Segment.create(2), Box.create(2, {})

    def body(rank):
        blackbox.adopt(box.recorder(rank))
        group = ProcessGroup(shm.connect(segment, rank, 2))
        group.all_reduce(np.ones(5, np.float32))
        group.all_reduce(np.ones(1 << 18), async_op=True).wait()
        with pytest.raises(CollectiveMismatch):
            group.broadcast(np.ones(3), root=rank)
        if rank == 0:
            group.send(np.ones(2), 1)
        else:
            group.recv(np.ones(2), 0)
        if os.fork() == 0:  # a process of the rank's must not write into its box
            Recorder.begin(blackbox.recorder(), 99, b"\0" * 20)
            os._exit(0)
        os.wait()
        if rank == 1:
            box.ended(1, 128 + signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        context.wait_until(lambda: bool(read_rank(box, 1).words.ended), lambda: "rank 1", 5.0)

    with pytest.raises(AssertionError):
        run_ranks(2, body)
    for rank in range(2):
        there = read_rank(box, rank)
        shown = [(op.verb, op.numel, op.seq, op.state) for op in there.operations]
        verb, state = ("send", "ended") if rank == 0 else ("recv", "ended")
        assert shown == [
            ("all_reduce", 5, 1, "ended"), ("all_reduce", 1 << 18, 2, "ended"),
            ("broadcast", 3, 3, UNDER_WAY), (verb, 2, 0, state),
        ]  # fmt: skip
        assert "test_blackbox.py" in there.operations[0].text
        assert there.operations[3].peer == 1 - rank and there.groups == {"world": (0, 1)}
    assert read_rank(box, 1).words.ended == 138
    segment.close()
    box.close()
