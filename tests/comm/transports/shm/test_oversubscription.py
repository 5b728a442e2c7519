"""Ranks that are more than cores: who waits sleeps, and is woken."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from disttrain.comm.job.segment import Segment
from disttrain.comm.meeting.survivors import as_view
from disttrain.comm.transports.shm import oversubscription
from disttrain.comm.transports.shm.hub import Hub
from disttrain.comm.transports.shm.oversubscription import Bell, Nap
from support.groups import run_group

pytestmark = pytest.mark.skipif(
    oversubscription.futex() is None, reason="the system has no futex here"
)
BLOCK, FLAG = 0, 512  # a control block, and a word behind it


@pytest.fixture
def hub():
    memory: np.ndarray = np.zeros(1024, np.uint64)
    return SimpleNamespace(
        words=memoryview(memory).cast("B").cast("Q"),
        lock=threading.RLock(),
        futex=oversubscription.futex(),
        address=memory.__array_interface__["data"][0],
        ranks_per_core=2.0,
    )


class Flags:
    """All of some words have come to 1."""

    def __init__(self, words, idxs, for_all=True):
        self.words, self.idxs, self.for_all = words, idxs, for_all

    def __call__(self):
        return all(self.words[i] >= 1 for i in self.idxs)


def sleep_on(hub, flags, seconds=20.0):
    """A thread that sleeps once, and what it took."""
    took = []

    def body():
        begin = time.monotonic()
        nap = Nap(Bell(hub, BLOCK), flags)
        nap._longest = seconds
        while not flags() and time.monotonic() < begin + seconds:
            nap(seconds)
        took.append(time.monotonic() - begin)

    thread = threading.Thread(target=body)
    thread.start()
    field = oversubscription.FOR_ALL_AT if flags.for_all else oversubscription.FOR_ANY_AT
    while not hub.words[field // 8]:
        time.sleep(0.001)
    return thread, took


def test_the_last_to_come_wakes_all(hub):
    bell, idxs = Bell(hub, BLOCK), [FLAG, FLAG + 1]
    sleepers = [sleep_on(hub, Flags(hub.words, idxs)) for _ in range(3)]
    for i in idxs:
        assert all(thread.is_alive() for thread, _ in sleepers)
        hub.words[i] = 1
        bell.ring(idxs, 1)
    for thread, took in sleepers:
        thread.join(10.0)
        assert took and took[0] < 10.0, "woken, long before it would have looked by itself"
    assert not hub.words[oversubscription.FOR_ALL_AT // 8]


def test_who_waits_for_some_is_woken_by_any(hub):
    bell, idxs = Bell(hub, BLOCK), [FLAG, FLAG + 1]
    thread, took = sleep_on(hub, Flags(hub.words, idxs[:1], for_all=False))
    hub.words[FLAG] = 1
    bell.ring(idxs, 1)
    thread.join(10.0)
    assert took and took[0] < 10.0


def test_nobody_sleeps_for_what_is_there_and_none_is_rung_for_nothing(hub):
    hub.words[FLAG] = 1
    calls = []
    hub.futex = lambda *args: calls.append(args)
    Nap(Bell(hub, BLOCK), Flags(hub.words, [FLAG]))(10.0)
    hub.words[oversubscription.FOR_ALL_AT // 8] = 0
    Bell(hub, BLOCK).ring([FLAG], 1)
    assert not calls


def test_ranks_sleep_where_they_are_more_than_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(oversubscription, "YIELDS", 0)

    def body(group):
        hub, naps, seen = group.transport.hub, [], []
        futex = hub.futex
        sub = group.split(group.rank % 2)
        sub.transport.channel.bell._futex = lambda *args: naps.append(args[1]) or futex(*args)
        group.transport.channel.bell._futex = sub.transport.channel.bell._futex
        x = np.full(100_000, 1.0)
        for k in range(6):
            if k % 3 == group.rank:
                time.sleep(0.01)  # the others have gone to sleep when it comes
            group.all_reduce(x[: 10 + k])
            x[:] = k + group.rank
            work = group.all_reduce(x, async_op=k == 4)
            if work is not None:
                work.wait()
            seen.append(x[[0, -1]].tolist())
            group.broadcast(x, k % 3)
            sub.barrier()
        return naps, seen

    found = run_group(3, body)
    assert {op for naps, _ in found for op in naps} == {
        oversubscription._WAIT,
        oversubscription._WAKE,
    }
    assert [seen for _, seen in found] == [[[3.0 * k + 3.0] * 2 for k in range(6)]] * 3


def test_ranks_that_are_bound_to_cores_agree_on_whether_they_are_crowded(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    segment = Segment.create(3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})  # as each rank's may be
    there = Segment.attach(os.dup(segment.fd))
    try:
        crowded = [
            Hub.is_crowded.fget(SimpleNamespace(size=size, view=as_view(there))) for size in (2, 3)
        ]
        assert there.cores == 2 and crowded == [False, True]
    finally:
        there.close()
        segment.close()
