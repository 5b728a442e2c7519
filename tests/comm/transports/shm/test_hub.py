"""Several threads of a rank that wait at once: each looks at the other ranks, one at a time."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from disttrain.comm.job.segment import Segment
from disttrain.comm.transports.shm import deadlock
from disttrain.comm.transports.shm.bootstrap import Watch
from support.groups import run_group


def test_one_thread_at_a_time_looks_at_the_processes_of_peers():
    """A poll that two threads are in at once raises."""
    segment, entered = Segment.create(2), []
    watch = Watch(segment, 0, 2)

    def poll(milliseconds):
        entered.append(milliseconds)
        if len(entered) == 1:
            watch._next = 0.0
            other = threading.Thread(target=watch)
            other.start()
            other.join()
        return []

    watch._poll = SimpleNamespace(poll=poll)
    watch()
    assert entered == [0]
    watch.close()
    watch._next = 0.0
    watch()  # a thread that had found it before it was closed
    assert entered == [0]
    segment.close()


def test_a_thread_that_waits_does_not_write_over_the_word_that_its_rank_has_left():
    def body(group):
        detector, group_rank = group.transport.hub.detector, group.rank
        group.barrier()
        if group_rank == 0:
            need = SimpleNamespace(
                edges=lambda: [(1, 0, 1)], what=lambda: detector.leave(True) or ""
            )
            detector._publish([need], need)
            return detector._read(0)[1]
        return deadlock.LEFT

    assert run_group(2, body) == [deadlock.LEFT] * 2


def test_the_ranks_of_a_deadlock_are_read_from_its_text():
    told = (
        "CollectiveMismatch: ranks wait for each other in calls that do not belong together, and "
        "none can go on:\n  ranks 0, 12: barrier() at a.py:3 in f\n    and in ranks 5: x\n"
        "  rank 3: all_reduce() at a.py:4 in f"
    )
    assert deadlock.ranks_of(told) == {0, 3, 12}
    assert deadlock.ranks_of("CollectiveMismatch: all_reduce:\n  rank 1: another") == set()
