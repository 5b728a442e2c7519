"""The thread that looks after devices, in ranks that are threads with a clock of their own."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from disttrain import context
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job.segment import Segment
from disttrain.comm.transports import selection
from disttrain.comm.transports.nccl.watch import watch
from disttrain.comm.transports.shm import transport as shm
from disttrain.errors import CollectiveMismatch, PeerFailed, WaitTimeout
from support.dtrun import until


def on_threads(platform, size, body):
    """``body(group, segment)`` on ranks that share a segment; errors and results, by rank."""
    segment = Segment.create(size, 64 << 20)
    found: list = [None] * size

    def rank(me):
        with context.attach(context.Rank(me, size)):
            platform.use(me)
            transport = shm.connect(segment, me, size, 1, 20.0)
            transport.between = selection.between
            group = ProcessGroup(transport, backend="nccl")
            try:
                found[me] = body(group, segment)
            except Exception as error:
                found[me] = error
            finally:
                group.close(abort=True)

    threads = [threading.Thread(target=rank, args=(me,), daemon=True) for me in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert not any(thread.is_alive() for thread in threads)
    segment.close()
    return found


def test_sums(four):
    def body(group, segment):
        x = four.upload(np.full(1000, group.rank + 1.0, np.float32), int(group.rank))
        for _ in range(3):
            group.all_reduce(x)
        group.barrier()
        return four.download(x)[0]

    assert on_threads(four, 3, body) == [54.0] * 3


def test_a_disagreement_ends_work_that_nobody_waits_for(four):
    def body(group, segment):
        me = int(group.rank)
        group.all_reduce(four.upload(np.ones(2), me))
        group.barrier()
        if me:
            time.sleep(0.1)
        work = group.all_reduce(four.upload(np.ones(3 + me), me), async_op=True)
        until(lambda: work.exception() is not None, "the error")
        raise work.exception()

    first, second = on_threads(four, 2, body)
    for error in (first, second):
        assert isinstance(error, CollectiveMismatch) and "float64[4]" in str(error)


def test_a_failed_rank_ends_work_that_nobody_waits_for(four):
    def body(group, segment):
        me = int(group.rank)
        x = four.upload(np.ones(2), me)
        group.all_reduce(x)
        group.barrier()
        if me == 1:
            time.sleep(0.1)
            segment.publish_failure(1, "ValueError: on purpose")
            return None
        work = group.all_reduce(x, async_op=True)
        until(lambda: work.exception() is not None, "the error")
        raise work.exception()

    error = on_threads(four, 2, body)[0]
    assert isinstance(error, PeerFailed) and error.rank == 1 and "on purpose" in str(error)
    assert not four.binding.comms


def test_a_hang_ends_at_the_deadline(four):
    met = threading.Barrier(2)

    def body(group, segment):
        me = int(group.rank)
        x = four.upload(np.ones(2), me)
        group.all_reduce(x)
        group.barrier()
        met.wait(10.0)
        four.binding.hang_all()
        group.timeout = 0.3
        started = time.monotonic()
        with pytest.raises(WaitTimeout):
            group.all_reduce(x)
            group.barrier()
        return time.monotonic() - started

    assert all(seconds < 5.0 for seconds in on_threads(four, 2, body))


class Looked:
    """A transport as the thread that looks after it knows it."""

    def __init__(self, look=lambda: False):
        self.look, self.ended = look, threading.Event()

    def fail(self, error):
        self.error = error
        self.ended.set()


@pytest.fixture
def watched():
    with context.attach(context.Rank(0, 1)):
        yield watch()


def test_no_look_goes_on_once_a_transport_is_removed(watched):
    looking, go_on, after = threading.Event(), threading.Event(), []

    def look():
        looking.set()
        go_on.wait(10.0)
        after.append("looked")
        return False

    one = Looked(look)
    watched.add(one)
    assert looking.wait(10.0)
    threading.Timer(0.02, go_on.set).start()
    watched.remove(one)
    assert after == ["looked"]


def test_what_cannot_be_looked_at_is_ended_and_others_are_looked_after(watched):
    seen = threading.Event()

    def broken():
        raise ValueError("memory that was given back")

    first, second = Looked(broken), Looked(lambda: first.ended.is_set() and seen.set())
    watched.add(first)
    watched.add(second)
    watched.hurry()
    assert first.ended.wait(10.0) and seen.wait(10.0)
    assert isinstance(first.error, ValueError)
    watched.remove(first)
    watched.remove(second)


def test_transports_come_and_go_while_they_are_looked_after(watched):
    kept = [Looked(lambda: True) for _ in range(200)]
    for each in kept:
        watched.add(each)
    for each in kept:
        watched.remove(each)
    assert not any(each.ended.is_set() for each in kept)
