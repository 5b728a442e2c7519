"""How often a reader looks before it sleeps: as long as it pays, and seldom where it does not."""

from __future__ import annotations

import pytest

from disttrain.context import current
from disttrain.rpc.messages.local.endpoint import LocalEndpoint
from disttrain.rpc.messages.local.polling import CREDIT, FAR, FIRST, LAST, NEAR, Polling


def after(waits, each=None):
    """How many looks each read makes before it sleeps, where what it awaits comes after so many."""
    each = each or Polling()
    each.allowed = True
    made = []
    for needed in waits:
        most = each.now()
        made.append(min(most, needed))
        if needed < most:
            each.found(needed)
        elif most:
            each.in_vain(most)
            if needed < FAR:
                each.missed()
    return made


def test_what_comes_soon_is_looked_out_for():
    assert after([20] * 1000) == [20] * 1000
    assert after([20, 20, 10_000] * 300) == [20, 20, NEAR] * 300


def test_it_is_looked_further_where_that_finds_more():
    assert after([200] * 5) == [NEAR, 200, 200, 200, 200]
    made = after([200, *[10] * 100, 200, 200])
    assert made[-2:] == [NEAR, 200]


def test_looking_in_vain_is_given_up_and_seldom_tried_again():
    made = after([10_000] * 100_000)
    assert sum(made) < 10 * CREDIT
    rest = made.index(0)
    assert rest == CREDIT // NEAR and made[rest : rest + FIRST + 1] == [0] * FIRST + [NEAR]
    assert sum(after([10_000, 300] * 50_000)) < 25 * CREDIT


def test_looking_begins_again_where_it_pays_again():
    each = Polling()
    after([10_000] * 100_000, each)
    made = after([20] * (LAST + 100), each)
    assert made[-1] == 20
    made = after([10_000] * 10_000, each)  # it is as if it had never been given up
    rest = made.index(0)
    assert rest == CREDIT // NEAR and made[rest : rest + FIRST + 1] == [0] * FIRST + [NEAR]


def test_nobody_looks_where_told_not_to():
    each = Polling()
    assert not each.now()


@pytest.mark.parametrize("workers, crowded", [(1, False), (2, False), (3, True)])
def test_workers_share_processors(workers, crowded, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    with LocalEndpoint(0, b"x" * 32) as endpoint:
        monkeypatch.setattr(current(), "local_world_size", workers)
        assert endpoint._is_crowded() == crowded
