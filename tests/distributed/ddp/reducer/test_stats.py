"""Times of the parts of a step, their means, and who is waited for."""

from __future__ import annotations

import pytest

from disttrain import context
from disttrain import distributed as dist
from disttrain.distributed.ddp.reducer.stats import Stats

pytestmark = pytest.mark.simulated


def test_the_rank_that_waits_least_is_the_one_that_others_wait_for() -> None:
    stats = Stats(3)
    for _ in range(50):
        stats.hear([0.02, 0.001, 0.03])
    rank, lag = stats.straggler()
    assert rank == 1 and abs(lag - 0.024) < 1e-3


def step(stats: Stats, clock: list, launch: float | None = 5.0) -> None:
    """Forward at 1 s, backward at 3 s, waiting at 6 s, the end at 8 s."""
    begin = clock[0]
    stats.now = lambda: clock[0]
    stats.forward_at, stats.backward_at = begin + 1.0, begin + 3.0
    stats.launch_at = 0.0 if launch is None else begin + launch
    stats.wait_at = begin + 6.0
    clock[0] = begin + 8.0
    stats.end()


def test_each_part_of_a_step_is_told_by_its_ends() -> None:
    stats, clock = Stats(2), [100.0]
    step(stats, clock)
    assert stats.last == stats.means == (2.0, 5.0, 3.0, 2.0) and stats.overlap == 1.0
    step(stats, clock, launch=None)  # no bucket was ready before the waiting
    assert stats.last == (2.0, 5.0, 2.0, 2.0) and stats.overlap == 0.0
    assert stats.means == (2.0, 5.0, pytest.approx(2.9), 2.0)
    step(stats, clock, launch=7.0)  # later than the waiting began
    assert stats.last[2] == 2.0


def test_a_rank_alone_waits_for_nobody() -> None:
    assert Stats(1).straggler() == (0, 0.0) and Stats(0).straggler() == (0, 0.0)
    stats = Stats(2)
    stats.hear([1.0, 0.0])
    assert stats.waits == [pytest.approx(0.1), 0.0] and stats.straggler() == (1, pytest.approx(0.1))


def test_times_are_those_of_the_ranks_clock() -> None:
    def body() -> float:
        stats = Stats(1)
        begin = stats.now()
        context.sleep(3.0)
        return stats.now() - begin

    assert dist.simulate(body, 1).results == [3.0]  # of a simulated rank, which nobody awaits
