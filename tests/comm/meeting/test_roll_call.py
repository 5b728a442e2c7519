"""Ranks that come to one store: all are told of who is missing, and of two that clash."""

import os
import time

import pytest

from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.meeting import roll_call
from disttrain.comm.meeting.roll_call import meet, refuse
from disttrain.comm.store import HashStore
from disttrain.errors import ConfigError, WaitTimeout

pytestmark = pytest.mark.simulated


def told(fn, kind=ConfigError):
    """What a rank is told, whether or not it is an error."""
    try:
        return fn()
    except kind as error:
        return str(error)


def on_ranks(body, size, seed=0):
    return dist.simulate(lambda: body(context.current().rank), size, seed=seed).results


@pytest.mark.parametrize("seed", range(20))
def test_ranks_meet_again_and_again_and_in_worlds_of_other_sizes(seed):
    store = HashStore()

    def body(rank):
        keys = [meet(store, rank, 3, 10.0) for _ in range(4)]
        if rank < 2:
            keys.append(meet(store, rank, 2, 10.0))
            store.set("pair", b"has met")
        store.wait(["pair"])
        return keys + [meet(store, rank, 3, 10.0)]

    a, b, c = on_ranks(body, 3, seed)
    assert a == b and len(set(a)) == 6 and c == a[:4] + a[5:]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("claims", [(0, 1, 1), (0, 0, 2), (2, 1, 2)])
def test_two_that_claim_one_rank_are_named_to_all(claims, seed):
    store, me = HashStore(), f":{os.getpid()}"

    def body(at):
        return told(lambda: meet(store, claims[at], 3, 10.0))

    said = on_ranks(body, 3, seed)
    double = next(r for r in claims if claims.count(r) == 2)
    assert len(set(said)) == 1
    assert f"two processes claim rank {double} of 3" in said[0] and said[0].count(me) == 2


@pytest.mark.parametrize("seed", range(10))
def test_who_comes_late_to_a_meeting_that_has_failed_is_told_once(seed):
    store = HashStore()

    def body(rank):
        if rank == 3:  # the fourth process of a world of three, which is the real rank 2
            context.sleep(2.0)
        first = told(lambda: meet(store, (0, 1, 1, 2)[rank], 3, 10.0))
        if rank == 2:
            return first, None
        return first, meet(store, (0, 1, 1, 2)[rank], 3, 10.0)

    said = on_ranks(body, 4, seed)
    assert all("claim rank 1" in first for first, _ in said)
    assert len({second for _, second in said}) == 2


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (3, 3, 2)])
def test_worlds_of_different_sizes_are_named(sizes):
    store = HashStore()
    said = on_ranks(lambda r: told(lambda: meet(store, r, sizes[r], 10.0)), len(sizes))
    assert len(set(said)) == 1 and "different sizes" in said[0]
    assert "of 2" in said[0] and "of 3" in said[0] and "host" not in said[0]


def test_who_waited_in_vain_may_come_again():
    store = HashStore()

    def body(rank):
        if rank == 1:
            context.sleep(3.0)
        first = told(lambda: meet(store, rank, 2, 1.0 if rank == 0 else 9.0), WaitTimeout)
        return first if rank else (first, meet(store, 0, 2, 9.0))

    (vain, key), other = on_ranks(body, 2)
    assert "waited 1 s for rank 1 to come" in vain and key == other


def test_a_process_that_was_killed_while_it_waited_can_be_replaced():
    store = HashStore()
    store.set("meeting/0/first", '{"rank": 1, "size": 2, "who": "gone"}')
    store.set("meeting/0/who/1", f"{os.uname().nodename}:{1 << 30}")
    for name in ("come", "rank/1", "here"):
        store.add(f"meeting/0/{name}", 1)
    assert len(set(on_ranks(lambda r: meet(store, r, 2, 10.0), 2))) == 1


def test_meetings_leave_few_keys_behind():
    store = HashStore()

    def body(rank):
        for _ in range(30):
            meet(store, rank, 2, 10.0)
        return store.num_keys()

    assert max(on_ranks(body, 2)) < 40


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("ahead", [-86400.0, 86400.0])
def test_who_is_late_is_told_whatever_the_wall_clock_says(late, ahead, monkeypatch):
    """One of three comes seconds after the others have been told of a fourth."""
    store, clock = HashStore(), time.time

    def body(at):
        if at == late:
            context.sleep(4.0)
            monkeypatch.setattr(time, "time", lambda: clock() + ahead)
        if at == 3:
            return refuse(store, 3, 3, "rank=3 is given")
        return told(lambda: meet(store, at, 3, 30.0))

    said = on_ranks(body, 4)[:3]
    assert len(set(said)) == 1 and "rank=3 is given" in said[0]


def test_the_host_of_the_store_stays_until_all_are_told_and_not_longer():
    store = HashStore()

    def body(at):
        context.sleep((0.0, 3.0, 0.0)[at])
        if at == 2:
            refuse(store, 7, 3, "rank=7 is given")
        else:
            told(lambda: meet(store, at, 3, 30.0))
        return context.now()

    first, last, _ = on_ranks(body, 3)
    assert last <= first < last + 0.1


@pytest.mark.parametrize("same", [True, False])
def test_of_a_failure_on_another_machine_its_own_processes_are_told(same, monkeypatch):
    """A store that outlives jobs: who comes to it next may belong to another one."""
    store = HashStore()
    refuse(store, 3, 2, "rank=3 is given")
    store.add("meeting/0/come", 1)
    store.add("meeting/0/came/0", 1)
    store.set("meeting/0/who/0", "elsewhere:1")
    who = "elsewhere:1" if same else "elsewhere:2"
    store.set("meeting/1/first", f'{{"rank": 0, "size": 2, "who": "{who}"}}')
    for name in ("come", "rank/0", "came/0", "here"):
        store.add(f"meeting/1/{name}", 1)
    monkeypatch.setattr(roll_call, "host_id", lambda: "here")
    if same:
        with pytest.raises(ConfigError, match="rank=3 is given"):
            meet(store, 1, 2, 1.0)
    else:
        assert meet(store, 1, 2, 1.0) == "meeting/1"


@pytest.mark.parametrize("seed", range(5))
def test_who_counts_on_a_larger_world_than_has_begun_is_told_of_it(seed):
    store, sizes = HashStore(), (2, 2, 3)

    def body(rank):
        context.sleep(1.0 * (rank == 2))
        return told(lambda: meet(store, rank, sizes[rank], 10.0)), context.now()

    (a, _), (b, _), (said, when) = on_ranks(body, 3, seed)
    assert a == b == "meeting/0" and when < 7
    assert "rank 2 (" in said and "a world of 3, and a world of 2 has begun" in said


def test_who_waits_for_a_larger_world_may_be_early():
    store = HashStore()

    def body(rank):
        if rank < 2:
            meet(store, rank, 2, 10.0)
            context.sleep(3.0)
        else:
            context.sleep(1.0)
        return meet(store, rank, 3, 10.0)

    assert on_ranks(body, 3) == ["meeting/1"] * 3
