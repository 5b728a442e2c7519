"""Plans by list scheduling: whole, in an order that can run, within 1F1B's memory."""

from __future__ import annotations

import pytest

from disttrain.distributed.pipelining.actions import Action, Kind
from disttrain.distributed.pipelining.greedy import list_schedule

F, I, W = Kind.F, Kind.I, Kind.W
CASES = [((0,), 3), ((0, 1), 4), ((0, 1, 2, 3), 8), ((0, 1, 1, 0), 5), ((0, 1, 0, 1), 2)]


@pytest.mark.parametrize(("rank_of", "num_micro"), CASES)
def test_everything_is_done_once_by_its_rank(rank_of, num_micro):
    for rank, order in enumerate(list_schedule(rank_of, num_micro)):
        wanted = {
            Action(s, kind, m)
            for s, r in enumerate(rank_of)
            if r == rank
            for kind in (F, I, W)
            for m in range(num_micro)
        }
        assert set(order) == wanted and len(order) == len(wanted)


@pytest.mark.parametrize(("rank_of", "num_micro"), CASES)
def test_it_runs_to_its_end(rank_of, num_micro):
    """Each rank does its next action as soon as what it needs has been done by anybody."""
    orders = [list(order) for order in list_schedule(rank_of, num_micro)]
    done: set[Action] = set()
    while any(orders):
        ready = [order for order in orders if order and needs(order[0], rank_of) <= done]
        assert ready, "every rank waits"
        done |= {order.pop(0) for order in ready}


def needs(action: Action, rank_of: tuple) -> set[Action]:
    s, kind, m = action[:3]
    if kind is F:
        return {Action(s - 1, F, m)} if s else set()
    if kind is W:
        return {Action(s, I, m)}
    return {Action(s, F, m)} | ({Action(s + 1, I, m)} if s + 1 < len(rank_of) else set())


@pytest.mark.parametrize(("rank_of", "num_micro"), CASES)
def test_memory_is_bounded_by_the_stages(rank_of, num_micro):
    for order in list_schedule(rank_of, num_micro):
        held = most = 0
        for action in order:
            held += {F: 1, I: 0, W: -1}[action[1]]
            most = max(most, held)
        assert most <= len(rank_of) and held == 0
