"""How often a reader looks before it sleeps: as long as it pays, and seldom where it does not."""

from __future__ import annotations

import pytest

from disttrain.comm.messaging.local import LocalEndpoint
from disttrain.comm.messaging.looks import FIRST, LAST, LOOKS, PATIENCE, Looks
from disttrain.context import current


def looks(found, reads, most=LOOKS):
    """How many of ``reads`` look, where ``found(read)`` says whether something comes meanwhile."""
    each = Looks()
    each.most = most
    looked = 0
    for read in range(reads):
        if each.now():
            looked += 1
            each.found() if found(read) else each.in_vain()
    return looked


def test_what_comes_soon_is_looked_out_for():
    assert looks(lambda read: True, 1000) == 1000
    assert looks(lambda read: read % 4 != 0, 1000) == 1000


def test_looking_in_vain_is_given_up_and_seldom_tried_again():
    assert looks(lambda read: False, 100_000) < PATIENCE * 9
    assert looks(lambda read: read % 2 == 0, 100_000) < 10_000


def test_looking_begins_again_where_it_pays_again():
    rest = 2 * LAST + PATIENCE
    assert looks(lambda read: read > 10_000, 20_000 + rest) > 10_000
    each = Looks()
    each.most = 1
    for _ in range(PATIENCE * 5):
        each.in_vain()
    each._rest = 0
    each.in_vain()
    for _ in range(PATIENCE):  # it is as if it had never been given up
        each.found()
    for _ in range(PATIENCE // 2):
        each.in_vain()
    assert [each.now() for _ in range(FIRST + 1)] == [0] * FIRST + [1]


def test_nobody_looks_where_told_not_to():
    assert looks(lambda read: True, 100, most=0) == 0


@pytest.mark.parametrize("workers, crowded", [(1, False), (2, False), (3, True)])
def test_workers_share_processors(workers, crowded, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    with LocalEndpoint(0, b"x" * 32) as endpoint:
        monkeypatch.setattr(current(), "local_world_size", workers)
        assert endpoint._is_crowded() == crowded
