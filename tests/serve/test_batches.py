"""Which requests run together, and when; against all that may be said of any batch."""

import random
from dataclasses import dataclass

import pytest

from disttrain.serve.batches import Queue


@dataclass(eq=False)
class Asked:
    group: object = "g"
    rows: int = 1
    limit: int = 4
    size: int = 10
    arrived: float = 0.0
    deadline: float = 100.0
    cancelled: bool = False


def queue(*requests, delay=1.0, most_bytes=1000):
    made = Queue(delay, most_bytes)
    for request in requests:
        made.add(request)
    return made


def test_a_batch_waits_until_it_is_full_or_old() -> None:
    requests = [Asked(arrived=k / 10) for k in range(4)]
    waiting = queue(*requests[:3])
    assert waiting.take(0.9, False) == [] and waiting.due() == 1.0
    assert queue(*requests[:3]).take(1.0, False) == requests[:3]
    assert queue(*requests).take(0.3, False) == requests
    assert waiting.length == 3


def test_nobody_waits_for_those_who_cannot_come() -> None:
    requests = [Asked(), Asked()]
    assert queue(*requests).take(0.0, True) == requests


def test_a_request_that_cannot_be_joined_runs_at_once_and_alone() -> None:
    alone, other = Asked(object(), limit=0), Asked(object(), limit=0)
    waiting = queue(alone, other)
    assert waiting.due() == 0.0
    assert [waiting.take(0.0, False), waiting.take(0.0, False)] == [[alone], [other]]


def test_rows_and_bytes_limit_a_batch_and_nobody_overtakes() -> None:
    first, second, third = Asked(rows=3), Asked(rows=2), Asked(rows=1)
    waiting = queue(first, second, third)
    assert [waiting.take(5.0, False) for _ in range(3)] == [[first], [second, third], []]
    huge, small = Asked(rows=9), Asked()
    assert queue(huge, small).take(5.0, False) == [huge]
    heavy = [Asked(size=600), Asked(size=600)]
    assert queue(*heavy).take(5.0, False) == heavy[:1]


def test_the_group_that_has_waited_longest_is_first() -> None:
    old, new = Asked("old", arrived=1.0), [Asked("new", arrived=1.5) for _ in range(4)]
    waiting = queue(*new, old)
    assert waiting.take(1.6, False) == new  # it is full, the other one may still grow
    assert waiting.take(2.0, False) == [old]
    both = queue(*new, old)
    assert both.take(3.0, False) == [old]


def test_requests_whose_time_is_over_are_taken_out() -> None:
    late, gone, good = Asked(deadline=1.0), Asked(cancelled=True), Asked()
    waiting = queue(late, gone, good)
    assert waiting.expired(0.5) == []
    assert waiting.expired(1.0) == [late, gone]
    assert waiting.length == 1 and waiting.take(9.0, False) == [good]
    assert waiting.drop() == [] and waiting.expired(1e9) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_order_loses_nothing_and_keeps_the_rules(seed) -> None:
    rng, waiting, now, asked, ran = random.Random(seed), Queue(1.0, 100), 0.0, [], []
    for _ in range(300):
        now += rng.random() / 4
        if rng.random() < 0.6:
            joined = rng.random() < 0.8
            request = Asked(
                rng.choice("ab") if joined else object(), rng.randrange(1, 6), 8 * joined,
                rng.randrange(60), now, now + rng.choice([0.5, 50]),
            )  # fmt: skip
            asked.append(request)
            waiting.add(request)
        elif rng.random() < 0.3:
            ran += waiting.expired(now)
        else:
            batch = waiting.take(now, rng.random() < 0.1)
            assert len({r.group for r in batch}) <= 1
            if len(batch) > 1:
                assert sum(r.rows for r in batch) <= 8 and sum(r.size for r in batch) <= 100
            ran += batch
    while waiting.length:
        ran += waiting.take(now, True)
    assert sorted(map(id, ran)) == sorted(map(id, asked))
    for group in "ab":
        order = [r.arrived for r in ran if r.group == group and r.deadline > r.arrived + 1]
        assert order == sorted(order)
