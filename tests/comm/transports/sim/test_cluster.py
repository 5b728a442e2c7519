"""Simulated ranks: schedules by seed, virtual time, who is blamed, who is killed."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import context
from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job.segment import JOB_SLOT
from disttrain.comm.transports import shm, sim
from disttrain.comm.transports.sim.cluster import cause_of, die, first_failed, run_tasks
from disttrain.comm.transports.sim.scheduler import Killed
from disttrain.core.random import default_generator
from disttrain.errors import ConfigError, Deadlock, LaunchError, PeerFailed, WaitTimeout

pytestmark = pytest.mark.simulated


def world() -> ProcessGroup:
    """The group of all simulated ranks."""
    me = context.current()
    group = ProcessGroup(shm.connect(me.slots[JOB_SLOT], me.rank, me.world_size))
    group.timeout = 20.0
    return group


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


def test_ranks_know_their_numbers_and_arguments_reach_them() -> None:
    def body(a: int, b: int) -> tuple:
        return (*context.current().numbers, a - b)

    assert sim.simulate(body, 2, args=(5, 3)).results == [(0, 2, 0, 2, 2), (1, 2, 1, 2, 2)]


def test_a_killed_rank_is_told_of_by_the_others_and_gives_nothing() -> None:
    def body() -> str:
        group = world()
        if group.rank == 1:
            die()
        with pytest.raises(PeerFailed, match="rank 1 failed: killed"):
            group.barrier()
        return "found out"

    tasks = run_tasks(body, 2).tasks
    assert tasks[0].result == "found out" and tasks[0].error is None
    assert tasks[1].killed and tasks[1].result is None
    with pytest.raises(AssertionError, match="simulated ranks"):
        die()


@pytest.mark.parametrize("code, ends_well", [(None, True), (0, True), (3, False)])
def test_an_exit_with_code_0_is_an_end_like_any_other(code: int | None, ends_well: bool) -> None:
    def body() -> None:
        raise SystemExit(code)

    (task,) = run_tasks(body, 1).tasks
    assert (task.error is None) is ends_well


def test_what_is_found_wrong_at_the_end_of_a_rank_is_its_error() -> None:
    def body() -> None:
        def wrong() -> None:
            raise RuntimeError("left open")

        context.current().at_end.append(wrong)

    with pytest.raises(LaunchError, match="left open"):
        sim.simulate(body, 1)


def test_the_first_error_is_one_that_follows_from_no_other() -> None:
    def body() -> None:
        rank = context.current().rank
        raise [PeerFailed(2, "x"), Deadlock("y"), ValueError("mine")][rank]

    scheduler = run_tasks(body, 3)
    first, failed = first_failed(scheduler)
    assert first is scheduler.tasks[2] and len(failed) == 3
    assert first_failed(run_tasks(lambda: None, 2)) == (None, [])


def test_a_cause_is_one_line() -> None:
    assert cause_of(ValueError("bad")) == "ValueError: bad"
    assert cause_of(Killed("killed (--kill 1@barrier:1)")) == "killed (--kill 1@barrier:1)"


def test_random_numbers_start_from_the_seed_and_the_rank() -> None:
    def drawn() -> int:
        return default_generator.initial_seed()

    first, again, other = (sim.simulate(drawn, 3, seed=s).results for s in (1, 1, 2))
    assert first == again
    assert len({*first, *other}) == 6
