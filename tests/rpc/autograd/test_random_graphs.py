"""Gradients of random graphs of calls equal those of one process, in every order of messages; when
a worker is killed at any message, the others are told and keep no context.

``SCHEDULES=20 pytest ...`` tries twenty times as many.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from support.cases.rpc_graphs import contexts, draw, drive, prepare
from support.cases.rpc_references import held
from support.rpc_faults import try_all, try_kills

pytestmark = pytest.mark.simulated

TIMES = int(os.environ.get("SCHEDULES", "1"))
TOLERANCE = 1e-12


def work(plan):
    assert max(drive(plan), default=0.0) <= TOLERANCE


def left():
    return held() + contexts()


@pytest.mark.parametrize("batch", range(3 * TIMES))
def test_random_graphs(batch):
    for seed in range(6 * batch, 6 * batch + 6):
        plan = draw(seed)
        try_all(plan.size, seed, partial(work, plan), prepare=partial(prepare, plan), left=left)


@pytest.mark.parametrize("batch", range(2 * TIMES))
def test_killed_at_any_message_of_a_graph(batch):
    for seed in range(4 * batch, 4 * batch + 4):
        plan = draw(seed, (3, 3, 4))
        more = {"prepare": partial(prepare, plan), "left": left}
        try_kills(plan.size, seed, partial(work, plan), 2, **more)
