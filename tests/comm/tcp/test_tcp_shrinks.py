"""Ranks on several hosts go on without those that have failed: whole hosts, also the first one."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from disttrain.comm.group import ProcessGroup
from disttrain.errors import CommError, GroupRevoked, PeerFailed
from support.hosts import host_outcomes

LARGE = 300_000


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def shrunk(group: ProcessGroup, timeout: float = 10.0, exclude: tuple = ()) -> tuple:
    """The group of those who are left, and which ranks they had."""
    while True:
        transport, before = group.transport.shrink(timeout, exclude)
        made = ProcessGroup(transport)
        try:
            made.barrier()
        except (PeerFailed, GroupRevoked):
            group = made
            continue
        return made, before


def works(group: ProcessGroup) -> list[float]:
    """Of each kind of operation, something that shows whether it is right."""
    found = []
    for size in (3, 5000, LARGE):
        x = np.arange(size, dtype=np.float32) + group.rank
        group.all_reduce(x)
        found.append(float(x[-1]))
    work = group.all_reduce(np.ones(LARGE), async_op=True)
    half = group.new_group([*range(group.size)][::2])
    if half is not None:
        x = np.ones(4)
        half.all_reduce(x)
        found.append(float(x[0]))
    work.wait()
    x = np.full(2000, float(group.rank))
    sent = group.isend(x, (group.rank + 1) % group.size)
    got = np.empty(2000)
    group.recv(got, (group.rank - 1) % group.size)
    sent.wait()
    found.append(float(got[0]))
    group.barrier()
    return found[:3] + found[-1:]


def expected(rank: int, size: int) -> list[float]:
    ranks = np.arange(size)
    sums = [float(sum(np.float32(n - 1 + r) for r in ranks)) for n in (3, 5000, LARGE)]
    return [*sums, float((rank - 1) % size)]


def lost(hosts: str, victims: set[int], **settings) -> None:
    """The victims are killed in the middle of operations; the others go on, right."""

    def body(group: ProcessGroup) -> tuple:
        me = group.rank
        assert works(group) == expected(me, len(hosts))
        try:
            pending = [group.all_reduce(np.ones(LARGE), async_op=True) for _ in range(3)]
            group.isend(np.ones(LARGE), (me + 1) % group.size)
            if me in victims:
                die()
            while True:
                group.all_reduce(np.ones(LARGE))
        except (PeerFailed, GroupRevoked):
            made, before = shrunk(group)
        for work in pending:
            try:
                work.wait()
            except CommError:
                continue
        result = made.rank, made.size, works(made)
        made.close()
        return result

    outcomes = host_outcomes(hosts, body, **settings)
    left = [r for r in range(len(hosts)) if r not in victims]
    told = [(i, len(left), expected(i, len(left))) for i in range(len(left))]
    assert [outcomes[r].value for r in left] == told, [o.traceback for o in outcomes]
    assert all(outcomes[r].signal == signal.SIGKILL for r in victims)


@pytest.mark.parametrize("job", [True, False], ids=["launcher", "alone"])
@pytest.mark.parametrize(
    ("hosts", "victims"),
    [("aabb", {1}), ("aabb", {0, 1}), ("aabb", {2, 3}), ("abc", {0, 2}), ("aab", {0})],
    ids=["one", "host of the store", "other host", "two of three", "a mate"],
)
def test_those_who_are_left_go_on(hosts, victims, job):
    lost(hosts, victims, job=job)
