"""How often a job begins anew, and how long it waits before."""

from __future__ import annotations

from disttrain_launcher.plan.restarts import CAP, LONG, PROGRESS, Restarts


def test_what_fails_at_once_again_and_again_waits_longer_each_time():
    restarts = Restarts(12)
    waits = [restarts.another(0.3, operations=2) for _ in range(12)]
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[CAP] * 5]
    assert restarts.another(0.3, 2) is None and restarts.used == 12


def test_whoever_got_somewhere_never_waits():
    restarts = Restarts(9)
    for _ in range(3):
        restarts.another(0.3, 0)
    assert restarts.another(LONG, 0) == 0.0
    assert restarts.another(0.3, 0) == 0.0  # and the count begins anew
    assert restarts.another(0.3, 0) == 1.0
    assert restarts.another(0.3, PROGRESS) == 0.0


def test_people_are_told_why_it_waits():
    restarts = Restarts(5)
    assert restarts.told(restarts.another(0.1, 0) or 0.0) == "restart 1 of 5"
    told = restarts.told(restarts.another(0.1, 0) or 0.0)
    assert told == "restart 2 of 5 in 1 s, since the last 2 attempts failed at once"


def test_without_restarts_there_is_none():
    assert Restarts(0).another(99.0, 99) is None
