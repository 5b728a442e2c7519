"""Late calls fail whether or not somebody waits: by a thread that the test runs, on its clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain import context
from disttrain.errors import PeerFailed
from disttrain.rpc.calls.answers import INFINITE
from disttrain.rpc.calls.deadlines import Deadlines

pytestmark = pytest.mark.simulated


class Clock(context.Waiter):
    """Time passes in ``block`` alone, all that is given to it; ``during`` happens there once."""

    def __init__(self):
        super().__init__()
        self.at, self.slept, self.during = 0.0, [], []

    def now(self):
        return self.at

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.at += seconds

    def wait_until(self, ready, what, timeout, block=None):
        assert what() == "the deadlines of calls"
        if self.during:
            self.during.pop(0)()
        if ready():
            return
        self.slept.append(timeout)
        self.at += timeout
        super().wait_until(ready, what, -1e-9, lambda seconds: None)


class Watched:
    """Calls, and the thread's body to be run by the test."""

    def __init__(self, *deadlines):
        self.calls = [SimpleNamespace(deadline=d) for d in deadlines]
        self.late, self.bodies, self.clock = [], [], Clock()
        self.deadlines = Deadlines(
            lambda: list(self.calls), self.expire, lambda body, name: self.bodies.append(body)
        )

    def expire(self, call):
        self.late.append((call.deadline, self.clock.at))
        self.calls.remove(call)
        if not self.calls:
            self.deadlines.close()

    def run(self):
        with context.attach(context.Rank(waiter=self.clock)):
            self.bodies[0]()


def test_calls_without_a_deadline_start_no_thread():
    watched = Watched(INFINITE)
    watched.deadlines.note(INFINITE)
    assert watched.bodies == []


def test_one_thread_serves_all_calls():
    watched = Watched(5.0, 3.0)
    for deadline in (5.0, 3.0, 9.0):
        watched.deadlines.note(deadline)
    assert len(watched.bodies) == 1


def test_each_call_fails_at_its_own_deadline_and_the_thread_sleeps_between():
    watched = Watched(5.0, 3.0, 8.0)
    watched.deadlines.note(3.0)
    watched.run()
    assert watched.late == [(3.0, 3.0), (5.0, 5.0), (8.0, 8.0)]
    assert watched.clock.slept == [3.0, 2.0, 3.0]


def test_an_earlier_deadline_wakes_the_thread():
    watched = Watched(50.0)
    watched.deadlines.note(50.0)

    def another():
        watched.calls.append(SimpleNamespace(deadline=4.0))
        watched.deadlines.note(60.0)  # which is later than the next one: nothing to be told
        watched.deadlines.note(4.0)

    watched.clock.during = [another]
    watched.run()
    assert watched.late == [(4.0, 4.0), (50.0, 50.0)]
    assert watched.clock.slept == [4.0, 46.0]


def test_a_later_deadline_wakes_nobody():
    watched = Watched(5.0)
    watched.deadlines.note(5.0)
    watched.clock.during = [
        lambda: (watched.deadlines.note(7.0), watched.deadlines._bell.is_set() and pytest.fail())
    ]
    watched.run()
    assert watched.late == [(5.0, 5.0)]


def test_a_rank_that_failed_does_not_end_the_thread():
    watched = Watched(5.0)
    watched.deadlines.note(5.0)

    def dead():
        raise PeerFailed(1, "killed")

    watched.clock.during = [dead, dead]
    watched.run()
    assert watched.late == [(5.0, pytest.approx(5.0))]
    assert watched.clock.slept[:2] == [0.05, 0.05]


def test_no_thread_is_started_once_closed():
    watched = Watched(5.0)
    watched.deadlines.close()
    watched.deadlines.note(5.0)
    assert watched.bodies == []
