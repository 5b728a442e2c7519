"""Simulated ranks over the shared-memory transport pass the conformance suite."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from comm.transports.conformance import Conformance, Failures

from disttrain import context
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job.segment import JOB_SLOT
from disttrain.comm.transports import shm, sim
from support.ranks import Outcome, values

pytestmark = pytest.mark.simulated


def world(timeout: float = 20.0) -> ProcessGroup:
    """The group of all simulated ranks."""
    me = context.current()
    group = ProcessGroup(shm.connect(me.slots[JOB_SLOT], me.rank, me.world_size))
    group.timeout = timeout
    return group


def outcomes(n, fn, timeout: float = 20.0) -> list[Outcome]:
    tasks = sim.run_tasks(lambda: fn(world(timeout)), n, seed=n).tasks
    return [
        Outcome(t.rank, t.result, t.error, t.text, exitcode=0 if t.error is None else 1)
        for t in tasks
    ]


@pytest.fixture
def ranks():
    return SimpleNamespace(
        run=lambda n, fn, timeout=20.0: values(outcomes(n, fn, timeout)),
        outcomes=outcomes,
        die=sim.die,
    )


class TestSim(Conformance):
    pass


class TestSimFailures(Failures):
    pass
