"""Remote references in random programs: the right values, and nothing kept at the end, in every
order of messages.

``SCHEDULES=20 pytest ...`` tries twenty times as many.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from disttrain import context
from support.rpc_faults import try_all
from support.rpc_programs import draw, perform, value
from support.rpc_references import REFERENCES, held

TIMES = int(os.environ.get("SCHEDULES", "1"))
VERBS = (*REFERENCES, "sync", "async", "then", "threads")


def work(plan):
    program = plan.programs[context.current().rank]
    assert perform(program) == value(program)


@pytest.mark.parametrize("batch", range(4 * TIMES))
def test_random_references(batch):
    for seed in range(15 * batch, 15 * batch + 15):
        plan = draw(seed, VERBS)
        try_all(plan.size, seed, partial(work, plan), left=held)
