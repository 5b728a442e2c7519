"""The job segment: its layout, the black box, the first failure, bad descriptors, small limits."""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from pathlib import Path

import pytest

from disttrain.comm.job.segment import ARENA_BYTES, Segment
from disttrain.errors import CommError
from support.ranks import run_ranks


@pytest.fixture
def segment():
    made = Segment.create(3)
    yield made
    made.close()


def test_areas_of_all_ranks_are_apart(segment):
    areas = [segment.comm_area(r) for r in range(3)] + [segment.arena(r) for r in range(3)]
    for (start, size), (following, _) in pairwise(areas):
        assert 0 < start and start + size <= following
    assert areas[-1] == (segment.arena(2)[0], ARENA_BYTES)
    assert sum(areas[-1]) == len(segment.buffer)


def test_memory_is_taken_only_where_it_is_touched(segment):
    assert os.fstat(segment.fd).st_blocks * 512 < 1 << 20
    segment.buffer[segment.arena(2)[0]] = 1
    assert os.fstat(segment.fd).st_blocks * 512 < 1 << 20


def test_an_attached_segment_is_the_same_memory(segment):
    other = Segment.attach(os.dup(segment.fd))
    assert (other.num_ranks, other.epoch) == (3, 1)
    other.slot(1).describe("all_reduce seq 12 at train.py:33")
    other.slot(1).state = "failed"
    other.slot(1).record_error("ValueError: ä", "Traceback ...")
    other.close()
    box = segment.slot(1)
    assert box.doing == "all_reduce seq 12 at train.py:33"
    assert (box.state, box.error) == ("failed", ("ValueError: ä", "Traceback ..."))
    assert segment.slot(0).state == "starting" and segment.slot(2).error == ("", "")


def test_a_slot_outlives_its_rank(segment):
    def body(rank):
        segment.slot(rank).pid = os.getpid()
        segment.slot(rank).describe(f"rank {rank} in barrier")
        return os.getpid()

    pids = run_ranks(3, body)
    assert [segment.slot(r).pid for r in range(3)] == pids
    assert segment.slot(2).doing == "rank 2 in barrier"


def test_the_first_failure_wins(segment):
    assert segment.failure() is None
    segment.publish_failure(2, "ValueError: no", "line 1\nline 2")
    segment.publish_failure(0, "PeerFailed: rank 2")
    failure = segment.failure()
    assert (failure.rank, failure.cause) == (2, "ValueError: no")
    assert failure.traceback == "line 1\nline 2"


def test_failures_at_one_moment_do_not_mix(segment):
    def body(rank):
        segment.publish_failure(rank, f"cause {rank}" * 50, f"trace {rank}" * 200)

    run_ranks(3, body)
    failure = segment.failure()
    assert failure.cause == f"cause {failure.rank}" * 50
    assert failure.traceback == f"trace {failure.rank}" * 200


def test_long_texts_lose_their_middle(segment):
    segment.slot(0).record_error("first" + "x" * 5000 + "last", "t" * 100_000)
    cause, trace = segment.slot(0).error
    assert cause.startswith("first") and cause.endswith("last") and " ... " in cause
    assert len(cause) <= 1024 and 32_000 < len(trace) <= 32 << 10


def test_a_failure_shows_the_whole_traceback_of_its_rank(segment):
    segment.slot(1).record_error("E", "t" * 20_000)
    segment.publish_failure(1, "E", "t" * 20_000)
    assert segment.failure().traceback == "t" * 20_000


def test_arenas_shrink_when_addresses_are_few():
    def body(rank):
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        room = mapped + (7 << 30)  # what earlier tests have left mapped is beside it
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        small = Segment.create(4)
        return small.arena(3)[1], small.num_ranks

    ((nbytes, ranks),) = run_ranks(1, body)
    assert ranks == 4 and 64 << 20 <= nbytes <= 2 << 30


def test_wrong_descriptors_are_refused():
    with pytest.raises(CommError, match="at least one"):
        Segment.create(0)
    with pytest.raises(CommError, match="not open"):
        Segment.attach(987)
    fd = os.memfd_create("not-a-segment")
    with pytest.raises(CommError, match="not a segment"):
        Segment.attach(fd)
    os.ftruncate(fd, 1 << 20)
    with pytest.raises(CommError, match="not a job segment"):
        Segment.attach(fd)
    os.close(fd)


def test_the_descriptor_is_not_inherited_by_other_programs(segment):
    assert not os.get_inheritable(segment.fd)
