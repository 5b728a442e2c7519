"""A rank that waits lets everything in flight go on, and its waits nest."""

import threading

import pytest

from disttrain.comm.job.progress import Progress
from disttrain.errors import WaitTimeout


class Rank(Progress):
    """The least that has a place to wait."""

    relaxed = 0

    def _relax(self):
        self.relaxed += 1


class Need:
    """There after so many looks."""

    def __init__(self, looks):
        self.looks = looks

    def __call__(self):
        self.looks -= 1
        return self.looks < 0

    def what(self):
        return "a thing that does not come"


class Owner:
    """Something in flight. ``does``: at each step."""

    def __init__(self, does=lambda: None):
        self.steps, self.does = 0, does

    def advance(self):
        self.steps += 1
        self.does()


def test_what_is_there_is_not_waited_for():
    rank, owner = Rank(), Owner()
    rank.pending.append(owner)
    rank.wait(Need(0), 1.0)
    assert (owner.steps, rank.relaxed) == (0, 0)


def test_everything_in_flight_goes_on():
    rank, owners = Rank(), [Owner(), Owner()]
    rank.pending += owners
    rank.wait(Need(6), 20.0)
    assert all(owner.steps >= 2 for owner in owners)
    assert rank.relaxed <= 1


def test_what_a_step_makes_ready_ends_the_wait_at_once():
    rank, there = Rank(), []
    rank.pending.append(Owner(lambda: there.append(1)))
    need = Need(0)
    need.__class__ = type("Flag", (Need,), {"__call__": lambda self: bool(there)})
    rank.wait(need, 20.0)
    assert there == [1]


def test_a_wait_has_a_deadline_and_says_what_for():
    rank = Rank()
    with pytest.raises(WaitTimeout, match="a thing that does not come"):
        rank.wait(Need(1 << 60), 0.05)
    assert rank.relaxed == 1 and not rank._needs


def test_who_finishes_while_it_advances_may_leave():
    rank, second = Rank(), Owner()
    first = Owner(lambda: rank.pending.remove(first) if first in rank.pending else None)
    rank.pending += [first, second]
    rank.progress()
    rank.progress()
    assert (first.steps, second.steps) == (1, 2)


def test_a_wait_inside_a_callback():
    rank, inner = Rank(), []

    def nested():
        if not inner:
            inner.append(1)
            rank.wait(Need(3), 20.0)
            inner.append(2)

    rank.pending.append(Owner(nested))
    rank.wait(Need(8), 20.0)
    assert inner == [1, 2] and not rank._needs


def test_another_thread_in_the_middle_of_it_is_not_waited_for():
    rank, owner = Rank(), Owner()
    rank.pending.append(owner)
    with rank.lock:
        other = threading.Thread(target=rank.progress)
        other.start()
        other.join(20)
        assert not other.is_alive() and owner.steps == 0
