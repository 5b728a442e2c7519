"""Simulated ranks pass the conformance suite, and the simulator keeps its own promises."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from comm.transports.conformance import Conformance, Failures

from disttrain import context
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job.segment import JOB_SLOT
from disttrain.comm.transports import shm, sim
from disttrain.errors import ConfigError, Deadlock, LaunchError, WaitTimeout
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


def busy() -> list[float]:
    group = world()
    x = np.full(5, group.rank + 1.0)
    for _ in range(3):
        group.all_reduce(x)
        group.barrier()
    return x.tolist()


def test_the_same_seed_gives_the_same_schedule() -> None:
    first, again, other = (sim.simulate(busy, 4, seed=s) for s in (1, 1, 2))
    assert first.schedule == again.schedule != other.schedule
    assert first.results == again.results == other.results


def test_time_is_virtual() -> None:
    def body() -> float:
        context.sleep(1000.0 * (context.current().rank + 1))
        return context.now()

    run = sim.simulate(body, 3)
    assert run.results == [1000.0, 2000.0, 3000.0] and run.seconds == 3000.0


def test_a_wait_without_patience_ends_at_once() -> None:
    def body() -> float:
        group = world()
        if group.rank == 0:
            work = group.irecv(np.zeros(1), 1)
            with pytest.raises(WaitTimeout):
                work.wait(0.0)
            group.barrier()
            work.wait(0.5)
        else:
            group.barrier()
            group.send(np.zeros(1), 0)
        return context.now()

    assert sim.simulate(body, 2).results == [0.0, 0.0]


def test_a_deadlock_says_what_each_rank_waits_for() -> None:
    def body() -> None:
        group = world()
        group.recv(np.zeros(3), (group.rank + 1) % group.size)

    with pytest.raises(Deadlock) as error:
        sim.simulate(body, 3)
    for rank in range(3):
        assert f"rank {rank}: recv(float64[3], src={(rank + 1) % 3}" in str(error.value)


def test_a_rank_that_ended_is_named_in_the_deadlock() -> None:
    def body() -> None:
        group = world()
        if group.rank:
            group.barrier()

    with pytest.raises(Deadlock, match="ended already: rank 0"):
        sim.simulate(body, 2)


def test_the_first_failure_is_the_headline() -> None:
    def body() -> None:
        group = world()
        if group.rank == 1:
            raise ValueError("bad")
        group.barrier()

    with pytest.raises(LaunchError, match="simulated rank 1 failed") as error:
        sim.simulate(body, 3)
    assert isinstance(error.value.__cause__, ValueError)
    assert "also rank 0" in str(error.value) and "also rank 2" in str(error.value)


def test_a_world_of_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one rank"):
        sim.simulate(busy, 0)
