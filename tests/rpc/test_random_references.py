"""Remote references in random programs: the right values, and nothing kept at the end, in every
order of messages; when a worker is killed at any message, the others keep nothing either.

``SCHEDULES=20 pytest ...`` tries twenty times as many.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from disttrain import context
from support.cases.rpc_programs import draw, perform, value
from support.cases.rpc_references import REFERENCES, held
from support.rpc_faults import try_all, try_kills

pytestmark = pytest.mark.simulated

TIMES = int(os.environ.get("SCHEDULES", "1"))
VERBS = (*REFERENCES, "sync", "async", "then", "threads")


def work(plan):
    program = plan.programs[context.current().rank]
    assert perform(program) == value(program)


@pytest.mark.parametrize("batch", range(3 * TIMES))
def test_random_references(batch):
    for seed in range(10 * batch, 10 * batch + 10):
        plan = draw(seed, VERBS)
        try_all(plan.size, seed, partial(work, plan), left=held)


@pytest.mark.parametrize("batch", range(2 * TIMES))
def test_killed_at_any_message_of_references(batch):
    for seed in range(6 * batch, 6 * batch + 6):
        plan = draw(seed, VERBS, (3, 3, 4))
        try_kills(plan.size, seed, partial(work, plan), 2, left=held)
