"""Random programs of workers that call each other give the right numbers in every order of
messages; when one of them is killed at any message, the others are told and go on.

``SCHEDULES=20 pytest ...`` tries twenty times as many.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from disttrain import context
from disttrain import distributed as dist
from support.cases.rpc_programs import draw, follow, perform, value
from support.rpc_faults import try_kills

pytestmark = pytest.mark.simulated

TIMES = int(os.environ.get("SCHEDULES", "1"))


@pytest.mark.parametrize("batch", range(4 * TIMES))
def test_random_programs(batch):
    for seed in range(20 * batch, 20 * batch + 20):
        plan = draw(seed)
        results = dist.simulate(follow, plan.size, seed, (plan,)).results
        assert sum(results) == sum(map(value, plan.programs)), seed


def test_the_same_seed_gives_the_same_schedule():
    for seed in range(5):
        plan = draw(seed)
        first, again = (dist.simulate(follow, plan.size, seed, (plan,)) for _ in range(2))
        assert first.schedule == again.schedule
    other = dist.simulate(follow, plan.size, seed + 1, (plan,))
    assert other.schedule != first.schedule


@pytest.mark.parametrize("batch", range(2 * TIMES))
def test_killed_at_any_message(batch):
    for seed in range(8 * batch, 8 * batch + 8):
        plan = draw(seed, sizes=(3, 3, 4))
        try_kills(plan.size, seed, partial(work, plan), 2)


def work(plan):
    program = plan.programs[context.current().rank]
    assert perform(program) == value(program)
