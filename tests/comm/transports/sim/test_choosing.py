"""Simulated ranks whose messages meet receives as a schedule says."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports.sim.choosing import prove, run_once
from disttrain.comm.transports.sim.fabric import Cluster
from disttrain.comm.transports.sim.interleavings import ALL, ENDED, NONE, Schedule
from disttrain.comm.transports.sim.transport import connect

pytestmark = pytest.mark.simulated


def gather_from_anybody():
    group, got = ProcessGroup(connect()), []
    if group.rank == 0:
        x = np.zeros(1)
        for _ in range(group.size - 1):
            got.append(group.recv(x))
    else:
        group.send(np.full(1, float(group.rank)), 0)
    return got


@pytest.mark.parametrize(
    "choices, got", [((), "[1, 2, 3]"), ((2, 1), "[3, 2, 1]"), ((1, 1), "[2, 3, 1]")]
)
def test_a_schedule_says_what_comes_first(choices, got):
    ran = run_once(gather_from_anybody, Cluster(4), Schedule(ALL, choices))
    assert ran.end == ENDED and ran.results[0] == got
    assert len(ran.choices) == 3 and len(ran.choices[0].options) == 3
    assert "one of 3 that are possible" in ran.matches[0] and ran.sizes == {8}


def test_every_order_is_tried_and_their_results_are_compared():
    def total():
        return sum(gather_from_anybody())

    verdict = prove(total, 4)
    assert verdict.kind == "proof" and verdict.tried == 12 and verdict.limits == (ALL, NONE)
    assert "the same results in all 12 interleavings (complete" in str(verdict)
    verdict = prove(gather_from_anybody, 3)
    assert verdict.kind == "results" and str(verdict.schedule) == "all:1"
    assert "rank 0: [1, 2]" in verdict.text and "[2, 1]" in verdict.text


def test_a_named_receive_behind_one_from_anybody():
    """The message that the first took is what the second waits for."""

    def body():
        group = ProcessGroup(connect())
        x = np.zeros(1)
        if group.rank:
            group.send(x, 0)
            return None
        first = group.irecv(x)
        second = group.irecv(np.zeros(1), 1)
        return first.wait(), second.wait()

    verdict = prove(body, 3)
    assert verdict.kind == "deadlock" and "recv(float64[1], src=1" in verdict.text


def test_sends_that_wait_for_each_other_need_buffers():
    def body():
        group = ProcessGroup(connect())
        x = np.zeros(4)
        group.send(x, 1 - group.rank)
        group.recv(x, 1 - group.rank)

    verdict = prove(body, 2)
    assert verdict.kind == "deadlock" and verdict.schedule == Schedule(NONE)
    assert "no receive has taken it" in verdict.text and "sends that do not wait: none" in str(
        verdict
    )


def test_the_size_from_which_a_send_waits_matters():
    def body():
        group = ProcessGroup(connect())
        short, long = np.zeros(1), np.zeros(100)
        group.send(short, 1 - group.rank)  # small: safe where these are buffered
        group.recv(short, 1 - group.rank)
        if group.rank:
            group.send(long, 0)
        else:
            group.recv(long, 1)

    assert run_once(body, Cluster(2), Schedule(8)).end == ENDED
    assert run_once(body, Cluster(2), Schedule(NONE)).end == "deadlock"
    verdict = prove(body, 2)
    assert verdict.kind == "deadlock" and verdict.limits == ()


def test_programs_of_collectives_and_named_receives_have_one_order():
    def body():
        dist.init_process_group()
        rank, n = dist.get_rank(), dist.get_world_size()
        x = dt.full((3,), float(rank))
        sent = dist.isend(x, (rank + 1) % n)
        y = dt.zeros(3)
        dist.recv(y, (rank - 1) % n)
        sent.wait()
        dist.all_reduce(y)
        objects = [None] * n
        dist.all_gather_object(objects, rank)
        dist.destroy_process_group()
        return y.tolist(), objects

    verdict = prove(body, 3)
    assert verdict.kind == "proof" and verdict.tried == len(verdict.limits)


def test_a_rank_that_fails_in_one_order():
    def body():
        if gather_from_anybody() == [2, 1]:
            raise ValueError("the second was first")

    verdict = prove(body, 3)
    assert verdict.kind == "failed" and "ValueError: the second was first" in verdict.text
    assert str(verdict.schedule) == "all:1"
    assert run_once(body, Cluster(3), verdict.schedule).end == "failed"


def test_who_asks_instead_of_waiting_is_not_proved():
    def body():
        group = ProcessGroup(connect())
        x = np.zeros(1)
        if group.rank:
            group.send(x, 0)
            return
        work = group.irecv(x, 1)
        work.is_completed()
        work.wait()

    verdict = prove(body, 2)
    assert verdict.kind == "incomplete" and "has ended already" in verdict.text
    assert "test_choosing.py" in verdict.varied[0]


def test_who_asks_again_and_again_comes_to_an_end():
    def body():
        group = ProcessGroup(connect())
        x = np.zeros(1)
        if group.rank:
            group.send(x, 0)
            return None
        works = [group.irecv(x.copy()) for _ in range(group.size - 1)]
        while not all(work.is_completed() for work in works):
            context.sleep(0.001)
        return len(works)

    verdict = prove(body, 3)
    assert verdict.kind == "incomplete" and "has ended already" in verdict.text


def test_who_sleeps_may_send_more():
    """A receive from anybody is matched when all messages that it can get are there."""

    def body():
        group = ProcessGroup(connect())
        x = np.zeros(1)
        if group.rank:
            context.sleep(float(group.rank))
            group.send(x, 0)
            return None
        return [group.recv(x) for _ in range(group.size - 1)]

    verdict = prove(body, 3)
    assert verdict.kind == "results" and "[2, 1]" in verdict.text


def test_a_schedule_of_another_program_is_told():
    ran = run_once(gather_from_anybody, Cluster(3), Schedule(ALL, (7,)))
    assert ran.end != ENDED and not ran.choices
